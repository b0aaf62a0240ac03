"""Read a file as text: check that it is regular, small enough and text, decode it; detect racily clean files.

A racily clean file may be edited again without a new time stamp. A time stamp is only as fine as its file system and
the clock that writes it: a second edit within the same clock step, made after the file was read, leaves size and time
stamps as they were. As in git, a file whose time stamp is not older than the time at which it was read is stored as
racy: its stored state never equals a stat, so the next scan reads it again and compares digests.
"""

from __future__ import annotations

import codecs
import os
import stat
import time
from pathlib import Path

from marklight.errors import Refused
from marklight.lazy import dataclass
from marklight.model import FileState
from marklight.platforms import NONBLOCK

MAX_LINES = 500_000
"""The data kept for each line takes more memory than a short line itself."""

Inode = tuple[int, int]
"""Device and inode number of a file."""
_ATTEMPTS = 3
"""A file that changes while it is read is read again; an editor's save takes milliseconds."""
_SNIFF_BYTES = 8192
_BINARY_SHARE = 0.1
"""Share of control characters above which a file is binary; real Markdown has next to none."""
_CONTROLS = bytes(set(range(32)) - {8, 9, 10, 11, 12, 13, 27})

TICK_NS = 20_000_000
"""One step of the clock that stamps files: up to 10 ms on Linux, 15.6 ms on Windows."""
COARSE_NS = 2_000_000_000
"""One step where stamps are whole seconds: 1 s on ext3, HFS+ and ext4 with small inodes, 2 s on FAT."""
SKEW_NS = 3_000_000_000
"""Tolerated clock skew of a file server whose time stamps are whole seconds."""
_SECOND_NS = 1_000_000_000


class TemporarilyUnreadable(Refused):
    """A file that cannot be read now for a reason outside its content: every run tries again."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a file, with `\\n` between lines, and the file's state when it was read."""

    text: str
    file: FileState
    remarks: tuple[str, ...] = ()


def first_bytes(path: Path | str, limit_bytes: int) -> bytes:
    """Return the beginning of a regular file; OSError for a pipe, a device or an unreadable file."""
    with open(path, "rb", opener=_open) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(limit_bytes)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | NONBLOCK)


def read(path: Path | str, limit_bytes: int, inode: Inode | None = None) -> Source:
    """Return a file's text; Refused if it is not text, TemporarilyUnreadable if it cannot be read now.

    With an inode, only that file is read: a symbolic link that took its place is not followed.
    """
    for _ in range(_ATTEMPTS):
        data, before, after = _bytes(path, limit_bytes, inode)
        if before == after and before.size == len(data):
            text, remark = decode(data)
            if (lines := text.count("\n")) > MAX_LINES:
                raise Refused(f"has {lines:,} lines, more than the limit of {MAX_LINES:,}")
            return Source(text, before, (remark,) if remark else ())
    raise TemporarilyUnreadable("keeps changing while it is read", "The next run tries again")


def _bytes(
    path: Path | str, limit_bytes: int, inode: Inode | None
) -> tuple[bytes, FileState, FileState]:
    """Return the content, and the file's state before and after it was read."""
    try:
        with open(path, "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise TemporarilyUnreadable("is not a regular file")
            if inode and (status.st_dev, status.st_ino) != inode:
                raise TemporarilyUnreadable(
                    "was replaced while it was read", "The next run tries again"
                )
            if status.st_size > limit_bytes:
                raise TemporarilyUnreadable(
                    f"has {status.st_size:,} bytes, more than the limit of {limit_bytes:,}",
                    "Raise the setting index.max_bytes or split the file",
                )
            # One byte more than it has: a file that grows is noticed, and no buffer of the limit is allocated.
            data, after = file.read(status.st_size + 1), os.fstat(file.fileno())
            return data, FileState.from_stat(status), FileState.from_stat(after)
    except FileNotFoundError:
        broken = os.path.islink(path)
        reason = "is a broken symbolic link" if broken else "no longer exists"
    except IsADirectoryError:
        reason = "is not a regular file"
    except PermissionError:
        reason = "cannot be read: permission denied"
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    raise TemporarilyUnreadable(reason)


def decode(data: bytes) -> tuple[str, str]:
    """Return text and a remark: UTF-8, UTF-16 with BOM, else cp1252; U+FFFD for invalid bytes."""
    remark = ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
        if "\x00" in text:
            raise Refused("contains NUL characters, so it is not text")
    else:
        _refuse_binary(data)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text, remark = _decode_damaged(data)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, remark


def _refuse_binary(data: bytes) -> None:
    if 0 in data:
        raise Refused("contains NUL bytes, so it is not text")
    head = data[:_SNIFF_BYTES]
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls > _BINARY_SHARE * len(head):
        raise Refused("is binary, not text")


def _decode_damaged(data: bytes) -> tuple[str, str]:
    repaired = data.decode("utf-8-sig", "replace")
    broken = repaired.count("\ufffd")
    # UTF-8 with a few damaged bytes is still UTF-8; only text without any valid sequence is an older encoding.
    valid = len(repaired) - len(repaired.encode("ascii", "ignore")) - broken
    if data.startswith(codecs.BOM_UTF8) or valid > broken:
        return repaired, f"{broken} characters are not valid UTF-8"
    return data.decode("cp1252", "replace"), "is not valid UTF-8; decoded as Windows-1252"


def wait_for_tick(file: FileState) -> int:
    """Wait until a new edit would get a later stamp, if one tick is enough; return the time in ns.

    Only a file that was written within the last 20 ms waits, and no file after it in the same run does.
    """
    left = _stamp(file) + TICK_NS - _now_ns()
    if _clock_step(file) == TICK_NS and 0 < left <= TICK_NS:
        time.sleep(left / _SECOND_NS)
    return _now_ns()


def stored_state(file: FileState, read_ns: int, before: FileState | None) -> FileState:
    """Return the state to store for a file that was read at `read_ns`: as given, or marked as racy.

    `before` is the state stored so far. Where it is racy with the same size and modification time, and at
    least one step of the clock has passed since, an edit from now on gets another stamp, whatever clock
    writes it. So a file whose stamps lie in the future is read twice and not at every scan.
    """
    step = _clock_step(file)
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


def _clock_step(file: FileState) -> int:
    return TICK_NS if _stamp(file) % _SECOND_NS else COARSE_NS


def _now_ns() -> int:
    return time.time_ns()
