"""Passages, their parents and what stands around them, as a view of the index has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from marklight.answer import Level
from marklight.errors import NotFound, UsageError
from marklight.levels import LEVELS, Leaf, beside, levels_of, lines_of, narrowest, reach_of
from marklight.model import Chunk, DocumentId
from marklight.ports import Snapshot
from marklight.report import Extract
from marklight.text import digest, embedding_text
from marklight.text.lines import DocumentLines, Lines


class Leaves(dict[DocumentId, Leaf | None]):
    """Documents by their ids, each opened once in one answer."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def __missing__(self, id: DocumentId) -> Leaf | None:
        found = self.snapshot.documents.text_and_outline(id)
        leaf = self[id] = Leaf(DocumentLines(found[0]), found[1]) if found else None
        return leaf

    def lines(self, chunk: Chunk, level: str, count: int = 1) -> Lines:
        """Which lines a level of this passage has; never fewer than the passage itself."""
        leaf = self[chunk.document]
        if leaf is None:
            return chunk.lines
        return lines_of(chunk, level, leaf, partial(self._parts, chunk, count=count))

    def levels(self, chunk: Chunk) -> tuple[Level, ...]:
        """Each level with its size, the narrowest first."""
        leaf = self[chunk.document]
        if leaf is None:
            return (Level(narrowest(chunk), chunk.lines, len(chunk.text)),)
        return levels_of(chunk, leaf, partial(self._parts, chunk))

    def _parts(self, chunk: Chunk, level: str, count: int = 1) -> Sequence[Lines]:
        if level == "neighbours":
            reach = reach_of(chunk, count)
            return beside(
                chunk,
                self.snapshot.documents.chunks_around(chunk.document, chunk.ordinal, reach),
                count,
            )
        found = self.snapshot.documents.section(chunk.parent)
        return [found[1].lines] if found else []


def parent(chunk: Chunk, leaves: Leaves) -> Chunk:
    """The parent of this passage in its shape; the passage itself where there is none."""
    found, leaf = leaves.snapshot.documents.section(chunk.parent), leaves[chunk.document]
    if found is None or leaf is None:
        return chunk
    section = found[1]
    text = leaf.page.text[slice(*section.span)]
    return replace(
        chunk,
        id=section.id,
        headings=section.headings,
        anchor=section.anchor,
        lines=section.lines,
        text=text,
        digest=digest(embedding_text(chunk.title, section.headings, text)),
        merged=(),
    )


def levels(chunks: Iterable[Chunk], leaves: Leaves) -> dict[str, tuple[Level, ...]]:
    """By the ids of these passages or parents: each level with its size, the narrowest first.

    A level that adds nothing to the one before it is left out. What is shown of a passage may
    have been widened already: its levels are those that it has in the index.
    """
    shown = {chunk.id: chunk for chunk in chunks}
    kept = leaves.snapshot.documents.context_levels(list(shown))
    others = [id for id in shown if id not in kept]
    known = {chunk.id: chunk for chunk in leaves.snapshot.documents.chunks(others)}
    return {
        id: kept.get(id) or leaves.levels(known.get(id) or parent(chunk, leaves))
        for id, chunk in shown.items()
    }


def widen(chunk: Chunk, level: str, leaves: Leaves, count: int = 1) -> Extract:
    """A level of a passage as it stands in the file."""
    if level not in LEVELS:
        raise UsageError(f"no level is called {level!r}", f"Known: {', '.join(LEVELS)}")
    leaf = leaves[chunk.document]
    if leaf is None:
        raise NotFound(f"{chunk.path} is not in the index")
    lines = leaves.lines(chunk, level, count)
    text = leaf.page.between(*lines)
    if level in ("passage", narrowest(chunk)):
        text = chunk.text
    return Extract(chunk.document, chunk.title, chunk.headings, lines, text, chunk.id)
