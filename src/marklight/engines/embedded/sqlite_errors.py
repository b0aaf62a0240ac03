"""Translate errors of SQLite and the file system into errors that name the cause and the remedy."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path

from marklight.errors import Busy, StoreError

_DAMAGED_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_MESSAGES = tuple(os.strerror(number) for number in _FULL_ERRNOS)
"""Texts by which tantivy reports a full disk: its errors have no number."""
_MIN_FREE_BYTES = 1_000_000
"""Free space below which any failed write is reported as a full disk."""


def explain(error: Exception, path: Path) -> StoreError:
    """Return the error to raise in place of one of SQLite, tantivy or the file system."""
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, "its schema is no text")
    if isinstance(error, sqlite3.Error):
        if "Could not decode" in str(error):
            from marklight.engines.relational.records import damaged_rows

            return damaged_rows()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGED_CODES:
            return damaged(path, str(error)) if is_damaged(path) else _transient(path, error)
        if code == sqlite3.SQLITE_INTERRUPT:
            return damaged(path, "reading it takes too long")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(f"Another process is using {path}", "Try again in a moment")
        if code == sqlite3.SQLITE_FULL:
            return disk_full(path)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return StoreError(f"Cannot write to {path}", "Check the permissions of its folder")
    elif getattr(error, "errno", 0) in _FULL_ERRNOS or any(
        message in str(error) for message in _FULL_MESSAGES
    ):
        return disk_full(path)
    if _is_disk_full(path):
        return disk_full(path)
    return StoreError(
        f"Cannot use {path}: {error}", "Check the disk and the permissions of the folder"
    )


def _is_disk_full(path: Path) -> bool:
    """Return true where almost no space is free: a thread that fails for that reason does not report it."""
    try:
        return shutil.disk_usage(path.parent).free < _MIN_FREE_BYTES
    except OSError:
        return False


def damaged(path: Path, reason: str) -> StoreError:
    """Return the error for a damaged database, which only the user may delete."""
    return StoreError(
        f"The database {path} is damaged ({reason})",
        f"Your documents are not affected. Move {path.parent} away and run `marklight index`",
    )


def disk_full(path: Path) -> StoreError:
    """Return the error for a full disk."""
    return StoreError(
        f"No space left on the disk to write {path}",
        "The index is unchanged since the last commit. Free some space and run `marklight index`",
    )


def _transient(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"Could not read {path} ({error}), although the file is not damaged", "Try again"
    )


def is_damaged(path: Path) -> bool:
    """Return true if a second, separate connection also finds the database damaged."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        return (error.sqlite_errorcode & 0xFF) in _DAMAGED_CODES
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return True
