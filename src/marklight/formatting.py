"""Format places, passages and answers as plain text and HTML; text of documents is escaped and quoted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from marklight.escaping import one_line, quoted, visible

if TYPE_CHECKING:
    # Types only: `--help` needs the escaping functions and nothing else.
    from marklight.answer import Answer, Hit
    from marklight.model import Chunk, DocumentId
    from marklight.report import Extract

MAX_QUERY = 60
"""Characters of the query in the repr of an answer."""
NO_TEXT = "(title only)"

_DROPPING_STAGES = {
    "after_threshold": "exact_duplicates",
    "after_same_text": "near_duplicates",
    "after_near_text": "semantic_duplicates",
    "after_same_meaning": "per_document",
    "after_doc_limit": "",
}
"""Counts in `stats`, each with the stage that follows and drops duplicates or passages of one document."""


def path(document: DocumentId, several_collections: bool = False) -> str:
    """Return a document's path, with its collection first where there are several."""
    return one_line(document.named(several_collections))


def place(piece: Chunk | Extract, several_collections: bool = False) -> str:
    """Return `guide/auth.md:120-148`, which editors and terminals can open."""
    return place_of(piece.document.named(several_collections), piece.lines)


def place_of(name: str, lines: Sequence[int]) -> str:
    """Join a document's name and its lines.

    A name that contains `:1-4 § ` itself would pose as a place in another document: its `§` is escaped, so
    that a place ends at the first `§` that follows lines.
    """
    return f"{_LINES_IN_NAME.sub(_escape_section_sign, one_line(name))}:{lines[0]}-{lines[1]}"


_LINES_IN_NAME = re.compile(r":\d+-\d+ §")


def _escape_section_sign(match: re.Match[str]) -> str:
    return match[0].replace("§", "\\xa7")


def headed_place(
    piece: Chunk | Extract,
    several_collections: bool = False,
    link: Callable[[str, DocumentId, int], str] = lambda text, *_: text,
) -> str:
    """Return `guide/auth.md:120-148 § Auth > Token refresh`; `link` makes the place a hyperlink."""
    from marklight.model import trail

    where = link(place(piece, several_collections), piece.document, piece.lines[0])
    headings = one_line(trail(piece.title, piece.headings))
    return f"{where} § {headings}" if headings else where


def answer_line(answer: Answer) -> str:
    """Return the repr of an answer: the query, the number of results and the best score."""
    query = answer.query.raw_text or answer.query.text
    short = query if len(query) <= MAX_QUERY else f"{query[:MAX_QUERY]}…"
    best = f", best {answer.hits[0].score:.2f}" if answer.hits else ""
    results = "1 result" if len(answer.hits) == 1 else f"{len(answer.hits)} results"
    return one_line(f"<Answer to {short!r}: {results}{best}>")


def answer_text(answer: Answer) -> str:
    """Return the results as the command line prints them, or the reason why there are none."""
    if not answer.hits:
        return _empty_text(answer)
    several = answer.several_collections
    return "\n\n".join(
        f"[{rank}] {hit_text(hit, several)}" for rank, hit in enumerate(answer.hits, 1)
    )


def hit_text(hit: Hit, several_collections: bool = False) -> str:
    """Return a header with place and score, then the quoted passage."""
    where = headed_place(hit.chunk, several_collections)
    return f"{where} ({hit.score:.2f})\n{text_of(hit.chunk)}"


def left_out(answer: Answer) -> tuple[str, list[str]]:
    """Describe what was dropped if there are fewer results than requested; also return the stages."""
    stats = answer.stats
    if not answer.hits or not stats or stats["after_doc_limit"] >= answer.query.limit:
        return "", []
    counts = [stats[key] for key in _DROPPING_STAGES]
    dropped = {
        stage: before - after
        for stage, before, after in zip(_DROPPING_STAGES.values(), counts, counts[1:], strict=False)
        if after < before
    }
    same_document = dropped.get("per_document", 0)
    duplicates = sum(dropped.values()) - same_document
    parts = []
    if duplicates:
        parts.append(f"{duplicates} near duplicate{'s' * (duplicates > 1)}")
    if same_document:
        several = len({hit.chunk.document for hit in answer.hits}) > 1
        documents = "these documents" if several else "this document"
        parts.append(f"{same_document} more passage{'s' * (same_document > 1)} of {documents}")
    return f"Not shown: {', '.join(parts)}" if parts else "", list(dropped)


def text_of(chunk: Chunk) -> str:
    """Quote a passage; one that has a title only gets a placeholder."""
    return NO_TEXT if chunk.is_title else quoted(chunk.text.strip())


def answer_html(answer: Answer) -> str:
    """Return the results as HTML for a notebook; text of documents is escaped."""
    from html import escape

    if not answer.hits:
        return f"<p>{escape(_empty_text(answer))}</p>"
    items = "".join(
        f"<li><b>{escape(headed_place(hit.chunk, answer.several_collections))}</b> ({hit.score:.2f})"
        f'<pre style="white-space: pre-wrap">{escape(_unquoted(hit.chunk))}</pre></li>'
        for hit in answer.hits
    )
    notices = "".join(f"<p><i>{escape(one_line(notice))}</i></p>" for notice in answer.notices)
    return f"<ol>{items}</ol>{notices}"


def _unquoted(chunk: Chunk) -> str:
    return NO_TEXT if chunk.is_title else visible(chunk.text.strip())


def _empty_text(answer: Answer) -> str:
    return one_line(answer.empty_reason("min_confidence=0") or "No passage matches the query")
