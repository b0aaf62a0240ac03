"""How far a passage can be widened in its document: which lines each level has, and how much that is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from marklight.answer import Level
from marklight.model import Chunk, Entry, Heading
from marklight.text.lines import DocumentLines, Lines

LEVELS = ("passage", "neighbours", "block", "parent", "section", "document")
MOST_IN_PARENT = 20
"""Passages of one parent: it has at most 2,000 characters, and few passages under 100."""

Parts = Callable[[str], Sequence[Lines]]
"""What a level is made of that the page does not tell: lines of the passages beside, of the parent."""


class Leaf:
    """A document by its lines and headings."""

    def __init__(self, page: DocumentLines, outline: Sequence[Heading]) -> None:
        self.page = page
        self._sections = [heading.lines for heading in outline]
        self._titled = bool(outline) and outline[0].lines[1] >= outline[-1].lines[1]
        self._around = _enclosing(self._sections)

    def section(self, lines: Lines) -> Lines:
        """The smallest section that holds these lines: a deeper one comes after those around it.

        The section of a page's title is the page, a level of its own: what stands under the title alone
        reaches from one heading to the next.
        """
        sections = self._sections
        above = bisect_right(sections, lines[0], key=lambda each: each[0])
        at: int | None = above - 1 if above else None
        while at is not None and sections[at][1] < lines[1]:
            at = self._around[at]
        if at is not None and not (at == 0 and self._titled):
            return sections[at]
        below = bisect_right(sections, lines[1], key=lambda each: each[0])
        return (
            sections[above - 1][0] if above else self.page.body,
            sections[below][0] - 1 if below < len(sections) else len(self.page),
        )


def _enclosing(sections: Sequence[Lines]) -> list[int | None]:
    """For each the last one before it that ends later, so that nobody has to walk over all between."""
    found: list[int | None] = []
    open: list[int] = []
    for at, (_, end) in enumerate(sections):
        while open and sections[open[-1]][1] <= end:
            open.pop()
        found.append(open[-1] if open else None)
        open.append(at)
    return found


def entry_levels(entry: Entry) -> Iterator[tuple[Level, ...]]:
    """Of every passage of a document, in order."""
    leaf = Leaf(DocumentLines(entry.document.text), entry.document.outline)
    # Of several with one id the first counts, as it does where a reader is asked.
    parents = {each.id: each.lines for each in reversed(entry.sections)}
    for at, chunk in enumerate(entry.chunks):
        reach = reach_of(chunk, 1)
        near = entry.chunks[max(0, at - reach) : at + reach + 1]
        parent = [parents[chunk.parent]] if chunk.parent in parents else []
        parts = {"neighbours": beside(chunk, near, 1), "parent": parent}
        yield levels_of(chunk, leaf, parts.__getitem__)


def levels_of(chunk: Chunk, leaf: Leaf, parts: Parts) -> tuple[Level, ...]:
    """Each with its size, the narrowest first; one that adds nothing to the one before it is left out."""
    page, own = leaf.page, narrowest(chunk)
    found = [Level(own, chunk.lines, len(chunk.text))]
    wider = {
        name: lines_of(chunk, name, leaf, parts) for name in LEVELS if name not in ("passage", own)
    }
    for name, lines in sorted(wider.items(), key=lambda one: page.length(one[1])):
        if lines != found[-1].lines or (len(found) == 1 and _is_part(chunk, page)):
            found.append(Level(name, lines, page.length(lines)))
    return tuple(found)


def lines_of(chunk: Chunk, level: str, leaf: Leaf, parts: Parts) -> Lines:
    """Which lines a level has; never fewer than the passage itself."""
    page, own = leaf.page, chunk.lines
    match level:
        case "passage":
            return own
        case "neighbours" | "parent":
            found = parts(level)
            return page.trimmed(_around(own, *found)) if found else own
        case "block":
            return page.block(own, chunk.kind)
        case "section":
            return page.trimmed(_around(own, leaf.section(own)))
        case _:
            return page.trimmed((1, len(page)))


def narrowest(chunk: Chunk) -> str:
    """A parent may stand in place of a passage, and begins where that would end."""
    return "parent" if chunk.id == chunk.parent else "passage"


def reach_of(chunk: Chunk, count: int) -> int:
    """How many passages before and after must be looked at for so many beside it."""
    return count if narrowest(chunk) == "passage" else count + MOST_IN_PARENT


def beside(chunk: Chunk, near: Sequence[Chunk], count: int) -> list[Lines]:
    """The lines of it and of so many passages on both sides, out of those near it."""
    first = last = chunk.ordinal
    if narrowest(chunk) == "parent":
        # It stands between the passages before its first and those after its last.
        within = [each.ordinal for each in near if each.parent == chunk.id]
        if not within:
            return []
        first, last = within[0], within[-1]
    return [each.lines for each in near if first - count <= each.ordinal <= last + count]


def _is_part(chunk: Chunk, page: DocumentLines) -> bool:
    """Whether its lines hold more than the passage: those of a long line all stand on that one."""
    return not page.holds_only(chunk.lines, chunk.text)


def _around(*parts: Lines) -> Lines:
    return min(first for first, _ in parts), max(last for _, last in parts)
