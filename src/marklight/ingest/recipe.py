"""Parser selection and chunk sizes: the settings that decide how a file becomes passages, and their fingerprint.

A search computes the fingerprint to find documents that must be parsed or chunked again; parsers and the chunker
itself are imported only when there is something to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from marklight.errors import SettingsError
from marklight.lazy import dataclass
from marklight.model import digest
from marklight.settings import Within
from marklight.text.analyzer import title_key

if TYPE_CHECKING:
    from marklight.ingest.parse import Title

PARSERS = {
    "*.md": "markdown",
    "*.markdown": "markdown",
    "*.mdx": "markdown",
    "*.txt": "plain",
}
"""File name patterns and their parser; a parser is the module of that name in `ingest/parse`."""

OFF = ("", "none")
"""Values in place of a parser: files that match the pattern are not indexed."""

PARSER_VERSIONS = {"markdown": 8, "plain": 2}
"""All parsers. Raise the version when a parser's output changes: documents are then parsed again."""

CHUNKER_VERSION = "chunker 9"
"""Raise the number when the chunker's output changes: documents are then chunked again."""


def with_defaults(parsers: Mapping[str, str]) -> dict[str, str]:
    """Return these patterns, then the default ones that are not among them; the first match decides."""
    defaults = {pattern: name for pattern, name in PARSERS.items() if pattern not in parsers}
    return {**parsers, **defaults}


def parser_for(path: str, parsers: Mapping[str, str] = PARSERS) -> str | None:
    """Return the parser for a path: that of the first pattern that matches its name or its whole path."""
    for pattern, parser in parsers.items():
        if matches_pattern(path, pattern):
            return parser if parser not in OFF else None
    return None


def matches_pattern(path: str, pattern: str) -> bool:
    """Return true if a parser pattern matches a path, ignoring case."""
    folded, whole = pattern.lower(), path.lower()
    return fnmatchcase(whole.rpartition("/")[2], folded) or fnmatchcase(whole, folded)


def require_parser(name: str) -> None:
    """Raise SettingsError if there is no parser of this name."""
    if name not in PARSER_VERSIONS:
        names = ", ".join(PARSER_VERSIONS)
        raise SettingsError(f"Unknown parser: {name!r}", f"Known parsers: {names}")


def parsers_fingerprint(parsers: Mapping[str, str] = PARSERS) -> str:
    """Return a digest that changes whenever a document would be parsed differently."""
    used = []
    for pattern, name in parsers.items():
        if name not in OFF:
            require_parser(name)
        used.append(f"{pattern}={name} {PARSER_VERSIONS.get(name, '')}".rstrip())
    return digest("frontmatter 2", "language 2", *used, size=8)


@dataclass(frozen=True, slots=True)
class Chunker:
    """Sizes by which documents are split into passages, and detection of boilerplate."""

    min_chars: int = 200
    """Sections shorter than this are merged with their neighbours under the same heading."""
    max_chars: int = 1500
    """Maximum length of a passage; longer sections are split, between paragraphs where possible."""
    boilerplate: Annotated[int, Within(0)] = 10
    """Number of documents of a collection that share a paragraph, list item, heading or code block from which on it is boilerplate, which only a quoted phrase finds; 0 switches that off. Copies of one document, with the same file name and title, count once."""
    skip_headings: tuple[str, ...] = ()
    """Headings of sections that are not indexed, such as `["Edit this page"]`; upper and lower case are the same."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_chars <= self.max_chars or self.max_chars < 1:
            raise SettingsError(
                f"Invalid chunk sizes: min_chars {self.min_chars}, max_chars {self.max_chars}",
                "Choose min_chars ≤ max_chars",
            )

    @property
    def overlap_chars(self) -> int:
        """Return the number of characters that a passage repeats from the end of the one before it in the same section."""
        return min(100, self.max_chars // 4)

    @property
    def parent_chars(self) -> int:
        """Return the maximum length of the larger passages that `--parents` returns."""
        return max(2000, self.max_chars)

    def skips(self, title: Title | None) -> bool:
        """Return true if the section with this heading is not indexed."""
        if not self.skip_headings or title is None:
            return False
        return title_key(title.text) in {title_key(heading) for heading in self.skip_headings}

    @property
    def fingerprint(self) -> str:
        """Return a digest that changes whenever a document would be chunked differently."""
        sizes = (self.min_chars, self.max_chars, self.overlap_chars, self.parent_chars)
        skipped = sorted({title_key(heading) for heading in self.skip_headings})
        return digest(CHUNKER_VERSION, *map(str, (*sizes, self.boilerplate)), *skipped, size=8)


def recipe(parsers: Mapping[str, str], chunker: Chunker) -> str:
    """Return a digest that changes whenever a document would be parsed or chunked differently.

    The embedding model has no part in it: a passage over its token limit is embedded in parts.
    """
    return digest(parsers_fingerprint(parsers), chunker.fingerprint, size=8)
