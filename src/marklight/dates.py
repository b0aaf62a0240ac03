"""Parse dates of any precision (year, month, day, time) into ranges in UTC, and the dates of filters, also in words."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from marklight.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_DATE = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d+))?)?)?"
    r"\s?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_date_range(text: str, *, local: bool = False) -> tuple[datetime, datetime]:
    """Return the start and the exclusive end of a date in UTC; raise ValueError if it is not a date.

    `2026` is that whole year, `2026-01-31T10:30` one minute. Without a zone it is in UTC, or with `local` in
    the time zone of this process.
    """
    match = _DATE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"Not a date: {text!r}")
    groups = match.groupdict()
    part = groups.pop("part") or ""
    zone = groups.pop("zone") or ""
    numbers = [int(group) for group in groups.values() if group is not None]
    try:
        begin = datetime(*(*numbers, 1, 1)[: max(3, len(numbers))], tzinfo=UTC)  # type: ignore[misc,arg-type]
        begin += timedelta(microseconds=int(part[:6].ljust(6, "0"))) - _offset(zone or "Z")
    except (ValueError, OverflowError):
        raise ValueError(f"No such date: {text!r}") from None
    try:
        end = _end(begin, len(numbers), bool(part))
    except (ValueError, OverflowError):
        end = _LAST
    return (_from_local(begin), _from_local(end)) if local and not zone else (begin, end)


def has_zone(text: str) -> bool:
    """Return true if a date is written with a time zone."""
    match = _DATE.fullmatch(text.strip())
    return match is not None and match["zone"] is not None


def validate_date(text: str, *, last: bool = False) -> str:
    """Return a date of a filter as ISO 8601; raise UsageError if it is none.

    Other notations and words are accepted: `2026/01/31`, `march 2026`, `yesterday`. Of a period such as `last week`
    the first day is returned, or with `last` the last one.
    """
    try:
        parse_date_range(text)
        return text
    except ValueError as error:
        if iso := _from_words(text, last):
            return iso
        raise UsageError(
            f"{error}", "Write it as 2026, 2026-01, 2026-01-31 or with a time"
        ) from None
    except AttributeError:
        raise UsageError(f"Not a date: {text!r}", "Write it as 2026-01-31") from None


def _from_words(text: str, last: bool) -> str | None:
    from marklight.text.dates import find_date_expressions, parse_written_date

    if iso := parse_written_date(text):
        return iso
    text = " ".join(text.replace("-", " ").split())
    for found in find_date_expressions(text, date.today()):
        if (found.start, found.end) == (0, len(text)):
            return (found.last if last else found.first).isoformat()
    return None


def modification_time(mtime_ns: int) -> datetime:
    """Convert a file's modification time to UTC, clamped to the range of datetime."""
    try:
        return _EPOCH + timedelta(microseconds=mtime_ns // 1000)
    except OverflowError:
        return _LAST if mtime_ns > 0 else _FIRST


def _from_local(moment: datetime) -> datetime:
    """Convert a moment whose clock shows the local time to UTC; the first and the last moment stay as they are."""
    try:
        return moment.replace(tzinfo=None).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return moment


def _offset(zone: str) -> timedelta:
    if zone in "Zz":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    return timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


def _end(begin: datetime, components: int, has_fraction: bool) -> datetime:
    """Return the exclusive end of a date with so many components: year, month, day, hour, minute, second."""
    match components:
        case 1:
            return begin.replace(year=begin.year + 1)
        case 2:
            return (begin + timedelta(days=31)).replace(day=1)
        case 3:
            return begin + timedelta(days=1)
        case 4:
            return begin + timedelta(hours=1)
        case 5:
            return begin + timedelta(minutes=1)
    return begin + timedelta(microseconds=1) if has_fraction else begin + timedelta(seconds=1)
