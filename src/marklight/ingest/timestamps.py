"""Racily clean files: a file that may be edited again without a new time stamp is compared by content.

A time stamp is only as fine as its file system and the clock that writes it. A second edit within the same
step, made after the file was read, leaves size and time stamps as they were. As git does, a file whose time
stamp is not older than the moment at which it was read is stored as racy: its stored state never equals a
stat, so that the next scan reads it again and compares digests.
"""

from __future__ import annotations

import os
import time

from marklight.model import FileState

TICK_NS = 20_000_000
"""One step of the clock that stamps files: up to 10 ms on Linux, 15.6 ms on Windows."""
COARSE_NS = 2_000_000_000
"""One step where stamps are whole seconds: 1 s on ext3, HFS+ and ext4 with small inodes, 2 s on FAT."""
SKEW_NS = 3_000_000_000
"""Tolerated clock skew of a file server whose time stamps are whole seconds."""
_SECOND_NS = 1_000_000_000
_LATEST_NS = 2**63 - 1
"""The year 2262: what stores a time has 64 bits, while a disk may claim the year 2500."""
_WINDOWS = os.name == "nt"


def state_of(status: os.stat_result) -> FileState:
    """Return the size and time stamps by which a changed file is recognised."""
    mtime_ns, ctime_ns = _stamps(status)
    if not (0 <= mtime_ns <= _LATEST_NS and 0 <= ctime_ns <= _LATEST_NS):
        mtime_ns, ctime_ns = (min(max(stamp, 0), _LATEST_NS) for stamp in (mtime_ns, ctime_ns))
    return FileState(status.st_size, mtime_ns, ctime_ns)


def _stamps(status: os.stat_result) -> tuple[int, int]:
    """Return modification and change time; on Windows `st_ctime` is the creation time, so 0."""
    return status.st_mtime_ns, 0 if _WINDOWS else status.st_ctime_ns


def wait_for_tick(file: FileState) -> int:
    """Wait until a new edit would get a later stamp, if one tick is enough; return the time in ns.

    Only a file that was written within the last 20 ms waits, and every file after it in the same run does not.
    """
    left = _stamp(file) + TICK_NS - _now_ns()
    if _step(file) == TICK_NS and 0 < left <= TICK_NS:
        time.sleep(left / _SECOND_NS)
    return _now_ns()


def stored_state(file: FileState, read_ns: int, before: FileState | None) -> FileState:
    """Return the state to store for a file that was read at `read_ns`: as given, or marked as racy.

    `before` is the state stored so far. Where it is racy with the same size and modification time, and at
    least one step of the clock has passed since, an edit from now on gets another stamp, whatever clock
    writes it. So a file whose stamps lie in the future is read twice and not at every scan.
    """
    step = _step(file)
    slack = SKEW_NS if step == COARSE_NS else 0
    if _stamp(file) + step + slack <= read_ns:
        return file
    if before is not None and before.is_racy and before[:2] == file[:2]:
        since = read_ns - before.read_ns
        if since >= step:
            return file
        if since >= 0:
            return before
    return FileState.racy(file, read_ns)


def _stamp(file: FileState) -> int:
    """Return the stamp that every edit renews; a program can set the modification time, but not this one."""
    return file.ctime_ns or file.mtime_ns


def _step(file: FileState) -> int:
    return TICK_NS if _stamp(file) % _SECOND_NS else COARSE_NS


def _now_ns() -> int:
    return time.time_ns()
