"""A file whose time stamp is not older than the moment it was read is stored as racy."""

from __future__ import annotations

import time

import pytest

from marklight.ingest import read as reading
from marklight.ingest.read import COARSE_NS, SKEW_NS, TICK_NS, stored_state, wait_for_tick
from marklight.model import FileState

SECOND = 10**9
NOON = 1_700_000_000 * SECOND
FINE = NOON + 123_456_789


def at(stamp: int) -> FileState:
    return FileState(5, stamp, stamp)


@pytest.mark.parametrize("age", [SECOND // 2, SECOND, COARSE_NS, COARSE_NS + SKEW_NS - 1])
def test_a_whole_second_that_is_not_over_for_sure_is_racy(age: int) -> None:
    stored = stored_state(at(NOON), NOON + age, None)
    assert stored.is_racy
    assert (stored.size, stored.mtime_ns, stored.read_ns) == (5, NOON, NOON + age)


def test_an_older_stamp_is_stored_as_it_is() -> None:
    assert stored_state(at(NOON), NOON + COARSE_NS + SKEW_NS, None) == at(NOON)
    assert stored_state(at(FINE), FINE + TICK_NS, None) == at(FINE)


def test_a_fine_stamp_is_racy_within_one_tick_only() -> None:
    assert stored_state(at(FINE), FINE + TICK_NS - 1, None).is_racy


def test_where_there_is_no_change_time_the_modification_time_counts() -> None:
    assert stored_state(FileState(5, NOON), NOON + SECOND, None).is_racy


def test_an_old_modification_time_of_a_file_that_was_written_now_is_racy() -> None:
    extracted = FileState(5, NOON - 10**6 * SECOND, NOON)
    assert stored_state(extracted, NOON + SECOND, None).is_racy


@pytest.mark.parametrize("ahead", [SECOND, 3600 * SECOND, 10**9 * SECOND])
def test_a_stamp_in_the_future_is_racy_once_and_not_for_ever(ahead: int) -> None:
    future = at(NOON + ahead)
    first = stored_state(future, NOON, None)
    assert first.is_racy
    assert stored_state(future, NOON + COARSE_NS - 1, first) == first
    assert stored_state(future, NOON + COARSE_NS, first) == future


def test_another_edit_in_the_future_is_racy_again() -> None:
    first = stored_state(at(NOON + 60 * SECOND), NOON, None)
    edited = stored_state(at(NOON + 65 * SECOND), NOON + 5 * SECOND, first)
    assert edited.is_racy
    assert edited.read_ns == NOON + 5 * SECOND


def test_a_clock_that_was_set_back_begins_anew() -> None:
    first = stored_state(at(NOON), NOON + SECOND, None)
    assert stored_state(at(NOON), NOON - SECOND, first).read_ns == NOON - SECOND


def test_only_a_file_written_within_the_last_tick_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(reading, "_now_ns", lambda: FINE)
    for file in (at(FINE - TICK_NS), at(FINE + 1), at(NOON), at(FINE - TICK_NS // 2)):
        assert wait_for_tick(file) == FINE
    assert slept == [TICK_NS / 2 / SECOND]
