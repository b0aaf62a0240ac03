"""Files are decoded or refused with a reason; racily clean files are marked."""

from __future__ import annotations

import os
import socket
import time
import tracemalloc
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from marklight.errors import Refused
from marklight.ingest import read as reading
from marklight.ingest.read import (
    COARSE_NS,
    SKEW_NS,
    TICK_NS,
    Source,
    TemporarilyUnreadable,
    stored_state,
    wait_for_tick,
)
from marklight.model import FileState
from tests.ingest.reading import LIMIT


def read(path: Path) -> Source:
    return reading.read(path, LIMIT)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "page.md"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data, text",
    [
        ("grün".encode(), "grün"),
        (b"\xef\xbb\xbf# Title", "# Title"),
        ("grün 漢字".encode("utf-16"), "grün 漢字"),
        (b"\xff\xfe" + "grün".encode("utf-16-le"), "grün"),
        (b"\xfe\xff" + "grün".encode("utf-16-be"), "grün"),
        ("grün – “so”".encode("cp1252"), "grün – “so”"),
        (b"one\r\ntwo\rthree\n", "one\ntwo\nthree\n"),
        (b"", ""),
    ],
)
def test_text_is_read_in_each_encoding(tmp_path: Path, data: bytes, text: str) -> None:
    assert read(written(tmp_path, data)).text == text


def test_invalid_bytes_become_replacement_characters_with_a_remark(tmp_path: Path) -> None:
    source = read(written(tmp_path, "grün – schön – ".encode() + b"\xff\xfe\x81 end"))
    assert source.text.startswith("grün – schön – ")
    assert "\ufffd" in source.text
    assert "not valid UTF-8" in source.remarks[0]
    assert read(written(tmp_path, b"\x81 caf\xe9")).text == "\ufffd café"


@pytest.mark.parametrize(
    "data, reason",
    [
        (b"text with \x00 in it", "NUL"),
        ("text".encode("utf-16") + b"\x00\x00", "NUL"),
        ("no byte order mark".encode("utf-16-le"), "NUL"),
        (bytes(range(1, 32)) * 20, "binary"),
    ],
)
def test_binary_data_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        read(written(tmp_path, data))
    assert not isinstance(refused.value, TemporarilyUnreadable), (
        "another run would find the same bytes"
    )


def test_a_file_over_the_limit_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(
        TemporarilyUnreadable, match="50,000,000 bytes, more than the limit of 20,000,000"
    ):
        read(path)


def test_a_small_file_is_read_without_a_buffer_of_the_size_of_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    tracemalloc.start()
    try:
        assert reading.read(tmp_path / "a.md", 100_000_000).text == "text"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_too_many_lines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="600,000 lines"):
        read(written(tmp_path, b"\n" * 600_000))


def test_pipes_folders_and_broken_links_are_refused_immediately(tmp_path: Path) -> None:
    pipe, link, folder = tmp_path / "pipe.md", tmp_path / "link.md", tmp_path / "folder.md"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nothing.md")
    folder.mkdir()
    with pytest.raises(TemporarilyUnreadable, match="not a regular file"):
        read(pipe)
    with pytest.raises(Refused, match="broken symbolic link"):
        read(link)
    with pytest.raises(TemporarilyUnreadable, match="not a regular file"):
        read(folder)
    with pytest.raises(Refused, match="no longer exists"):
        read(tmp_path / "never.md")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.md"))
        with pytest.raises(Refused, match="cannot be read"):
            read(tmp_path / "socket.md")


@pytest.mark.parametrize(
    "error, reason",
    [(PermissionError(13, "Permission denied"), "permission denied"), (OSError(5, "I/O"), "I/O")],
)
def test_an_unreadable_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TemporarilyUnreadable, match=reason):
        read(tmp_path / "page.md")


def test_a_file_that_keeps_changing_is_refused_and_one_that_stops_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, b"first")
    changes = iter(range(100))
    until = 100

    class Restless:
        """Stands between us and the system: the file grows after each look at it."""

        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def fstat(self, handle: int) -> os.stat_result:
            status = os.fstat(handle)
            if (number := next(changes)) < until:
                path.write_bytes(b"x" * (number + 10))
            return status

    monkeypatch.setattr(reading, "os", Restless())
    with pytest.raises(TemporarilyUnreadable, match="keeps changing"):
        read(path)
    changes, until = iter(range(100)), 1
    assert read(path).text == "x" * 10


def test_a_file_swapped_for_one_of_the_same_size_and_time_has_another_state(tmp_path: Path) -> None:
    path = written(tmp_path, b"first")
    before = path.stat()
    other = tmp_path / "other.md"
    other.write_bytes(b"later")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert FileState.from_stat(after) != FileState.from_stat(before)
    assert FileState.from_stat(after) == FileState.from_stat(path.stat())


class Status(NamedTuple):
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


@pytest.mark.parametrize("seconds", [-(2**40), -1, 0, 1_700_000_000, 2**34, 2**60])
def test_time_stamps_out_of_range_are_clamped_to_64_bits(seconds: int) -> None:
    status = cast(os.stat_result, Status(5, seconds * 10**9 + 123_456_789, 7))
    size, mtime_ns, _ = FileState.from_stat(status)
    assert size == 5
    assert 0 <= mtime_ns < 2**63
    if 0 <= seconds < 2**33:
        assert mtime_ns == seconds * 10**9 + 123_456_789


SECOND = 10**9
NOON = 1_700_000_000 * SECOND
FINE = NOON + 123_456_789


def stamped(stamp: int) -> FileState:
    return FileState(5, stamp, stamp)


@pytest.mark.parametrize("age", [SECOND // 2, SECOND, COARSE_NS, COARSE_NS + SKEW_NS - 1])
def test_a_whole_second_stamp_within_clock_skew_is_racy(age: int) -> None:
    stored = stored_state(stamped(NOON), NOON + age, None)
    assert stored.is_racy
    assert (stored.size, stored.mtime_ns, stored.read_ns) == (5, NOON, NOON + age)


def test_an_older_stamp_is_stored_as_it_is() -> None:
    assert stored_state(stamped(NOON), NOON + COARSE_NS + SKEW_NS, None) == stamped(NOON)
    assert stored_state(stamped(FINE), FINE + TICK_NS, None) == stamped(FINE)


def test_a_fine_stamp_is_racy_within_one_tick_only() -> None:
    assert stored_state(stamped(FINE), FINE + TICK_NS - 1, None).is_racy


def test_without_a_change_time_the_modification_time_is_used() -> None:
    assert stored_state(FileState(5, NOON), NOON + SECOND, None).is_racy


def test_a_new_file_with_an_old_modification_time_is_racy() -> None:
    extracted = FileState(5, NOON - 10**6 * SECOND, NOON)
    assert stored_state(extracted, NOON + SECOND, None).is_racy


@pytest.mark.parametrize("ahead", [SECOND, 3600 * SECOND, 10**9 * SECOND])
def test_a_stamp_in_the_future_is_racy_once_and_not_for_ever(ahead: int) -> None:
    future = stamped(NOON + ahead)
    first = stored_state(future, NOON, None)
    assert first.is_racy
    assert stored_state(future, NOON + COARSE_NS - 1, first) == first
    assert stored_state(future, NOON + COARSE_NS, first) == future


def test_another_edit_in_the_future_is_racy_again() -> None:
    first = stored_state(stamped(NOON + 60 * SECOND), NOON, None)
    edited = stored_state(stamped(NOON + 65 * SECOND), NOON + 5 * SECOND, first)
    assert edited.is_racy
    assert edited.read_ns == NOON + 5 * SECOND


def test_after_the_clock_is_set_back_a_file_is_racy_again() -> None:
    first = stored_state(stamped(NOON), NOON + SECOND, None)
    assert stored_state(stamped(NOON), NOON - SECOND, first).read_ns == NOON - SECOND


def test_reading_waits_only_for_files_written_within_the_last_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(reading, "_now_ns", lambda: FINE)
    for file in (
        stamped(FINE - TICK_NS),
        stamped(FINE + 1),
        stamped(NOON),
        stamped(FINE - TICK_NS // 2),
    ):
        assert wait_for_tick(file) == FINE
    assert slept == [TICK_NS / 2 / SECOND]
