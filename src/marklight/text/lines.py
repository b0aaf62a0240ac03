"""Lines and sentences: line index of a document, the code block or table around a range, and a sentence splitter."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, count, pairwise
from operator import add

from marklight.lazy import lazy_pattern
from marklight.model import Kind

Lines = tuple[int, int]
"""First and last line, counted from 1, both inclusive."""

_SENTENCE = r"[.!?…][\"'”’)\]]*\s+|[。！？]"
_SENTENCE_OR_LINE = lazy_pattern(rf"{_SENTENCE}|\n")
_SENTENCE_OR_PARAGRAPH = lazy_pattern(rf"{_SENTENCE}|\n\s*\n")
_FRONTMATTER = lazy_pattern(r"\A(---|\+\+\+)[ \t]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_FENCE = lazy_pattern(r"`{3,}(?![^\n]*`)|~{3,}")
_BEFORE_FENCE = lazy_pattern(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t>]+)*")
"""Block quotes and list items, with the white space between them."""
_TAB = 4
"""Columns of a tab in Markdown (CommonMark)."""
_MAX_FENCE_INDENT = 3
"""Spaces by which a fence may be indented outside of a list (CommonMark)."""
_BLANKS = lazy_pattern(r"\s*")
_PREFIX = lazy_pattern(r"[ \t>]*")
DELIMITER_ROW = lazy_pattern(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
"""The row below the header of a table."""


class DocumentLines:
    """A text with the offsets of its lines, computed once; a final line break does not begin another line."""

    def __init__(self, text: str) -> None:
        self.text = text.removesuffix("\n")
        self._lines = self.text.split("\n")
        self._starts: list[int] = [*map(add, accumulate(map(len, self._lines), initial=0), count())]

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def body(self) -> int:
        """Return the first line after the frontmatter."""
        match = _FRONTMATTER.match(self.text)
        return self.line_at(match.end()) + 1 if match else 1

    def start(self, line: int) -> int:
        """Return the offset of a line; for lines after the last, the offset after the text."""
        return self._starts[min(line, len(self._starts)) - 1]

    def line_at(self, offset: int) -> int:
        """Return the line that contains the character at this offset."""
        return bisect_right(self._starts, offset, 0, len(self))

    def line(self, number: int) -> str:
        """Return a line; empty after the last one."""
        return self._lines[number - 1] if number <= len(self._lines) else ""

    def between(self, first: int, last: int) -> str:
        """Return the text of these lines, without the last line break."""
        return self.text[self.start(first) : self.start(last + 1) - 1]

    def below_header(self, lines: Lines, text: str) -> str:
        """Return a text that begins with these lines below the header of the table in whose rows it begins, if it does."""
        first = lines[0]
        if "|" not in self._lines[first - 1]:
            return text
        top, _ = self._extend_to((first, first), self._outside_tables)
        rows = (number for number in range(top + 2, first + 1) if self._is_below_header(number))
        row = next(rows, None)
        return f"{self.between(row - 2, row - 1)}\n{text}" if row else text

    def _is_below_header(self, line: int) -> bool:
        return bool(DELIMITER_ROW.fullmatch(self._lines[line - 2]))

    def length(self, lines: Lines) -> int:
        """Return the number of characters of these lines."""
        starts, (first, last), count = self._starts, lines, len(self._lines)
        return starts[min(last, count)] - 1 - starts[min(first - 1, count)]

    @cached_property
    def whole(self) -> Lines:
        """Return all lines, without blank ones at both ends."""
        return self.trimmed((1, len(self)))

    def contains_only(self, lines: Lines, text: str) -> bool:
        """Return true if these lines are only this text and white space; they are not copied, as a line may be long."""
        leading = _BLANKS.match(self.text, self.start(lines[0]))
        end = self.start(lines[1] + 1) - 1
        text = text.strip()
        if not leading or not self.text.startswith(text, leading.end(), end):
            return False
        trailing = _BLANKS.match(self.text, leading.end() + len(text), end)
        return trailing is not None and trailing.end() == end

    def trimmed(self, lines: Lines) -> Lines:
        """Return the range without blank lines at both ends and clamped to the text."""
        last = max(1, min(lines[1], len(self)))
        first = max(1, min(lines[0], last))
        start, end = bisect_left(self._non_blank, first), bisect_right(self._non_blank, last)
        if start == end:
            return last, last
        return self._non_blank[start], self._non_blank[end - 1]

    def block(self, lines: Lines, kind: Kind) -> Lines:
        """Extend these lines to whole code blocks, or to the whole table, that they are part of."""
        if kind is Kind.TABLE:
            return self._extend_to(lines, self._outside_tables)
        if kind is not Kind.CODE:
            return lines
        first, last = lines
        begun = bisect_right(self.fenced, last, key=lambda block: block[0])
        before = bisect_left(self.fenced, first, key=lambda block: block[1])
        touched = self.fenced[before:begun]
        if touched:
            return min(first, touched[0][0]), max(last, touched[-1][1])
        # Code without a fence is indented.
        return self.trimmed(self._extend_to(lines, self._unindented))

    @cached_property
    def fenced(self) -> Sequence[Lines]:
        """Return the fenced code blocks, scanned from the top as a fence opens or closes depending on those before."""
        blocks: list[Lines] = []
        closed = self.body - 1
        for opening in sorted({*self._lines_with("```"), *self._lines_with("~~~")}):
            if opening <= closed:
                continue
            line = self._lines[opening - 1]
            before = _BEFORE_FENCE.match(line)
            fence = _FENCE.match(line, before.end()) if before else None
            if before and fence:
                closed = self._closing(opening, before[0].expandtabs(_TAB), fence[0])
                blocks.append((opening, closed))
        return blocks

    def _closing(self, opening: int, before: str, fence: str) -> int:
        """Return the line of the closing fence, else the last line of the list item or quote around the block."""
        quotes, item = before.count(">"), before.rstrip(" >")
        # A deeper fence is inside a list item.
        min_indent = len(item) + 1 if item else max(0, len(before) - _MAX_FENCE_INDENT)
        for number in range(opening + 1, len(self) + 1):
            line = self._lines[number - 1]
            prefix = _PREFIX.match(line)
            assert prefix
            rest = line[prefix.end() :].rstrip()
            indent = prefix[0].expandtabs(_TAB)
            if indent.count(">") < quotes or (rest and len(indent) < min_indent):
                return number - 1
            if rest.startswith(fence) and not rest.strip(fence[0]):
                return number
        return len(self)

    def _extend_to(self, lines: Lines, ends: Sequence[int]) -> Lines:
        """Extend a range on both sides up to the nearest of these lines, exclusive."""
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
    def _non_blank(self) -> Sequence[int]:
        return [number for number, line in enumerate(self._lines, 1) if line and not line.isspace()]

    @cached_property
    def _outside_tables(self) -> Sequence[int]:
        return self._numbers(lambda line: "|" not in line)

    @cached_property
    def _unindented(self) -> Sequence[int]:
        return self._numbers(lambda line: bool(line.strip()) and line[0] not in " \t")

    def _numbers(self, matches: Callable[[str], bool]) -> Sequence[int]:
        """Return the numbers of all lines that match; cached, as every passage of a long document needs some."""
        return [number for number, line in enumerate(self._lines, 1) if matches(line)]

    def _lines_with(self, characters: str) -> Iterator[int]:
        # A regular expression for lines that begin with them takes twenty times as long.
        offset = self.text.find(characters)
        while offset >= 0:
            line = self.line_at(offset)
            yield line
            offset = self.text.find(characters, self.start(line + 1))


def sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Return the offsets at which sentences end, after the white space that follows; a line break ends one too."""
    return [match.end() for match in _SENTENCE_OR_LINE.finditer(text, start, end)]


def split_sentences(text: str) -> list[str]:
    """Split a text into its sentences and lines, without those that are blank."""
    ends = [0, *sentence_ends(text, 0, len(text)), len(text)]
    parts = (text[first:last] for first, last in pairwise(ends))
    return [part for part in parts if part.strip()]


def truncate_at_sentence(text: str, max_chars: int) -> str:
    """Cut a text after its last sentence or paragraph that fits, else after a word, and append an ellipsis."""
    # With the character after the limit: it may be the white space that ends the last sentence.
    matches = _SENTENCE_OR_PARAGRAPH.finditer(text[: max_chars + 1])
    ends = [match.start() + len(match[0].rstrip()) for match in matches]
    end = max((end for end in ends if end <= max_chars), default=0)
    end = end or text.rfind(" ", 0, max_chars + 1)
    return text[: end if end > 0 else max_chars].rstrip() + " …"
