"""What SQLite and the disk complain about, said so that a user knows what to do."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path

from marklight.errors import Busy, StoreError

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LITTLE_BYTES = 1_000_000
_FULL_WORDS = tuple(os.strerror(number) for number in _FULL)


def explain(error: Exception, path: Path) -> StoreError:
    """The error that a user should see in place of this one."""
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, "its schema")
    if isinstance(error, sqlite3.Error):
        if "Could not decode" in str(error):
            return damaged_rows()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGED:
            return damaged(path, str(error)) if is_damaged(path) else _passing(path, error)
        if code == sqlite3.SQLITE_INTERRUPT:
            return damaged(path, "reading it takes too long")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(f"{path} is in use by another process", "Try again in a moment")
        if code == sqlite3.SQLITE_FULL:
            return full(path)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return StoreError(f"{path} cannot be written", "Check the rights of its folder")
    elif getattr(error, "errno", 0) in _FULL or any(each in str(error) for each in _FULL_WORDS):
        return full(path)
    if _no_room(path):
        return full(path)
    return StoreError(f"{path} cannot be used: {error}", "Check the disk and the folder's rights")


def _no_room(path: Path) -> bool:
    """A full disk is not always named: a thread that dies of it only tells that it died."""
    try:
        return shutil.disk_usage(path.parent).free < _LITTLE_BYTES
    except OSError:
        return False


def damaged(path: Path, reason: str) -> StoreError:
    """The one error that no rebuild mends by itself: nothing is thrown away without the user."""
    return StoreError(
        f"{path} is damaged ({reason})",
        f"Your documents are untouched: move {path.parent} away and run `marklight index` again",
    )


def damaged_rows() -> StoreError:
    """Return the error for rows of the tables that make no sense."""
    return StoreError(
        "a part of the index is damaged",
        "Run `marklight doctor`: it reads the documents concerned again",
    )


def full(path: Path) -> StoreError:
    """No room: the last commit stands."""
    return StoreError(
        f"No space left to write {path}",
        "Nothing that was indexed is lost: make room and run `marklight index` again",
    )


def _passing(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} could not be read ({error}), yet it is sound", "Try again")


def is_damaged(path: Path) -> bool:
    """Whether a second, separate look finds the file broken too."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        return (error.sqlite_errorcode & 0xFF) in _DAMAGED
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return True
