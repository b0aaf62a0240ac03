"""A document's text by its lines, and the code block or table that some of them are part of."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from marklight.model import Kind

Lines = tuple[int, int]
"""The first and the last, counted from 1."""

_FRONTMATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"`{3,}(?![^\n]*`)|~{3,}")
_BEFORE_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t>]+)*")
"""Quotes and items of lists, with the blanks between them."""
_BLANKS = re.compile(r"\s*")
_PREFIX = re.compile(r"[ \t>]*")


class DocumentLines:
    """A text whose lines are found once, however often it is asked for some of them.

    The last line break ends a line and does not begin another.
    """

    def __init__(self, text: str) -> None:
        self.text = text.removesuffix("\n")
        self._lines = self.text.split("\n")
        # Without line breaks, as this is by far the quickest way to count.
        self._before = [0, *accumulate(map(len, self._lines))]

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def body(self) -> int:
        """The first line after the frontmatter."""
        found = _FRONTMATTER.match(self.text)
        return self.line_at(found.end()) + 1 if found else 1

    def start(self, line: int) -> int:
        """Where a line begins; all after the last begin where the next would."""
        if line > len(self._before):
            line = len(self._before)
        return self._before[line - 1] + line - 1

    def line_at(self, offset: int) -> int:
        """The line that this character stands in."""
        return bisect_right(range(1, len(self) + 1), offset, key=self.start)

    def between(self, first: int, last: int) -> str:
        """These lines as they stand in the file, without the last line break."""
        return self.text[self.start(first) : self.start(last + 1) - 1]

    def length(self, lines: Lines) -> int:
        """How many characters they are."""
        return self.start(lines[1] + 1) - 1 - self.start(lines[0])

    def holds_only(self, lines: Lines, text: str) -> bool:
        """Whether these lines are this text and white space, told without copying them: one may be long."""
        begin = _BLANKS.match(self.text, self.start(lines[0]))
        end = self.start(lines[1] + 1) - 1
        text = text.strip()
        if not begin or not self.text.startswith(text, begin.end(), end):
            return False
        rest = _BLANKS.match(self.text, begin.end() + len(text), end)
        return rest is not None and rest.end() == end

    def trimmed(self, lines: Lines) -> Lines:
        """Without blank lines at either end, and none that the page does not have."""
        last = max(1, min(lines[1], len(self)))
        first = max(1, min(lines[0], last))
        begun, ended = bisect_left(self._filled, first), bisect_right(self._filled, last)
        if begun == ended:
            return last, last
        return self._filled[begun], self._filled[ended - 1]

    def block(self, lines: Lines, kind: Kind) -> Lines:
        """These lines with the whole of every code block, or of the table, that they are part of."""
        if kind is Kind.TABLE:
            return self._until(lines, self._outside_tables)
        if kind is not Kind.CODE:
            return lines
        first, last = lines
        begun = bisect_right(self.fenced, last, key=lambda each: each[0])
        before = bisect_left(self.fenced, first, key=lambda each: each[1])
        touched = self.fenced[before:begun]
        if touched:
            return min(first, touched[0][0]), max(last, touched[-1][1])
        # Code without a fence is indented.
        return self.trimmed(self._until(lines, self._unindented))

    @cached_property
    def fenced(self) -> Sequence[Lines]:
        """Code blocks from the top: a fence's meaning hangs on those before."""
        found: list[Lines] = []
        closed = self.body - 1
        for opening in sorted({*self._lines_with("```"), *self._lines_with("~~~")}):
            if opening <= closed:
                continue
            line = self._line(opening)
            before = _BEFORE_FENCE.match(line)
            fence = _FENCE.match(line, before.end()) if before else None
            if before and fence:
                closed = self._closing(opening, before[0].expandtabs(4), fence[0])
                found.append((opening, closed))
        return found

    def _closing(self, opening: int, before: str, fence: str) -> int:
        """The line of the fence that closes a block, else the last one of what the block stands in."""
        quotes, item = before.count(">"), before.rstrip(" >")
        # A fence may be indented by three; more means that it stands in a list.
        least = len(item) + 1 if item else max(0, len(before) - 3)
        for number in range(opening + 1, len(self) + 1):
            line = self._line(number)
            prefix = _PREFIX.match(line)
            assert prefix
            rest = line[prefix.end() :].rstrip()
            indent = prefix[0].expandtabs(4)
            if indent.count(">") < quotes or (rest and len(indent) < least):
                return number - 1
            if rest.startswith(fence) and not rest.strip(fence[0]):
                return number
        return len(self)

    def _until(self, lines: Lines, ends: Sequence[int]) -> Lines:
        """As many more lines on both sides as there are before one of these; none where that is reached."""
        first, last = lines
        above, below = bisect_right(ends, first), bisect_left(ends, last)
        if not above:
            first = 1
        elif ends[above - 1] < first:
            first = ends[above - 1] + 1
        if below == len(ends):
            last = max(last, len(self))
        elif ends[below] > last:
            last = ends[below] - 1
        return first, last

    @cached_property
    def _filled(self) -> Sequence[int]:
        return self._numbers(lambda line: bool(line) and not line.isspace())

    @cached_property
    def _outside_tables(self) -> Sequence[int]:
        return self._numbers(lambda line: "|" not in line)

    @cached_property
    def _unindented(self) -> Sequence[int]:
        return self._numbers(lambda line: bool(line.strip()) and line[0] not in " \t")

    def _numbers(self, like: Callable[[str], bool]) -> Sequence[int]:
        """Of all lines that are like this, found once: every passage of a long page asks for some."""
        return [number for number, line in enumerate(self._lines, 1) if like(line)]

    def _line(self, number: int) -> str:
        return self._lines[number - 1] if number <= len(self._lines) else ""

    def _lines_with(self, sign: str) -> Iterator[int]:
        # Looking for the sign itself: a pattern for lines that begin with it takes twenty times as long.
        at = self.text.find(sign)
        while at >= 0:
            line = self.line_at(at)
            yield line
            at = self.text.find(sign, self.start(line + 1))
