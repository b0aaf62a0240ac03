"""Dates are read as people write them, and nothing else is."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text.dates import find_date_expressions, find_dates, parse_written_date

TODAY = date(2026, 11, 17)  # a Tuesday


@pytest.mark.parametrize(
    "text, iso",
    [
        ("2025/03/04", "2025-03-04"),
        ("2025.3.4", "2025-03-04"),
        ("20250304", "2025-03-04"),
        ("2025-03", "2025-03"),
        ("2025", "2025"),
        ("March 4, 2025", "2025-03-04"),
        ("Mar. 4th 2025", "2025-03-04"),
        ("4 March 2025", "2025-03-04"),
        ("4. März 2025", "2025-03-04"),
        ("4 de marzo de 2025", "2025-03-04"),
        ("1er août 2025", None),
        ("4 марта 2025", "2025-03-04"),
        ("2025年3月4日", "2025-03-04"),
        ("2025년 3월", "2025-03"),
        ("04.03.2025", "2025-03-04"),
        ("25/03/2025", "2025-03-25"),
        ("03/25/2025", "2025-03-25"),
        ("05/05/2025", "2025-05-05"),
        ("03/04/2025", None),
        ("Tue, 4 Mar 2025 10:00:00 +0000", "2025-03-04T10:00:00+00:00"),
        ("2025-03-04 10:00:00 +0100", "2025-03-04T10:00:00+01:00"),
        ("2025-03-04T10:00Z", "2025-03-04T10:00Z"),
        ("March 4, 2025 at 3:05 pm", "2025-03-04T15:05"),
        ("March 4, 2025, 12:00 AM UTC", "2025-03-04T00:00Z"),
        ("2025-02-29", None),
        ("2025-03-99", None),
        ("2025-03-04T25:00", None),
        ("Marching 4, 2025", None),
        ("soon", None),
        ("", None),
        ("2025-03-04 " * 1000, None),
    ],
)
def test_a_date_in_any_common_notation_is_read(text: str, iso: str | None) -> None:
    assert parse_written_date(text) == iso


@pytest.mark.parametrize(
    "text, dates",
    [
        ("daily/2024-03-12.md", ["2024-03-12"]),
        ("2024/03/12/standup.md", ["2024-03-12"]),
        ("journal/2024/03/notes.md", ["2024-03"]),
        ("202403121530 zettel.md", ["2024-03-12"]),
        ("meeting_2024_03_12.md", ["2024-03-12"]),
        ("Retrospective March 2024", ["2024-03"]),
        ("12 March 2024 and 2024-04", ["2024-03-12", "2024-04"]),
        ("v1.2024.3x Fiscal 2024, RFC 2119", []),
        ("a long number 120240312", []),
    ],
)
def test_dates_in_paths_and_titles_are_found(text: str, dates: list[str]) -> None:
    assert [found.iso for found in find_dates(text)] == dates


@pytest.mark.parametrize(
    "text, written, first, last",
    [
        ("standup march 2024", "march 2024", "2024-03-01", "2024-03-31"),
        ("2024-02", "2024-02", "2024-02-01", "2024-02-29"),
        ("budget 2024", "2024", "2024-01-01", "2024-12-31"),
        ("Q1 2024 goals", "Q1 2024", "2024-01-01", "2024-03-31"),
        ("2024-W12 review", "2024-W12", "2024-03-18", "2024-03-24"),
        ("what did I do yesterday", "yesterday", "2026-11-16", "2026-11-16"),
        ("notes of last week", "last week", "2026-11-09", "2026-11-15"),
        ("this month", "this month", "2026-11-01", "2026-11-30"),
        ("previous quarter", "previous quarter", "2026-07-01", "2026-09-30"),
        ("past 3 days", "past 3 days", "2026-11-14", "2026-11-17"),
        ("2 months ago", "2 months ago", "2026-09-01", "2026-09-30"),
        ("last tuesday", "last tuesday", "2026-11-10", "2026-11-10"),
        ("last december", "last december", "2025-12-01", "2025-12-31"),
    ],
)
def test_date_expressions_are_periods(text: str, written: str, first: str, last: str) -> None:
    (found,) = find_date_expressions(text, TODAY)
    assert text[found.start : found.end] == written
    assert (found.first.isoformat(), found.last.isoformat()) == (first, last)


@pytest.mark.parametrize(
    "text",
    ["last mile delivery", "may fail", "march on", "port 8080", "v2024.1", "2024x", "a-2024-b"],
)
def test_other_words_are_no_date_expressions(text: str) -> None:
    assert find_date_expressions(text, TODAY) == []


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)))
def test_every_notation_of_a_day_gives_the_same_day(day: date) -> None:
    for pattern in ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%B %d, %Y", "%d %b %Y"):
        written = day.strftime(pattern).replace(day.strftime("%Y"), f"{day.year:04}")
        assert parse_written_date(written) == day.isoformat()
        (found,) = find_dates(f"x {written}!")
        assert (found.first, found.last) == (day, day)


@given(st.text(), st.dates(date(1, 1, 1) + timedelta(days=1), date.max))
def test_any_text_can_be_searched_for_dates(text: str, today: date) -> None:
    for each in (text, f"last {text} 2024", f"999 years ago {text}"):
        found = find_date_expressions(each, today)
        assert all(one.first <= one.last for one in found)
        parse_written_date(each)
