"""How far a passage can be widened, and the text of each level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from marklight.answer import Level
from marklight.errors import NotFound, UsageError
from marklight.model import Chunk, DocumentId, Heading
from marklight.ports import Reader
from marklight.report import Extract
from marklight.search.page import Lines, Page
from marklight.text import digest, passage

MOST_IN_PARENT = 20
"""Passages of one parent: it has at most 2,000 characters, and few passages under 100."""
LEVELS = ("passage", "neighbours", "block", "parent", "section", "document")


class Leaf(NamedTuple):
    """A document by its lines and headings."""

    page: Page
    outline: Sequence[Heading]


class Leaves(dict[DocumentId, Leaf | None]):
    """Documents by their ids, each opened once in one answer."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader

    def __missing__(self, id: DocumentId) -> Leaf | None:
        found = self.reader.text_of(id)
        leaf = self[id] = Leaf(Page(found[0]), found[1]) if found else None
        return leaf

    def lines(self, chunk: Chunk, level: str, count: int = 1) -> Lines:
        """Which lines a level of this passage has; never fewer than the passage itself."""
        leaf, own = self[chunk.document], chunk.lines
        if leaf is None or level == "passage":
            return own
        page = leaf.page
        if level == "neighbours":
            return page.trimmed(_around(own, *self._beside(chunk, count)))
        if level == "block":
            return page.block(own, chunk.kind)
        if level == "parent":
            found = self.reader.section(chunk.parent)
            return page.trimmed(_around(own, found[1].lines)) if found else own
        if level == "section":
            return page.trimmed(_around(own, _section(leaf, own)))
        return page.trimmed((1, len(page)))

    def _beside(self, chunk: Chunk, count: int) -> list[Lines]:
        if chunk.id != chunk.parent:
            found = self.reader.beside(chunk.document, chunk.ordinal, count)
            return [each.lines for each in found]
        # A parent stands between the passages before its first and those after its last.
        near = self.reader.beside(chunk.document, chunk.ordinal, count + MOST_IN_PARENT)
        within = [each.ordinal for each in near if each.parent == chunk.id]
        return [
            each.lines
            for each in near
            if within and within[0] - count <= each.ordinal <= within[-1] + count
        ]


def parent(chunk: Chunk, leaves: Leaves) -> Chunk:
    """The parent of this passage in its shape; the passage itself where there is none."""
    found, leaf = leaves.reader.section(chunk.parent), leaves[chunk.document]
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
        digest=digest(passage(chunk.title, section.headings, text)),
        merged=(),
    )


def levels(chunks: Iterable[Chunk], leaves: Leaves) -> dict[str, tuple[Level, ...]]:
    """By the ids of these passages or parents: each level with its size, the narrowest first.

    A level that adds nothing to the one before it is left out. What is shown of a passage may
    have been widened already: its levels are those that it has in the index.
    """
    shown = {chunk.id: chunk for chunk in chunks}
    known = {chunk.id: chunk for chunk in leaves.reader.chunks(list(shown))}
    return {
        id: _levels(known.get(id) or parent(chunk, leaves), leaves) for id, chunk in shown.items()
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
    if level in ("passage", _narrowest(chunk)):
        text = chunk.text
    return Extract(chunk.document, chunk.title, chunk.headings, lines, text, chunk.id)


def _levels(chunk: Chunk, leaves: Leaves) -> tuple[Level, ...]:
    leaf = leaves[chunk.document]
    found = [Level(_narrowest(chunk), chunk.lines, len(chunk.text))]
    if leaf is None:
        return tuple(found)
    page = leaf.page
    wider = {
        name: leaves.lines(chunk, name) for name in LEVELS if name not in ("passage", found[0].name)
    }
    for name, lines in sorted(wider.items(), key=lambda one: page.length(one[1])):
        if lines != found[-1].lines or (len(found) == 1 and _is_part(chunk, page)):
            found.append(Level(name, lines, page.length(lines)))
    return tuple(found)


def _narrowest(chunk: Chunk) -> str:
    return "parent" if chunk.id == chunk.parent else "passage"


def _is_part(chunk: Chunk, page: Page) -> bool:
    """Whether its lines hold more than the passage: those of a long line all stand on that one."""
    return page.between(*chunk.lines).strip() != chunk.text.strip()


def _section(leaf: Leaf, lines: Lines) -> Lines:
    """The smallest section that holds these lines: a deeper one comes after those around it.

    The section of a page's title is the page, a level of its own: what stands under the title alone
    reaches from one heading to the next.
    """
    outline = leaf.outline
    titled = bool(outline) and outline[0].lines[1] >= outline[-1].lines[1]
    for heading in reversed(outline[1:] if titled else outline):
        if heading.lines[0] <= lines[0] and lines[1] <= heading.lines[1]:
            return heading.lines
    starts = [heading.lines[0] for heading in outline]
    return (
        max((start for start in starts if start <= lines[0]), default=leaf.page.body),
        min((start - 1 for start in starts if start > lines[1]), default=len(leaf.page)),
    )


def _around(*parts: Lines) -> Lines:
    return min(first for first, _ in parts), max(last for _, last in parts)
