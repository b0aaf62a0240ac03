"""Parse dates of any precision (year, month, day, time) into ranges in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

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


def parse_date_range(text: str) -> tuple[datetime, datetime]:
    """Return the start and the exclusive end of a date in UTC; raise ValueError if it is not a date.

    `2026` is that whole year, `2026-01-31T10:30` one minute; without a zone it is in UTC.
    """
    match = _DATE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"Not a date: {text!r}")
    groups = match.groupdict()
    part = groups.pop("part") or ""
    zone = groups.pop("zone") or "Z"
    numbers = [int(group) for group in groups.values() if group is not None]
    try:
        begin = datetime(*(*numbers, 1, 1)[: max(3, len(numbers))], tzinfo=UTC)  # type: ignore[misc,arg-type]
        begin += timedelta(microseconds=int(part[:6].ljust(6, "0"))) - _offset(zone)
    except (ValueError, OverflowError):
        raise ValueError(f"No such date: {text!r}") from None
    try:
        return begin, _end(begin, len(numbers), bool(part))
    except (ValueError, OverflowError):
        return begin, _LAST


def validate_date(text: str) -> str:
    """Return the text; raise UsageError if it is not a date."""
    try:
        parse_date_range(text)
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"{error}", "Write it as 2026, 2026-01, 2026-01-31 or with a time"
        ) from None
    return text


def modification_time(mtime_ns: int) -> datetime:
    """Convert a file's modification time to UTC, clamped to the range of datetime."""
    try:
        return _EPOCH + timedelta(microseconds=mtime_ns // 1000)
    except OverflowError:
        return _LAST if mtime_ns > 0 else _FIRST


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
