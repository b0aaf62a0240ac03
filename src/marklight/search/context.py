"""Context of passages: parent sections, context levels with their sizes, and cutting answers to a token budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from marklight import formatting
from marklight.answer import CHARACTERS_PER_TOKEN, Answer, Hit, Level
from marklight.errors import NotFound, UsageError
from marklight.model import Chunk, DocumentId
from marklight.ports import Snapshot
from marklight.text import digest

if TYPE_CHECKING:
    from marklight.levels import OutlinedPage
    from marklight.report import Extract
    from marklight.text.lines import Lines

MAX_PLACES_NAMED = 3
"""Places that a notice about omitted results names."""
SHOWS_WHOLE = "shows a passage whole: "


class OpenDocuments(dict[DocumentId, "OutlinedPage | None"]):
    """Documents by id, each read once per answer; None for documents that are not in the index."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def __missing__(self, id: DocumentId) -> OutlinedPage | None:
        from marklight.levels import OutlinedPage
        from marklight.text.lines import DocumentLines

        stored = self.snapshot.documents.text_and_outline(id)
        document = self[id] = OutlinedPage(DocumentLines(stored[0]), stored[1]) if stored else None
        return document

    def lines(self, chunk: Chunk, level: str, count: int = 1) -> Lines:
        """Return the lines of a context level of a passage; at least its own."""
        from marklight.levels import level_lines

        document = self[chunk.document]
        if document is None:
            return chunk.lines
        return level_lines(chunk, level, document, partial(self._parts, chunk, count=count))

    def levels(self, chunk: Chunk) -> tuple[Level, ...]:
        """Return the context levels of a passage with their sizes, smallest first."""
        from marklight.levels import base_level, context_levels

        document = self[chunk.document]
        if document is None:
            return (Level(base_level(chunk), chunk.lines, len(chunk.text)),)
        return context_levels(chunk, document, partial(self._parts, chunk))

    def _parts(self, chunk: Chunk, level: str, count: int = 1) -> Sequence[Lines]:
        if level == "neighbours":
            from marklight.levels import neighbour_lines, neighbour_reach

            reach = neighbour_reach(chunk, count)
            near = self.snapshot.documents.chunks_around(chunk.document, chunk.ordinal, reach)
            return neighbour_lines(chunk, near, count)
        section = self.snapshot.documents.section(chunk.parent)
        return [section[1].lines] if section else []


def parent_passage(chunk: Chunk, documents: OpenDocuments) -> Chunk:
    """Return the parent section of a passage as a chunk; the passage itself if it has none."""
    from marklight.text.markdown import embedding_text

    stored, document = documents.snapshot.documents.section(chunk.parent), documents[chunk.document]
    if stored is None or document is None:
        return chunk
    section = stored[1]
    text = document.page.text[slice(*section.span)]
    return replace(
        chunk,
        id=section.id,
        headings=section.headings,
        anchor=section.anchor,
        lines=section.lines,
        text=text,
        digest=digest(embedding_text(chunk.title, section.headings, text)),
        merged=(),
        boilerplate=(),
    )


def levels(chunks: Iterable[Chunk], documents: OpenDocuments) -> dict[str, tuple[Level, ...]]:
    """Return the context levels of passages or sections by id, smallest first.

    A level that adds nothing to the one before it is left out. A hit may include context already: its levels
    are those of the passage in the index.
    """
    shown = {chunk.id: chunk for chunk in chunks}
    stored = documents.snapshot.documents.context_levels(list(shown))
    others = [id for id in shown if id not in stored]
    indexed = {chunk.id: chunk for chunk in documents.snapshot.documents.chunks(others)}
    return {
        id: stored.get(id) or documents.levels(indexed.get(id) or parent_passage(chunk, documents))
        for id, chunk in shown.items()
    }


def expand(chunk: Chunk, level: str, documents: OpenDocuments, count: int = 1) -> Extract:
    """Return a context level of a passage as an extract of the document."""
    from marklight.levels import LEVELS, base_level
    from marklight.report import Extract

    if level not in LEVELS:
        raise UsageError(f"No such level: {level!r}", f"Choose from: {', '.join(LEVELS)}")
    document = documents[chunk.document]
    if document is None:
        raise NotFound(f"{chunk.path} is not in the index")
    lines = documents.lines(chunk, level, count)
    text = document.page.between(*lines)
    if level in ("passage", base_level(chunk)):
        text = chunk.text
    return Extract(chunk.document, chunk.title, chunk.headings, lines, text, chunk.id)


def within_budget(answer: Answer) -> Answer:
    """Return the best hits that fit the token budget, the last one cut at a sentence, with a notice."""
    max_tokens = answer.query.max_tokens
    if max_tokens is None:
        return answer
    from marklight.text.lines import truncate_at_sentence

    available = max_tokens * CHARACTERS_PER_TOKEN
    kept: list[Hit] = []
    is_cut = False
    for hit in answer.passages:
        if len(hit.chunk.text) <= available:
            kept.append(hit)
            available -= len(hit.chunk.text)
            continue
        if available > 0:
            text = truncate_at_sentence(hit.chunk.text, available)
            kept.append(replace(hit, chunk=replace(hit.chunk, text=text, boilerplate=())))
            is_cut = True
        break
    omitted = answer.passages[len(kept) :]
    if not is_cut and not omitted:
        return answer
    results = "1 result" if len(omitted) == 1 else f"{len(omitted)} results"
    change = f"{results} left out" if omitted else "the last result cut"
    places = ", ".join(
        formatting.place_text(hit.chunk.document, answer.several_collections, hit.chunk.lines)
        for hit in (omitted or kept[-1:])[:MAX_PLACES_NAMED]
    )
    notice = f"{change} to stay within {max_tokens} tokens; `marklight get` {SHOWS_WHOLE}{places}"
    notices = (*answer.notices, notice)
    if answer.hits:
        return replace(answer, hits=tuple(kept), notices=notices)
    return replace(answer, nearest=tuple(kept), notices=notices)
