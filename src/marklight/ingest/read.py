"""Bytes to text: reads a file whole or refuses it with a reason, and never waits for it."""

from __future__ import annotations

import codecs
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import Refused
from marklight.ingest.timestamps import state_of
from marklight.model import FileState

LIMIT_LINES = 500_000
"""What is kept about each line takes more memory than a short line itself."""

Identity = tuple[int, int]
"""Device and inode of a file."""
_ATTEMPTS = 3
_BINARY_LOOK = 8192
_BINARY_SHARE = 0.1
"""Share of control characters above which a text is none; real Markdown has next to none."""
_CONTROLS = bytes(set(range(32)) - {8, 9, 10, 11, 12, 13, 27})


class Hindered(Refused):
    """A file that could not be read for now: its words are not to blame, so each run tries again."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file's words, with `\\n` between lines, and its state when they were read."""

    text: str
    file: FileState
    remarks: tuple[str, ...] = ()


def first_bytes(path: Path | str, limit_bytes: int) -> bytes:
    """Return the beginning of a regular file; OSError for a pipe, a device or what cannot be read."""
    handle = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
        with open(handle, "rb", closefd=False) as file:
            return file.read(limit_bytes)
    finally:
        os.close(handle)


def _open(path: Path | str) -> int:
    # Without waiting: opening a pipe would otherwise block until somebody writes to it.
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def read(path: Path | str, limit_bytes: int, identity: Identity | None = None) -> Source:
    """A file's text; raises Refused for what is no text, Hindered for what cannot be read now.

    With an identity, only the file that has it: a link that took its place is not followed.
    """
    for _ in range(_ATTEMPTS):
        data, before, after = _bytes(path, limit_bytes, identity)
        if before == after and before.size == len(data):
            text, remark = decode(data)
            if (lines := text.count("\n")) > LIMIT_LINES:
                raise Refused(f"has {lines:,} lines, more than the limit of {LIMIT_LINES:,}")
            return Source(text, before, (remark,) if remark else ())
    raise Hindered("keeps changing while it is read", "It is tried again on the next run")


def _bytes(
    path: Path | str, limit_bytes: int, identity: Identity | None
) -> tuple[bytes, FileState, FileState]:
    try:
        handle = _open(path)
    except FileNotFoundError:
        gone = "is a symbolic link to nothing" if os.path.islink(path) else "is gone"
        raise Hindered(gone) from None
    except PermissionError:
        raise Hindered("cannot be read: permission denied") from None
    except OSError as error:
        raise Hindered(f"cannot be read: {error.strerror or error}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Hindered("is not a regular file")
        if identity and (status.st_dev, status.st_ino) != identity:
            raise Hindered("was replaced while it was read", "It is tried again on the next run")
        if status.st_size > limit_bytes:
            raise Hindered(
                f"has {status.st_size:,} bytes, more than the limit of {limit_bytes:,}",
                "Raise the limit in the settings or split the file",
            )
        with open(handle, "rb", closefd=False) as file:
            data = file.read(limit_bytes + 1)
        return data, state_of(status), state_of(os.fstat(handle))
    except OSError as error:
        raise Hindered(f"cannot be read: {error.strerror or error}") from None
    finally:
        os.close(handle)


def decode(data: bytes) -> tuple[str, str]:
    """Text and a remark; UTF-8, UTF-16 with BOM, else cp1252, and U+FFFD for what is neither."""
    remark = ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
        if "\x00" in text:
            raise Refused("holds NUL characters, so it is not text")
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
        raise Refused("holds NUL bytes, so it is not text")
    look = data[:_BINARY_LOOK]
    controls = len(look) - len(look.translate(None, _CONTROLS))
    if controls > _BINARY_SHARE * len(look):
        raise Refused("is binary, not text")


def _decode_damaged(data: bytes) -> tuple[str, str]:
    repaired = data.decode("utf-8-sig", "replace")
    broken = repaired.count("\ufffd")
    # UTF-8 with a few damaged bytes is still UTF-8; only text without any valid sequence is older.
    valid = len(repaired) - len(repaired.encode("ascii", "ignore")) - broken
    if data.startswith(codecs.BOM_UTF8) or valid > broken:
        return repaired, f"{broken} characters could not be decoded as UTF-8"
    return data.decode("cp1252", "replace"), "read as Windows-1252, for it is not UTF-8"
