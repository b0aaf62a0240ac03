"""What filters ask about a document: its facts, its moment, its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from marklight.answer import Filters
from marklight.dates import file_moment, moment_bounds
from marklight.errors import UsageError
from marklight.model import Document, FileState
from marklight.text import matches_glob

Fact = tuple[str, str]
TAG = "#"
"""The key of a tag's fact; no frontmatter key is a bare `#`."""

FILES, AUTHOR = "files", "author"
"""Keys of what a commit changed and of who wrote a document."""


def facts(document: Document) -> set[Fact]:
    """Keys and values in lower case; a list counts for each member, a nested key is `outer.inner`."""
    found = set(_flatten("", document.metadata))
    for key, value in (
        ("author", document.author),
        ("category", document.category),
        ("title", document.title),
    ):
        if value:
            found.add((key, _plain(value)))
    for key, values in (
        ("keywords", document.keywords),
        ("tags", document.tags),
        ("aliases", document.aliases),
    ):
        found.update((key, _plain(value)) for value in values)
    for tag in document.tags:
        steps = tag_key(tag).split("/")
        # Written out for every level, so that asking for a tag is one comparison.
        found.update((TAG, "/".join(steps[:depth])) for depth in range(1, len(steps) + 1))
    return found


def _flatten(prefix: str, value: Any) -> Iterator[Fact]:
    if isinstance(value, dict):
        for key, inner in value.items():
            name = fact_key(str(key))
            yield from _flatten(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _flatten(prefix, inner)
    elif value is not None and prefix:
        yield prefix, _plain(value)


def _plain(value: Any) -> str:
    return str(value).strip().lower()


def tag_key(tag: str) -> str:
    """A tag as its fact names it: without the sign, in lower case."""
    return tag.strip().lstrip("#").strip("/").lower()


def fact_key(key: str) -> str:
    """A frontmatter key as its facts name it."""
    return key.strip().lower()


def asked(filters: Filters) -> list[Fact]:
    """The facts that must all hold, from `where`."""
    return [(fact_key(key), _plain(value)) for key, value in filters.where]


def parted(filters: Filters) -> tuple[list[str], list[str]]:
    """Globs of files and parts of authors, in lower case as facts are."""
    return [each.lower() for each in filters.files], [each.lower() for each in filters.authors]


def moment(date: str | None, mtime_ns: int) -> str:
    """When a document is from: its own date, else its file time; in UTC and of one length.

    So texts compare as the moments do. A date that is less precise counts from its beginning.
    """
    if date is not None:
        try:
            return _text(moment_bounds(date)[0])
        except ValueError:  # what is no date tells nothing
            pass
    return _text(file_moment(mtime_ns))


def seconds(when: str) -> float:
    """Such a moment in seconds since the epoch."""
    return datetime.fromisoformat(when).timestamp()


def time_bounds(filters: Filters) -> tuple[str | None, str | None]:
    """The first moment that passes, and the first one that no longer does."""
    after, before = _bounds(filters.after), _bounds(filters.before)
    return after and after[0], before and before[1]


def _bounds(date: str | None) -> tuple[str, str] | None:
    if date is None:
        return None
    try:
        begin, end = moment_bounds(date)
    except ValueError as error:
        raise UsageError(str(error), "Write it as 2026-01-31, 2026-01 or 2026") from None
    return _text(begin), _text(end)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def in_time(when: str, bounds: tuple[str | None, str | None]) -> bool:
    """Whether a moment lies within such bounds."""
    begin, end = bounds
    return (begin is None or when >= begin) and (end is None or when < end)


LEAST_NS, MOST_NS = -(2**63), 2**63 - 1


def storable(file: FileState) -> FileState:
    """The same with times that 64 bits hold: one odd file must not stop a commit."""
    return FileState(
        file.size,
        min(max(file.mtime_ns, LEAST_NS), MOST_NS),
        min(max(file.ctime_ns, LEAST_NS), MOST_NS),
    )


def within(collection: str, path: str, parts: Iterable[tuple[str, str]]) -> bool:
    """Whether a document stands in one of these folders of these collections."""
    return any(
        collection == owner and (not folder or path.startswith(f"{folder}/"))
        for owner, folder in parts
    )


def any_glob(path: str, globs: Iterable[str]) -> bool:
    """Whether one of these patterns means this path; a path also means itself, `[` and all."""
    return any(path == glob or matches_glob(path, glob) for glob in globs)
