"""Metadata filters: frontmatter as key-value pairs, timestamps, path globs, as every engine compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from marklight.answer import Filters
from marklight.errors import UsageError
from marklight.model import Document, FileState, bounded_key, digest, normalize_key

MetadataPair = tuple[str, str]
"""Key and value in lower case."""

TAG = "#"
"""Key of the pairs of tags; no frontmatter key is a bare `#`."""

MAX_VALUE, VALUE_START = 400, 300
"""Characters of a value that is stored unchanged, and of the start of a longer one: an index of PostgreSQL has at most 2,704 bytes a row."""

FILES, AUTHOR = "files", "author"
"""Keys of the files that a commit changed and of a document's author."""


def metadata_pairs(document: Document) -> set[MetadataPair]:
    """Return keys and values in lower case: one pair per list item, nested keys as `outer.inner`."""
    pairs = set(_flatten("", document.metadata))
    for key, value in (
        ("author", document.author),
        ("category", document.category),
        ("title", document.title),
    ):
        if value:
            pairs.add((key, _plain(value)))
    for key, values in (
        ("keywords", document.keywords),
        ("tags", document.tags),
        ("aliases", document.aliases),
    ):
        pairs.update((key, _plain(value)) for value in values)
    for tag in document.tags:
        steps = _tag(tag).split("/")
        # One pair per level of a nested tag, so that a filter is one comparison.
        pairs.update((TAG, _bounded("/".join(steps[:depth]))) for depth in range(1, len(steps) + 1))
    return pairs


def _flatten(prefix: str, value: Any) -> Iterator[MetadataPair]:
    if isinstance(value, dict):
        for key, inner in value.items():
            name = str(key).strip().lower()
            yield from _flatten(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _flatten(prefix, inner)
    elif value is not None and prefix:
        yield bounded_key(prefix), _plain(value)


def _plain(value: Any) -> str:
    return _bounded(str(value).strip().lower())


def _bounded(value: str) -> str:
    """Return a value as it is stored and compared: the end of one that is too long is replaced by a digest."""
    if len(value) <= MAX_VALUE:
        return value
    return f"{value[:VALUE_START]} digest {digest(value)}"


def normalize_tag(tag: str) -> str:
    """Return a tag without `#` and in lower case, as it is stored."""
    return _bounded(_tag(tag))


def _tag(tag: str) -> str:
    return tag.strip().lstrip("#").strip("/").lower()


def normalize_language(language: str) -> str:
    """Return the language of a code block in lower case, as it is stored."""
    return bounded_key(language.lower())


def matching_languages(filters: Filters) -> list[str]:
    """Return all names, as they are stored, of the languages that a code block may have: `py` and `python3` for `python`."""
    from marklight.text.code_languages import language_names

    names = [name for language in filters.languages for name in language_names(language)]
    return [normalize_language(name) for name in dict.fromkeys(names)]


def required_pairs(filters: Filters) -> list[MetadataPair]:
    """Return the pairs of `where`, all of which a document must have."""
    return [(normalize_key(key), _plain(value)) for key, value in filters.where]


def file_and_author_filters(filters: Filters) -> tuple[list[str], list[str]]:
    """Return globs of changed files and substrings of authors, in lower case as pairs are."""
    return [each.lower() for each in filters.files], [each.lower() for each in filters.authors]


def timestamp(date: str | None, mtime_ns: int) -> str:
    """Return a document's own date, else its file time, as ISO 8601 in UTC with microseconds.

    All have the same length, so they sort as text. A less precise date counts from its beginning.
    """
    from marklight.dates import modification_time, parse_date_range

    if date is not None:
        try:
            return _text(parse_date_range(date)[0])
        except ValueError:  # not a date: the file time counts
            pass
    return _text(modification_time(mtime_ns))


def epoch_seconds(when: str) -> float:
    """Return a timestamp in seconds since the epoch."""
    return datetime.fromisoformat(when).timestamp()


def time_bounds(filters: Filters) -> tuple[str | None, str | None]:
    """Return the half-open range of timestamps that match; None where it is unbounded."""
    after, before = _bounds(filters.after), _bounds(filters.before)
    return after and after[0], before and before[1]


def _bounds(date: str | None) -> tuple[str, str] | None:
    if date is None:
        return None
    from marklight.dates import parse_date_range

    try:
        begin, end = parse_date_range(date)
    except ValueError as error:
        raise UsageError(str(error), "Write it as 2026-01-31, 2026-01 or 2026") from None
    return _text(begin), _text(end)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def in_bounds(when: str, bounds: tuple[str | None, str | None]) -> bool:
    """Return True if a timestamp is in such a range."""
    begin, end = bounds
    return (begin is None or when >= begin) and (end is None or when < end)


MIN_NS, MAX_NS = -(2**63), 2**63 - 1
"""Range of a signed 64-bit integer, the largest that SQLite stores."""


def clamp_times(file: FileState) -> FileState:
    """Clamp file times to 64 bits: one odd file must not stop a commit."""
    return FileState(
        file.size,
        min(max(file.mtime_ns, MIN_NS), MAX_NS),
        min(max(file.ctime_ns, MIN_NS), MAX_NS),
    )


def in_folders(collection: str, path: str, parts: Iterable[tuple[str, str]]) -> bool:
    """Return True if a document is in one of these folders of these collections."""
    return any(
        collection == owner and (not folder or path.startswith(f"{folder}/"))
        for owner, folder in parts
    )


def matches_any_glob(path: str, globs: Iterable[str]) -> bool:
    """Return True if one of these globs matches; a path also matches itself literally, `[` included."""
    from marklight.text.globs import matches_glob

    return any(path == glob or matches_glob(path, glob) for glob in globs)
