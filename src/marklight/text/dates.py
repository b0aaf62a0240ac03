"""Dates: notations in frontmatter, paths and titles, expressions such as `last week` in queries, and ranges in UTC for filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple

from marklight.errors import UsageError
from marklight.text.analyzer import data_lines, fold

MAX_DATE_CHARS = 60
"""A longer value is not a date: `Wednesday, 24 September 2025 at 10:30:00 pm +0200` has 50 characters."""
MAX_DATES = 20
"""Dates of one text that are returned."""

_YEAR = r"(?P<{0}>(?:19|20)\d\d)"
_MONTH = r"(?P<{0}>[^\W\d_]{{3,10}})\.?"
_DAY = r"(?P<{0}>\d\d?)(?:st|nd|rd|th|\.|º)?"
_OF = r"(?:of |de |d'|del )?"
_GAP = r"[\s_-]+"
_NOTATION = re.compile(
    r"(?<![^\W_])(?<!\d\.)(?:"
    # 2025-03-04, 2025/03/04, 2025_3_4, 2025.03.04 and 2025-03: the same separator twice
    rf"{_YEAR.format('y1')}(?P<s>[-/._])(?P<m1>\d\d?)(?:(?P=s)(?P<d1>\d\d?))?(?!\d)"
    # 20250304, alone or with a time after it
    rf"|{_YEAR.format('y2')}(?P<m2>\d\d)(?P<d2>\d\d)(?=(?:\d{{4}}(?:\d\d)?)?(?!\d))"
    # 4 March 2025, 4. März 2025, 4 de marzo de 2025
    rf"|{_DAY.format('d3')}{_GAP}{_OF}{_MONTH.format('m3')},?{_GAP}{_OF}{_YEAR.format('y3')}(?!\d)"
    # March 4, 2025 and March 2025
    rf"|{_MONTH.format('m4')}(?:{_GAP}{_DAY.format('d4')})?,?{_GAP}{_OF}{_YEAR.format('y4')}(?!\d)"
    # 2025 March 4, 2025-Mar-04
    rf"|{_YEAR.format('y5')}{_GAP}{_MONTH.format('m5')}(?:{_GAP}{_DAY.format('d5')})?(?![^\W_])"
    # 04.03.2025, and 25/03/2025 where only one order is possible
    rf"|(?P<d6>\d\d?)(?P<t>[./-])(?P<m6>\d\d?)(?P=t){_YEAR.format('y6')}(?!\d)"
    # 2025年3月4日, 2025년 3월 4일
    rf"|{_YEAR.format('y7')}\s?[年년]\s?(?P<m7>\d\d?)\s?[月월](?:\s?(?P<d7>\d\d?)\s?[日일])?"
    r")",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?:[T,\s]\s*(?:at\s+)?(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?P<part>[.,]\d{1,9})?)?"
    r"\s?(?P<half>[ap]m)?\s?(?P<zone>Z|UTC|GMT|[+-]\d\d:?(?:\d\d)?)?)?",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(r"[^\W\d_]{2,10}\.?,?\s+")
_YEAR_ALONE = re.compile(r"(?:19|20)\d\d")

_UNIT = r"day|week|month|quarter|year"
_RELATIVE = re.compile(
    r"(?<![\w-])(?:(?P<day>today|yesterday)|(?P<which>this|last|past|previous)\s+"
    rf"(?:(?P<count>\d{{1,3}})\s+(?P<units>{_UNIT})s?|(?P<unit>{_UNIT})|(?P<name>[^\W\d_]{{3,10}}))"
    rf"|(?P<ago>\d{{1,3}})\s+(?P<ago_unit>{_UNIT})s?\s+ago)(?![\w-])",
    re.IGNORECASE,
)
_PERIOD = re.compile(
    r"(?<![\w-])(?:q(?P<q1>[1-4])[\s-]?(?P<qy1>20\d\d)|(?P<qy2>20\d\d)[\s-]?q(?P<q2>[1-4])"
    r"|(?P<wy>20\d\d)-?w(?P<w>\d\d)|(?<![.:/#])(?P<year>(?:19[5-9]\d|20\d\d))(?![.:/]\w))(?![\w-])",
    re.IGNORECASE,
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class WrittenDate(NamedTuple):
    """A date in a text: where it is written, its first and its last day."""

    start: int
    end: int
    first: date
    last: date
    iso: str = ""
    """ISO 8601 in the precision that is written: 2025-03 or 2025-03-04; empty for other periods."""


def find_dates(text: str) -> Iterator[WrittenDate]:
    """Yield the days and months in a text, such as a title or a path; an impossible or ambiguous date is skipped."""
    offset, count = 0, 0
    while count < MAX_DATES and (match := _NOTATION.search(text, offset)):
        if written := _written(match):
            yield written
            count += 1
            offset = max(match.end(), offset + 1)
        else:
            offset = match.start() + 1


def parse_written_date(text: str) -> str | None:
    """Return a text that is a date, alone or with a time, as ISO 8601 in its own precision; None if it is none."""
    text = text.strip()
    if len(text) > MAX_DATE_CHARS:
        return None
    if _YEAR_ALONE.fullmatch(text):
        return text
    weekday = _WEEKDAY.match(text)
    for start in (0, weekday.end() if weekday else 0):
        match = _NOTATION.match(text, start)
        written = _written(match) if match else None
        time = _TIME.fullmatch(text, match.end()) if match and written else None
        if written and time and (iso := _with_time(written.iso, time)):
            return iso
    return None


def find_date_expressions(text: str, today: date) -> list[WrittenDate]:
    """Return the dates and periods in a query, in order: `march 2024`, `2024-03`, `2024`, `Q1 2024`, `last week`.

    Weeks begin on Monday. Where two readings overlap, the longer one counts.
    """
    expressions = [*find_dates(text), *_periods(text)]
    expressions += (
        WrittenDate(*match.span(), *days)
        for match in _RELATIVE.finditer(text)
        if (days := _relative_days(match, today))
    )
    chosen: list[WrittenDate] = []
    for expression in sorted(expressions, key=lambda one: (one.start - one.end, one.start)):
        if all(expression.end <= other.start or other.end <= expression.start for other in chosen):
            chosen.append(expression)
    return sorted(chosen)[:MAX_DATES]


def _written(match: re.Match[str]) -> WrittenDate | None:
    number = next(number for number in range(1, 8) if match[f"y{number}"])
    day_text = match[f"d{number}"]
    year, day = int(match[f"y{number}"]), int(day_text) if day_text else None
    month_text = match[f"m{number}"]
    month = int(month_text) if month_text.isdecimal() else _months().get(fold(month_text))
    if number == 6 and day is not None and month is not None and match["t"] != ".":
        if day <= 12 and month <= 12 and day != month:
            return None  # 03/04/2025 is in March or in April
        if month > 12:
            day, month = month, day
    if month is None:
        return None
    try:
        first = date(year, month, day or 1)
    except ValueError:
        return None
    iso = first.isoformat() if day else first.isoformat()[:7]
    return WrittenDate(*match.span(), first, first if day else _last_of_month(first), iso)


def _with_time(iso: str, time: re.Match[str]) -> str | None:
    """Return a date with a time of day; None if the time is impossible."""
    if not time["hour"]:
        return iso
    hour, half = int(time["hour"]), (time["half"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    if len(iso) < 10 or hour > 23 or int(time["minute"]) > 59 or int(time["second"] or 0) > 59:
        return None
    seconds = f":{time['second']}" if time["second"] else ""
    part = (time["part"] or "").replace(",", ".")[:7]
    return f"{iso}T{hour:02}:{time['minute']}{seconds}{part}{_zone(time['zone'] or '')}"


def _zone(zone: str) -> str:
    if zone.upper() in ("", "Z"):
        return zone.upper()
    if zone.upper() in ("UTC", "GMT"):
        return "Z"
    return f"{zone[:3]}:{zone[3:].lstrip(':') or '00'}"


def _periods(text: str) -> Iterator[WrittenDate]:
    """Yield years, quarters and ISO weeks."""
    for match in _PERIOD.finditer(text):
        if match["year"]:
            year = int(match["year"])
            yield WrittenDate(*match.span(), date(year, 1, 1), date(year, 12, 31))
        elif match["w"]:
            try:
                monday = date.fromisocalendar(int(match["wy"]), int(match["w"]), 1)
            except ValueError:
                continue
            yield WrittenDate(*match.span(), monday, monday + timedelta(days=6))
        else:
            year, quarter = int(match["qy1"] or match["qy2"]), int(match["q1"] or match["q2"])
            first = date(year, 3 * quarter - 2, 1)
            yield WrittenDate(*match.span(), first, _last_of_month(date(year, 3 * quarter, 1)))


def _relative_days(match: re.Match[str], today: date) -> tuple[date, date] | None:
    if match["day"]:
        day = today if match["day"].lower() == "today" else today - timedelta(days=1)
        return day, day
    if match["ago"]:
        count, unit = int(match["ago"]), match["ago_unit"].lower()
        return _period(_shifted(today, unit, -count), unit)
    this = match["which"].lower() == "this"
    if match["count"]:
        if this:
            return None
        return _shifted(today, match["units"].lower(), -int(match["count"])), today
    if match["unit"]:
        unit = match["unit"].lower()
        return _period(today if this else _shifted(today, unit, -1), unit)
    name = fold(match["name"])
    if name in _WEEKDAYS:
        back = (today.weekday() - _WEEKDAYS.index(name)) % 7
        day = today - timedelta(days=back if this else back or 7)
        return day, day
    if month := _months().get(name):
        year = today.year if this or month < today.month else today.year - 1
        return _period(date(year, month, 1), "month")
    return None


def _period(day: date, unit: str) -> tuple[date, date]:
    """Return the first and the last day of the calendar period that contains a day."""
    starts: dict[str, Callable[[], date]] = {
        "day": lambda: day,
        "week": lambda: day - timedelta(days=day.weekday()),
        "month": lambda: day.replace(day=1),
        "quarter": lambda: date(day.year, day.month - (day.month - 1) % 3, 1),
        "year": lambda: date(day.year, 1, 1),
    }
    first = starts[unit]()
    return first, _shifted(first, unit, 1) - timedelta(days=1)


def _shifted(day: date, unit: str, count: int) -> date:
    """Return the day some units later; the last day of a month stays within its month."""
    try:
        if unit in ("day", "week"):
            return day + timedelta(days=count * (7 if unit == "week" else 1))
        size = {"month": 1, "quarter": 3, "year": 12}[unit]
        months = 12 * day.year + day.month - 1 + count * size
        first = date(months // 12, months % 12 + 1, 1)
        return first.replace(day=min(day.day, _last_of_month(first).day))
    except (ValueError, OverflowError):
        return date.min if count < 0 else date.max


def _last_of_month(first: date) -> date:
    following = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    return following - timedelta(days=1)


@cache
def _months() -> dict[str, int]:
    """Return the numbers of the months by name, in the languages of `months.txt`."""
    lines = data_lines("months.txt")
    return {name: number for number, line in enumerate(lines, 1) for name in line.split()}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_DATE = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d+))?)?)?"
    r"\s?(?P<zone>Z|[+-]\d\d(?::?[0-5]\d)?)?)?)?)?",
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
        midnight = datetime.fromisoformat(f"1970-01-01T00:00{_zone(zone or 'Z')}")
        begin += timedelta(microseconds=int(part[:6].ljust(6, "0"))) + (midnight - _EPOCH)
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


def _from_words(text: str, last: bool) -> str | None:
    if iso := parse_written_date(text):
        return iso
    text = " ".join(text.replace("-", " ").split())
    for expression in find_date_expressions(text, date.today()):
        if (expression.start, expression.end) == (0, len(text)):
            return (expression.last if last else expression.first).isoformat()
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


def _end(begin: datetime, components: int, has_fraction: bool) -> datetime:
    """Return the exclusive end of a date with so many components: year, month, day, hour, minute, second."""
    if components == 1:
        return begin.replace(year=begin.year + 1)
    if components == 2:
        return (begin + timedelta(days=31)).replace(day=1)
    unit = (
        "microseconds" if has_fraction else ("days", "hours", "minutes", "seconds")[components - 3]
    )
    return begin + timedelta(**{unit: 1})
