"""Parsed texts (blocks, headings, code, mentions), and the parsers by name: one module a format."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import field
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from marklight.ingest.recipe import require_parser
from marklight.lazy import dataclass
from marklight.model import Kind
from marklight.text.markdown import table_padding

if TYPE_CHECKING:
    from marklight.ingest.boilerplate import TextBlock


class Style(StrEnum):
    """The syntax of a mention; it decides what the target is relative to."""

    WIKI = "wiki"
    MARKDOWN = "markdown"
    RELATED = "related"


class Block(NamedTuple):
    """A unit of text from its first line to the start of the next block."""

    kind: Kind
    line: int
    """Counted from 0; text between two blocks belongs to the first of them."""
    depth: int
    """0 starts a top-level unit; a nested block (list item, quote) has its nesting depth."""


class Title(NamedTuple):
    """A heading in the text: lines `line` to `end`, `end` excluded."""

    level: int
    text: str
    anchor: str
    line: int
    end: int


class Table(NamedTuple):
    """A table: lines `line` to `end`, `end` excluded; its first two are the header row and the delimiter row."""

    line: int
    end: int


class Code(NamedTuple):
    """A code block without fence and indentation; its first line is line `line` of the text."""

    line: int
    language: str
    lines: list[str]

    @property
    def end(self) -> int:
        """Return the line after the last one."""
        return self.line + len(self.lines)


class Mention(NamedTuple):
    """A reference to another document, not yet resolved to a link."""

    style: Style
    target: str
    text: str
    line: int
    """Counted from 0."""
    heading: int
    """Index of the heading above it, -1 before the first heading."""
    embeds: bool = False


@dataclass
class ParsedText:
    """A text with the structure that a parser found. Passages are slices of it, so a parser cannot lose any of it."""

    text: str
    """Blanks are in place of comments, which are not indexed; offsets are the same."""
    body: int = 0
    """The first line after the frontmatter, counted from 0."""
    comments: tuple[tuple[int, int], ...] = ()
    """Spans of comments, with the white space that would be left of their lines."""
    collection: str = ""
    """The collection whose documents may share blocks of text with it."""
    blocks: list[Block] = field(default_factory=list)
    titles: list[Title] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    """Block ids (`^id`) and their lines, counted from 0."""
    remarks: list[str] = field(default_factory=list)

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines of the text."""
        return self.text.split("\n")

    @cached_property
    def starts(self) -> list[int]:
        """Return the offset of each line, and of the end of the text."""
        starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        starts[-1] = len(self.text)
        return starts

    @cached_property
    def block_starts(self) -> list[int]:
        """Return the offset of each block; for use once all are known."""
        starts = self.starts
        return [starts[block.line] for block in self.blocks]

    @cached_property
    def padding(self) -> list[tuple[int, int]]:
        """Return the spans of white space and dashes that only align the source of tables, in order."""
        offsets = map(self._offsets, self.tables)
        return sorted(chain.from_iterable(table_padding(self.text, *table) for table in offsets))

    @cached_property
    def _padding_before(self) -> list[int]:
        """Return for each span of padding the number of characters of padding up to its end."""
        return [*accumulate(end - start for start, end in self.padding)]

    def size(self, start: int, end: int) -> int:
        """Return the number of characters of a span without the padding of tables."""
        return end - start - (self._padding(end) - self._padding(start) if self.padding else 0)

    def _padding(self, offset: int) -> int:
        """Return the number of characters of padding before an offset."""
        index = bisect_left(self.padding, (offset,)) - 1
        if index < 0:
            return 0
        return self._padding_before[index] - max(0, self.padding[index][1] - offset)

    def table_header(self, offset: int) -> tuple[int, int] | None:
        """Return the span of the header and delimiter rows of the table in whose rows an offset is; None outside of them."""
        if not self.tables:
            return None
        index = bisect_right(self._table_starts, offset) - 1
        if index < 0:
            return None
        start, rows, end = self._offsets(self.tables[index])
        return (start, rows) if rows <= offset < end else None

    @cached_property
    def header_breaks(self) -> frozenset[int]:
        """Return the offsets of the two line breaks below which the header of a table is not cut off its first row."""
        lines = (line for table in self.tables for line in (table.line + 1, table.line + 2))
        return frozenset(self.starts[line] for line in lines if line < len(self.starts))

    @cached_property
    def _table_starts(self) -> list[int]:
        return [self.starts[table.line] for table in self.tables]

    def _offsets(self, table: Table) -> tuple[int, int, int]:
        """Return the offsets at which a table, its rows below the header, and the text below it begin."""
        starts, line = self.starts, table.line
        return starts[line], starts[min(line + 2, table.end)], starts[table.end]

    @property
    def body_start(self) -> int:
        """Return the offset of the first line after the frontmatter."""
        return self.starts[min(self.body, len(self.starts) - 1)]

    @cached_property
    def text_blocks(self) -> list[TextBlock]:
        """Return the blocks of text with their digests, by which boilerplate is found."""
        from marklight.ingest.boilerplate import text_blocks

        return text_blocks(self.text, self.body_start, self.collection)


class Parser(Protocol):
    """The interface of a parser module."""

    def parse(self, parsed: ParsedText) -> None:
        """Add the structure of the lines from `body` on."""


@lru_cache
def parser(name: str) -> Parser:
    """Return the parser of this name; its module is imported at the first use."""
    require_parser(name)
    return cast(Parser, import_module(f"{__name__}.{name}"))
