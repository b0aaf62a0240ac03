"""Dates of any precision are parsed into ranges in UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.errors import UsageError
from marklight.text.dates import modification_time, parse_date_range, validate_date


@pytest.mark.parametrize(
    "text, begin, end",
    [
        ("2026", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("2026-01", "2026-01-01T00:00:00", "2026-02-01T00:00:00"),
        ("2026-12", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        ("2024-02", "2024-02-01T00:00:00", "2024-03-01T00:00:00"),
        (" 2024-02-29 ", "2024-02-29T00:00:00", "2024-03-01T00:00:00"),
        ("2026-01-31T10", "2026-01-31T10:00:00", "2026-01-31T11:00:00"),
        ("2026-01-31 10:30", "2026-01-31T10:30:00", "2026-01-31T10:31:00"),
        ("2026-01-31T10:30:59", "2026-01-31T10:30:59", "2026-01-31T10:31:00"),
        ("2026-01-31T10:30:59.5", "2026-01-31T10:30:59.500000", "2026-01-31T10:30:59.500001"),
        ("2026-01-31T10:30Z", "2026-01-31T10:30:00", "2026-01-31T10:31:00"),
        ("2026-01-31T23:30-08:00", "2026-02-01T07:30:00", "2026-02-01T07:31:00"),
        ("2026-01-31T00+0530", "2026-01-30T18:30:00", "2026-01-30T19:30:00"),
        ("2026-01-31T00:00:00+02", "2026-01-30T22:00:00", "2026-01-30T22:00:01"),
        ("2026-01-31 10:30:00 +0200", "2026-01-31T08:30:00", "2026-01-31T08:30:01"),
    ],
)
def test_a_date_covers_a_range_of_its_precision(text: str, begin: str, end: str) -> None:
    expected = tuple(datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (begin, end))
    assert parse_date_range(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "26", "2026-1-1", "2026-01-31x", "2026-01Z", "01/31/2026", "２０２６"),
        *("0000", "2026-13", "2026-02-30", "2025-02-29", "2026-01-01T25", "2026-01-01T10:60"),
        *("2026-01-01T10:00+99:00", "2026-01-01T10:00+01:60", "0001-01-01T00:00+01:00"),
    ],
)
def test_invalid_dates_raise_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="date"):
        parse_date_range(text)


def test_the_end_of_the_last_dates_is_the_maximum_of_datetime() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for text in ("9999", "9999-12", "9999-12-31", "9999-12-31T23:59:59"):
        assert parse_date_range(text)[1] == last


@given(st.datetimes(), st.timezones())
def test_iso_dates_are_parsed_as_python_does(moment: datetime, zone: object) -> None:
    try:
        written = moment.replace(tzinfo=zone).isoformat()  # type: ignore[arg-type]
        begin, end = parse_date_range(written)
    except ValueError:
        return  # outside of the calendar in UTC, or a historical zone with seconds
    assert begin == datetime.fromisoformat(written)
    assert timedelta(0) < end - begin <= timedelta(seconds=1)


@pytest.mark.parametrize("time_ns", [0, -(10**18), 2**63, 2**80, -(2**80)])
def test_every_modification_time_can_be_converted(time_ns: int) -> None:
    assert modification_time(time_ns).tzinfo is UTC


def test_modification_times_count_from_1970() -> None:
    assert modification_time(86_400_000_000_000) == datetime(1970, 1, 2, tzinfo=UTC)


def test_a_filter_takes_other_notations_and_words() -> None:
    assert validate_date("2026-01-31") == "2026-01-31"
    assert validate_date("2026/01/31") == "2026-01-31"
    assert validate_date("March 2026") == "2026-03"
    assert validate_date("Q1 2026") == "2026-01-01"
    assert validate_date("q1-2026", last=True) == "2026-03-31"
    yesterday = datetime.now().date() - timedelta(days=1)
    assert validate_date("yesterday") == yesterday.isoformat()
    for text in ("lunch", "yesterday morning", "2026-13", "03/04/2026"):
        with pytest.raises(UsageError, match="date"):
            validate_date(text)


def test_days_without_a_zone_are_local_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        begin, end = parse_date_range("2026-01-31", local=True)
        assert (begin.isoformat(), end - begin) == ("2026-01-31T05:00:00+00:00", timedelta(days=1))
        assert parse_date_range("2026-01-31T10Z", local=True) == parse_date_range("2026-01-31T10Z")
        assert parse_date_range("0001", local=True)[0].tzinfo is UTC
        assert parse_date_range("9999", local=True)[1].tzinfo is UTC
    finally:
        monkeypatch.undo()
        time.tzset()
