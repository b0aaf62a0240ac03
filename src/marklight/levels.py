"""Compute the context levels of a passage in its document: neighbours, block, section and so on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from marklight.answer import Level
from marklight.model import Chunk, Entry, Heading
from marklight.text.lines import DocumentLines, Lines

if TYPE_CHECKING:
    from marklight.model import Unit

LEVELS = ("passage", "neighbours", "block", "parent", "section", "document")
MAX_PASSAGES_PER_PARENT = 20
"""A parent section has at most 2,000 characters, and few passages have under 100."""

Parts = Callable[[str], Sequence[Lines]]
"""Returns the lines of a level that the text alone does not define: neighbouring passages, the parent section."""


class OutlinedPage:
    """The text of a document with its outline."""

    def __init__(self, page: DocumentLines, outline: Sequence[Heading]) -> None:
        self.page = page
        self._sections = [heading.lines for heading in outline]
        self._has_title = bool(outline) and outline[0].lines[1] >= outline[-1].lines[1]
        self._enclosing = _enclosing_sections(self._sections)
        self._known_units: dict[Lines, tuple[Unit, ...]] = {}

    def own_lines(self, line: int) -> Lines:
        """Return the lines from the heading above a line to the next heading."""
        above = bisect_right(self._sections, line, key=lambda section: section[0])
        first = self._sections[above - 1][0] if above else self.page.body
        following = self._sections[above : above + 1]
        return min(first, line), following[0][0] - 1 if following else len(self.page)

    def depth(self, lines: Lines) -> int:
        """Return the number of sections that contain these lines."""
        return sum(first <= lines[0] and lines[1] <= last for first, last in self._sections)

    def around(self, lines: Lines) -> Iterator[Lines]:
        """Yield the sections around these lines, each larger than the one before, at last the whole text.

        A heading is left out if nothing else would come before the lines.
        """
        first, last = self.own_lines(lines[0])[0], self.own_lines(lines[1])[1]
        containing = (one for one in self._sections if one[0] <= lines[0] and lines[1] <= one[1])
        larger = sorted(containing, key=lambda one: one[1] - one[0])
        for section in ((first, last), *larger, (self.page.body, len(self.page))):
            first, last = self.page.trimmed(section)
            if first < lines[0] and not self.page.between(first + 1, lines[0] - 1).strip():
                first = lines[0]
            found = min(first, lines[0]), max(last, lines[1])
            if found != lines:
                yield found
                lines = found

    def onwards(self, line: int, last: int) -> Iterator[int]:
        """Yield the last lines of the paragraphs and units that follow a line, up to another line."""
        headings = {first for first, _ in self._sections}
        section_end, ends = 0, dict[int, int]()
        while line < last:
            start = self.page.trimmed((line + 1, last))[0]
            if start > section_end:
                section = self.own_lines(start)
                section_end = section[1]
                ends = {unit.lines[0]: unit.lines[1] for unit in self._units(section)}
            line = min(last, ends.get(start, start))
            while line < last and not (start in ends or line + 1 in ends or line + 1 in headings):
                if not self.page.line(line + 1).strip():
                    break
                line += 1
            if start not in headings:
                yield line

    def unit(self, line: int) -> Unit | None:
        """Return the list, table, procedure, definition list or code block that a line is part of."""
        for unit in self._units(self.own_lines(line)):
            if unit.lines[1] >= line:
                return unit if unit.lines[0] <= line else None
        return None

    def _units(self, section: Lines) -> tuple[Unit, ...]:
        """Return the units of a section, found once."""
        if section not in self._known_units:
            from marklight.text.units import units

            self._known_units[section] = tuple(units(self.page, section))
        return self._known_units[section]

    def section(self, lines: Lines) -> Lines:
        """Return the smallest section that contains these lines.

        The section of the document's title is the whole document, a level of its own: text directly under
        the title reaches from one heading to the next.
        """
        sections = self._sections
        above = bisect_right(sections, lines[0], key=lambda section: section[0])
        index: int | None = above - 1 if above else None
        while index is not None and sections[index][1] < lines[1]:
            index = self._enclosing[index]
        if index is not None and not (index == 0 and self._has_title):
            return sections[index]
        below = bisect_right(sections, lines[1], key=lambda section: section[0])
        return (
            sections[above - 1][0] if above else self.page.body,
            sections[below][0] - 1 if below < len(sections) else len(self.page),
        )


def _enclosing_sections(sections: Sequence[Lines]) -> list[int | None]:
    """Return for each section the index of the last one before it that ends later, in linear time."""
    enclosing: list[int | None] = []
    open: list[int] = []
    for index, (_, end) in enumerate(sections):
        while open and sections[open[-1]][1] <= end:
            open.pop()
        enclosing.append(open[-1] if open else None)
        open.append(index)
    return enclosing


def entry_levels(entry: Entry) -> Iterator[tuple[Level, ...]]:
    """Yield the context levels of every passage of a document, in order."""
    document = OutlinedPage(DocumentLines(entry.document.text), entry.document.outline)
    # Of several sections with one id the first counts, as in `Reader.section`.
    parents = {section.id: section.lines for section in reversed(entry.sections)}
    for index, chunk in enumerate(entry.chunks):
        reach = neighbour_reach(chunk, 1)
        near = entry.chunks[max(0, index - reach) : index + reach + 1]
        parent = [parents[chunk.parent]] if chunk.parent in parents else []
        parts = {"neighbours": neighbour_lines(chunk, near, 1), "parent": parent}
        yield context_levels(chunk, document, parts.__getitem__)


def encoded_levels(entry: Entry) -> Iterator[str]:
    """Yield the levels of every passage, each as its number in `LEVELS`, first and last line, and characters.

    Prose length and text key follow, so that ranking need not read the text.
    """
    for chunk, levels in zip(entry.chunks, entry_levels(entry), strict=True):
        parts = [
            f"{LEVELS.index(name)},{first},{last},{characters}"
            for name, (first, last), characters in levels
        ]
        yield " ".join([*parts, f"{chunk.prose_length};{chunk.text_key}"])


def context_levels(chunk: Chunk, document: OutlinedPage, parts: Parts) -> tuple[Level, ...]:
    """Return the levels with their sizes, smallest first; one that adds nothing is left out."""
    page, base = document.page, base_level(chunk)
    levels = [Level(base, chunk.lines, len(chunk.text))]
    larger = []
    for number, name in enumerate(LEVELS):
        if name not in ("passage", base):
            lines = level_lines(chunk, name, document, parts)
            larger.append((page.length(lines), number, lines))
    for characters, number, lines in sorted(larger):
        # Its lines may contain more than the passage, such as a long line that was split.
        is_first = len(levels) == 1
        if lines != levels[-1].lines or (
            is_first and not page.contains_only(chunk.lines, chunk.text)
        ):
            levels.append(Level(LEVELS[number], lines, characters))
    return tuple(levels)


def level_lines(chunk: Chunk, level: str, document: OutlinedPage, parts: Parts) -> Lines:
    """Return the lines of a level; at least those of the passage."""
    page, passage = document.page, chunk.lines
    match level:
        case "passage":
            return passage
        case "neighbours" | "parent":
            lines = parts(level)
            return page.trimmed(_span(passage, *lines)) if lines else passage
        case "block":
            return page.block(passage, chunk.kind)
        case "section":
            return page.trimmed(_span(passage, document.section(passage)))
        case _:
            return page.whole


def base_level(chunk: Chunk) -> str:
    """Return the smallest level: `parent` for a section that replaced its passages."""
    return "parent" if chunk.id == chunk.parent else "passage"


def neighbour_reach(chunk: Chunk, count: int) -> int:
    """Return how many passages on each side to read to find this number of neighbours."""
    return count if base_level(chunk) == "passage" else count + MAX_PASSAGES_PER_PARENT


def neighbour_lines(chunk: Chunk, near: Sequence[Chunk], count: int) -> list[Lines]:
    """Return the lines of a passage and its neighbours on both sides, out of the passages near it."""
    first = last = chunk.ordinal
    if base_level(chunk) == "parent":
        # The neighbours of a section come before its first passage and after its last.
        inside = [other.ordinal for other in near if other.parent == chunk.id]
        if not inside:
            return []
        first, last = inside[0], inside[-1]
    return [other.lines for other in near if first - count <= other.ordinal <= last + count]


def _span(passage: Lines, *parts: Lines) -> Lines:
    first, last = passage
    for part in parts:
        first, last = min(first, part[0]), max(last, part[1])
    return first, last
