"""What a written moment means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.dates import file_moment, moment_bounds


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
def test_a_moment_is_as_long_as_it_is_precise(text: str, begin: str, end: str) -> None:
    expected = tuple(datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (begin, end))
    assert moment_bounds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "26", "2026-1-1", "2026-01-31x", "2026-01Z", "01/31/2026", "２０２６"),
        *("0000", "2026-13", "2026-02-30", "2025-02-29", "2026-01-01T25", "2026-01-01T10:60"),
        *("2026-01-01T10:00+99:00", "2026-01-01T10:00+01:60", "0001-01-01T00:00+01:00"),
    ],
)
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="date"):
        moment_bounds(text)


def test_the_last_moments_that_there_are_end_with_time_itself() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for text in ("9999", "9999-12", "9999-12-31", "9999-12-31T23:59:59"):
        assert moment_bounds(text)[1] == last


@given(st.datetimes(), st.timezones())
def test_python_reads_a_moment_the_same_way(moment: datetime, zone: object) -> None:
    try:
        written = moment.replace(tzinfo=zone).isoformat()  # type: ignore[arg-type]
        begin, end = moment_bounds(written)
    except ValueError:
        return  # beyond the calendar in UTC, or a zone of long ago that has seconds
    assert begin == datetime.fromisoformat(written)
    assert timedelta(0) < end - begin <= timedelta(seconds=1)


@pytest.mark.parametrize("time_ns", [0, -(10**18), 2**63, 2**80, -(2**80)])
def test_every_file_time_is_a_moment(time_ns: int) -> None:
    assert file_moment(time_ns).tzinfo is UTC


def test_a_file_time_is_counted_from_1970() -> None:
    assert file_moment(86_400_000_000_000) == datetime(1970, 1, 2, tzinfo=UTC)
