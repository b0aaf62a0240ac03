"""Parse references to places in documents, and the patterns of path filters.

A place is what `formatting.place_text` prints: a document, with lines or a heading after it. `readings` is the only parser
of references; it knows their syntax and no documents, so it returns every reading, the most literal first: a file may be
called `C# notes.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from marklight.formatting import URI_ROOT, unescape
from marklight.query import CollectionGlob, PathPattern

MAX_FRAGMENTS = 10
"""Positions of `#` at which a reference is split: names and headings contain few."""

_LINES = re.compile(r"(?P<name>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.DOTALL)


class Reading(NamedTuple):
    """One way to read a reference: the name of a document, and lines or a heading in it."""

    name: str
    lines: tuple[int, int] | None = None
    fragment: str = ""
    """A heading, its anchor, or `^block`; empty for none."""
    exact: bool = False
    """True if the name is the exact name of a document, not a title or a path relative to some folder."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name with escaped characters as they are in the document's name, then as written."""
        return tuple(dict.fromkeys((self.name if self.exact else unescape(self.name), self.name)))


def readings(reference: str) -> Iterator[Reading]:
    """Yield the ways to read a reference: the whole as a name, then with lines or a heading at its end."""
    if reference.startswith(URI_ROOT):
        yield _parse_uri(reference.removeprefix(URI_ROOT))
        return
    yield Reading(reference)
    if match := _LINES.fullmatch(reference):
        yield Reading(match["name"], _line_range(match))
    offset = len(reference)
    for _ in range(MAX_FRAGMENTS):
        offset = reference.rfind("#", 0, offset)
        if offset <= 0:
            return
        yield Reading(reference[:offset], fragment=unescape(reference[offset + 1 :]))


def _parse_uri(address: str) -> Reading:
    """Parse a URI without its root; the characters `#` and `:` in names are percent-encoded."""
    name, _, fragment = address.partition("#")
    lines = None
    if match := _LINES.fullmatch(name):
        name, lines = match["name"], _line_range(match)
    return Reading(unquote(name), lines, unquote(fragment), exact=True)


def _line_range(match: re.Match[str]) -> tuple[int, int]:
    return int(match["first"]), int(match["last"] or match["first"])


class Target(NamedTuple):
    """A path, which may contain wildcards, in one collection, or in all of them if `collection` is None."""

    collection: str | None
    path: str

    def pattern(self, literal: bool) -> PathPattern:
        """Return the pattern for this path; a literal one matches nothing else."""
        glob = escape_glob(self.path) if literal else self.path
        if self.collection is not None:
            return CollectionGlob(self.collection, f"/{glob}")
        return glob


def targets(name: str, collections: Collection[str]) -> list[Target]:
    """Return what a name may mean: a path in the collection that it begins with, else in all.

    `collections` are the names that a path may begin with: those of the library, if it has several.
    """
    collection, _, rest = name.removeprefix("./").lstrip("/").partition("/")
    return [Target(collection, rest or "**") if collection in collections else Target(None, name)]


def path_patterns(
    value: str, targets_of: Callable[[str], Sequence[Target]], exists: Callable[[Target], bool]
) -> list[PathPattern]:
    """Return the patterns for a value of a path filter, which is a glob or a place; any of them may match.

    The first reading that means an existing document decides: its name may contain wildcards, `#` and `:`.
    """
    patterns: list[PathPattern] = []
    for reading in readings(value):
        is_whole = reading.name == value
        if not is_whole and not reading.exact and not _may_be_document(reading, value):
            continue
        for name in reading.names:
            meant = targets_of(name)
            if existing := list(filter(exists, meant)):
                return [
                    target.pattern(literal=not is_whole or has_wildcards(target.path))
                    for target in existing
                ]
            patterns += (target.pattern(literal=not is_whole) for target in meant)
    return list(dict.fromkeys(patterns))


def _may_be_document(reading: Reading, text: str) -> bool:
    """Return false for `C` of `C# notes.md`: the whole has a file extension, and the part before the sign has none."""
    has_extension = bool(PurePosixPath(reading.name).suffix)
    return reading.lines is not None or has_extension or not PurePosixPath(text).suffix


def has_wildcards(path: str) -> bool:
    """Return true if a path is a pattern, or would be taken for one."""
    return not _WILDCARDS.isdisjoint(path)


_WILDCARDS = frozenset("*?[")


def escape_glob(path: str) -> str:
    """Return a pattern that matches exactly this path."""
    escaped = re.sub(r"[*?\[]", r"[\g<0>]", path)
    # A pattern is stripped, a name is not.
    return re.sub(r"\s$", r"[\g<0>]", escaped)
