"""Moments as people write them: a year, a month, a day or a time, each with its beginning and end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from marklight.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_WRITTEN = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d+))?)?)?"
    r"\s?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)


def moment_bounds(text: str) -> tuple[datetime, datetime]:
    """When it begins, and when the first moment after it does, in UTC; ValueError for no such date.

    `2026` is all of that year, `2026-01-31T10:30` one minute; what names no zone is meant in UTC.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a date")
    given = found.groupdict()
    part = given.pop("part") or ""
    zone = given.pop("zone") or "Z"
    numbers = [int(each) for each in given.values() if each is not None]
    try:
        begin = datetime(*(*numbers, 1, 1)[: max(3, len(numbers))], tzinfo=UTC)  # type: ignore[misc,arg-type]
        begin += timedelta(microseconds=int(part[:6].ljust(6, "0"))) - _offset(zone)
    except (ValueError, OverflowError):
        raise ValueError(f"there is no such date as {text!r}") from None
    try:
        return begin, _after(begin, len(numbers), bool(part))
    except (ValueError, OverflowError):
        return begin, _LAST


def demand_moment(text: str) -> str:
    """The same text, if it is a date; else an error that says how to write one."""
    try:
        moment_bounds(text)
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"{error}", "Write it as 2026, 2026-01, 2026-01-31 or with a time"
        ) from None
    return text


def file_moment(mtime_ns: int) -> datetime:
    """A file's time, in UTC; one that no calendar holds is the nearest that it does."""
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


def _after(begin: datetime, precision: int, parts: bool) -> datetime:
    """The moment at which it is over, by how many of year, month, day and so on were named."""
    match precision:
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
    return begin + timedelta(microseconds=1) if parts else begin + timedelta(seconds=1)
