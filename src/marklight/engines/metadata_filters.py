"""Metadata filters: frontmatter as key-value pairs, timestamps, path globs, as every engine compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from marklight.errors import UsageError
from marklight.model import Document, FileState, bounded_key, digest, normalize_key
from marklight.query import Filters, PathPattern
from marklight.text.analyzer import fold
from marklight.text.markdown import find_tasks

MetadataPair = tuple[str, str]
"""Key and value in lower case."""

TAG = "#"
"""Key of the pairs of tags; no frontmatter key is a bare `#`."""

DATE = "@"
"""Key of the pairs of dates: all that the frontmatter, the path and the title of a document contain, as ISO 8601."""

MAX_VALUE, VALUE_START = 400, 300
"""Characters of a value that is stored unchanged, and of the start of a longer one: an index of PostgreSQL has at most 2,704 bytes a row."""

FILES, AUTHOR = "files", "author"
"""Keys of the files that a commit changed and of a document's author."""
TASK = "task"
"""Key of `open` and `done`, for documents with such items of task lists."""
LANGUAGE = "language"
"""Key of the language of a document: that of its frontmatter, else the one that was detected."""


def metadata_pairs(document: Document) -> set[MetadataPair]:
    """Return keys and values in lower case: one pair per list item, nested keys as `outer.inner`."""
    pairs = set(_flatten("", document.metadata))
    for key, value in (
        ("author", document.author),
        ("category", document.category),
        (LANGUAGE, document.language),
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
    for name in filter(None, (document.author, *_authors(document.metadata))):
        # The filter `author` ignores accents; an exact comparison does not.
        pairs.update([(AUTHOR, _plain(name)), (AUTHOR, _plain(fold(name)))])
    pairs.update((TASK, task.state) for task in find_tasks(document.text))
    pairs.update((DATE, date) for date in written_dates(document))
    for tag in document.tags:
        steps = _tag(tag).split("/")
        # One pair per level of a nested tag, so that a filter is one comparison.
        pairs.update((TAG, _bounded("/".join(steps[:depth]))) for depth in range(1, len(steps) + 1))
    return pairs


def _authors(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield each author of a list or of a text with commas; the whole text is a value of its own."""
    for key, value in metadata.items():
        if key.strip().lower() in ("author", "authors"):
            for item in value if isinstance(value, list | tuple) else [value]:
                name = item.get("name") if isinstance(item, dict) else item
                if isinstance(name, str):
                    yield from (part for part in (name, *name.split(",")) if part.strip())


def written_dates(document: Document) -> set[str]:
    """Return the days and months in the frontmatter, the path and the title of a document, and its own date."""
    from marklight.text.dates import find_dates, parse_written_date

    dates = {day.iso for text in (document.id.path, document.title) for day in find_dates(text)}
    for _, value in _flatten("", document.metadata):
        # Digits alone are a number as often as a date.
        if not value.isdecimal() and (date := parse_written_date(value)):
            dates.add(date[: len("2026-01-31")])
    if is_dated(document.date):
        dates.add(str(document.date)[: len("2026-01-31")])
    return dates


def is_dated(date: str | None) -> bool:
    """Return true for a document's own date, and not for a text that is none: the file time counts then."""
    return date is not None and "0" <= date[:1] <= "9"


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
    from marklight.text.markdown import language_names

    names = [name for language in filters.languages for name in language_names(language)]
    return [normalize_language(name) for name in dict.fromkeys(names)]


def required_pairs(filters: Filters) -> list[MetadataPair]:
    """Return the pairs of `where`, all of which a document must have."""
    return [(normalize_key(key), _plain(value)) for key, value in filters.where]


def timestamp(date: str | None, mtime_ns: int) -> str:
    """Return a document's own date, else its file time, as ISO 8601 in UTC with microseconds.

    All have the same length, so they sort as text. A less precise date counts from its beginning.
    """
    from marklight.text.dates import modification_time, parse_date_range

    if date is not None:
        try:
            return _text(parse_date_range(date)[0])
        except ValueError:  # not a date: the file time counts
            pass
    return _text(modification_time(mtime_ns))


class TimeBounds(NamedTuple):
    """Half-open ranges of times that match, None where they are unbounded."""

    instants: tuple[str | None, str | None]
    """Timestamps in UTC."""
    written: tuple[str | None, str | None] | None
    """Dates as documents write them; None if a bound has a time zone, so that only instants are compared."""


def time_bounds(filters: Filters) -> TimeBounds | None:
    """Return the times that match; None if all do.

    Days without a time zone are days of the user's time zone for file times, and days as written for dates in
    documents: a commit of 23:30 -05:00 is of the day that it is printed with.
    """
    if filters.after is None and filters.before is None:
        return None
    from marklight.text.dates import has_zone, parse_date_range

    given = [date for date in (filters.after, filters.before) if date is not None]
    try:
        as_written = {date: parse_date_range(date) for date in given}
    except ValueError as error:
        raise UsageError(str(error), "Write it as 2026-01-31, 2026-01 or 2026") from None
    local = {date: parse_date_range(date, local=True) for date in given}
    instants = (
        filters.after and _text(local[filters.after][0]),
        filters.before and _text(local[filters.before][1]),
    )
    if any(map(has_zone, given)):
        return TimeBounds(instants, None)
    return TimeBounds(
        instants,
        (
            filters.after and _shortest(as_written[filters.after][0]),
            filters.before and _shortest(as_written[filters.before][1]),
        ),
    )


def day_range(first: str, last: str) -> TimeBounds:
    """Return the times from one day to another, both included."""
    bounds = time_bounds(Filters(after=first, before=last))
    assert bounds is not None
    return bounds


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _shortest(moment: datetime) -> str:
    """Return a moment without the parts that are at their beginning: as text it is not after any date of that time.

    `2026-01-01` becomes `2026`, so that dates of any precision compare as text.
    """
    text = moment.replace(tzinfo=None).isoformat()
    for beginning in (":00", ":00", "T00", "-01", "-01"):
        if not text.endswith(beginning):
            break
        text = text.removesuffix(beginning)
    return text


MIN_NS, MAX_NS = -(2**63), 2**63 - 1
"""Range of a signed 64-bit integer, the largest that SQLite stores."""


def clamp_times(file: FileState) -> FileState:
    """Clamp file times to 64 bits: one odd file must not stop a commit."""
    return FileState(
        file.size, min(max(file.mtime_ns, MIN_NS), MAX_NS), min(max(file.ctime_ns, MIN_NS), MAX_NS)
    )


def globs_by_collection(patterns: Iterable[PathPattern]) -> dict[str | None, list[str]]:
    """Group patterns of paths by their collection; None for those that apply to all."""
    groups: dict[str | None, list[str]] = {}
    for pattern in patterns:
        owner, glob = (None, pattern) if isinstance(pattern, str) else pattern
        groups.setdefault(owner, []).append(glob)
    return groups


def matches_any_glob(path: str, globs: Iterable[str]) -> bool:
    """Return True if one of these globs matches; a path also matches itself literally, `[` included."""
    from marklight.text.globs import matches_glob

    return any(path == glob or matches_glob(path, glob) for glob in globs)
