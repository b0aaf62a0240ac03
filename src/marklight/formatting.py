"""Render answers as text and HTML for people; text of documents is escaped and quoted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from marklight.escaping import one_line, quoted, visible

if TYPE_CHECKING:
    # Only named here: `--help` needs the harmless texts and nothing that they are made of.
    from marklight.answer import Answer, Hit
    from marklight.model import Chunk, DocumentId
    from marklight.report import Extract

MOST_OF_A_QUESTION = 60
"""Characters of it in a line that tells of an answer."""
NO_TEXT = "(nothing but its title)"

_LEAVING_OUT = {
    "after_threshold": "exact_duplicates",
    "after_same_text": "near_duplicates",
    "after_near_text": "semantic_duplicates",
    "after_same_meaning": "per_document",
    "after_doc_limit": "",
}
"""What `stats` calls the number of hits before each stage that leaves out what was found twice or too often."""


def path(document: DocumentId, several_collections: bool = False) -> str:
    """A document's path, with its collection first where there are several."""
    return one_line(document.named(several_collections))


def place(piece: Chunk | Extract, several_collections: bool = False) -> str:
    """`guide/auth.md:120-148`, which editors and terminals can open."""
    return place_of(piece.document.named(several_collections), piece.lines)


def place_of(name: str, lines: Sequence[int]) -> str:
    """Join a document's name and its lines.

    A name that contains `:1-4 § ` itself would pose as a place in another document: its `§` is escaped, so
    that a place ends at the first `§` that follows lines.
    """
    return f"{_LINES_IN_NAME.sub(_without_section_sign, one_line(name))}:{lines[0]}-{lines[1]}"


_LINES_IN_NAME = re.compile(r":\d+-\d+ §")


def _without_section_sign(found: re.Match[str]) -> str:
    return found[0].replace("§", "\\xa7")


def headed_place(
    piece: Chunk | Extract,
    several_collections: bool = False,
    link: Callable[[str, DocumentId, int], str] = lambda text, *_: text,
) -> str:
    """`guide/auth.md:120-148 § Auth > Token refresh`; `link` makes the place one to click on."""
    from marklight.model import trail

    where = link(place(piece, several_collections), piece.document, piece.lines[0])
    headings = one_line(trail(piece.title, piece.headings))
    return f"{where} § {headings}" if headings else where


def answer_line(answer: Answer) -> str:
    """What was asked and how much was found."""
    asked = answer.query.raw_text or answer.query.text
    short = asked if len(asked) <= MOST_OF_A_QUESTION else f"{asked[:MOST_OF_A_QUESTION]}…"
    scores = f", the best {answer.hits[0].score:.2f}" if answer.hits else ""
    hits = "1 hit" if len(answer.hits) == 1 else f"{len(answer.hits)} hits"
    return one_line(f"<Answer to {short!r}: {hits}{scores}>")


def answer_text(answer: Answer) -> str:
    """The hits as the command line prints them; where there are none, why."""
    if not answer.hits:
        return _nothing(answer)
    several = answer.several_collections
    return "\n\n".join(
        f"[{rank}] {hit_text(hit, several)}" for rank, hit in enumerate(answer.hits, 1)
    )


def hit_text(hit: Hit, several_collections: bool = False) -> str:
    """A passage under the line that says where it stands."""
    where = headed_place(hit.chunk, several_collections)
    return f"{where} ({hit.score:.2f})\n{text_of(hit.chunk)}"


def left_out(answer: Answer) -> tuple[str, list[str]]:
    """What else there is where fewer are shown than were asked for, and the stages that left it out."""
    stats = answer.stats
    if not answer.hits or not stats or stats["after_doc_limit"] >= answer.query.limit:
        return "", []
    counts = [stats[key] for key in _LEAVING_OUT]
    gone = {
        stage: before - after
        for stage, before, after in zip(_LEAVING_OUT.values(), counts, counts[1:], strict=False)
        if after < before
    }
    of_these = gone.get("per_document", 0)
    alike = sum(gone.values()) - of_these
    several = len({hit.chunk.document for hit in answer.hits}) > 1
    said = [f"{alike} more say{'s' * (alike == 1)} nearly the same"] if alike else []
    if of_these:
        documents = "these documents" if several else "this document"
        said.append(f"{of_these} more {'is' if of_these == 1 else 'are'} of {documents}")
    return ", ".join(said), list(gone)


def text_of(chunk: Chunk) -> str:
    """Quote a passage; of one that is found by its title alone, say so."""
    return NO_TEXT if chunk.is_title else quoted(chunk.text.strip())


def answer_html(answer: Answer) -> str:
    """The hits as a list for a notebook; whatever a passage holds is text here, and no tag."""
    from html import escape

    if not answer.hits:
        return f"<p>{escape(_nothing(answer))}</p>"
    items = "".join(
        f"<li><b>{escape(headed_place(hit.chunk, answer.several_collections))}</b> ({hit.score:.2f})"
        f'<pre style="white-space: pre-wrap">{escape(_unquoted(hit.chunk))}</pre></li>'
        for hit in answer.hits
    )
    notices = "".join(f"<p><i>{escape(one_line(said))}</i></p>" for said in answer.notices)
    return f"<ol>{items}</ol>{notices}"


def _unquoted(chunk: Chunk) -> str:
    return NO_TEXT if chunk.is_title else visible(chunk.text.strip())


def _nothing(answer: Answer) -> str:
    why = answer.empty_reason("min_confidence=0")
    return one_line(f"nothing found: {why or 'no passage matches the question'}")
