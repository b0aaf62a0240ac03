"""What every parser makes of a text: its blocks, headings, code and mentions, by line and offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from marklight.model import Document, Kind


class Style(StrEnum):
    """How a mention of another document is written; it decides what its target is relative to."""

    WIKI = "wiki"
    MARKDOWN = "markdown"
    RELATED = "related"


class Block(NamedTuple):
    """A unit of text from its first line to the start of the next block."""

    kind: Kind
    line: int
    """Counted from 0; every text between two blocks belongs to the first of them."""
    depth: int
    """0 begins a top-level unit; more continues the unit before, the more the deeper inside."""


class Title(NamedTuple):
    """A heading as it stands in the text: the lines `line` to `end`, the second not included."""

    level: int
    text: str
    anchor: str
    line: int
    end: int


class Code(NamedTuple):
    """A code block without fence and indentation; its first line is line `line` of the text."""

    line: int
    language: str
    lines: list[str]

    @property
    def end(self) -> int:
        """The line after its last."""
        return self.line + len(self.lines)


class Mention(NamedTuple):
    """Another document named in the text, not yet understood as a link."""

    style: Style
    target: str
    text: str
    line: int
    """Counted from 0."""
    heading: int
    """Index of the heading that it stands under, -1 above the first."""
    embeds: bool = False


@dataclass(frozen=True, slots=True)
class Structure:
    """A parsed text. Slices of the source are what is shown, so nothing here can swallow text."""

    blocks: list[Block] = field(default_factory=list)
    titles: list[Title] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    """Block ids (`^id`) and their lines, counted from 0."""
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document with the structure that the chunker cuts along."""

    document: Document
    structure: Structure
    starts: list[int]
    """Offset of each line, and of the end of the text."""
    body: int
    """The first line after the frontmatter, counted from 0."""
