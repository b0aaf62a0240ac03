"""SQLite connections, locks and errors: open an untrusted database safely, run statements, hold the writer lock.

SQLite follows symbolic links of its own files and obeys a rollback journal, which can name any file to delete. The database is
in WAL mode from the start, so a rollback journal is never ours. Tables and indexes must be exactly those of this version.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from marklight.engines.embedded import TABLES, VERSION, stored_rows
from marklight.errors import Busy, Message, StoreError
from marklight.private_files import lock_file, remove, remove_foreign

if TYPE_CHECKING:
    from marklight.engines.relational import Row

_FETCH_ROWS = 256
"""Rows fetched before other threads may use the connection."""
_KNOWN_STATEMENTS = frozenset(
    re.findall(r"^CREATE [^;]*\)(?: WITHOUT ROWID)?(?=;)", TABLES, re.MULTILINE)
) | {"CREATE TABLE sqlite_sequence(name,seq)"}
"""The statements of all tables and indexes, as SQLite stores them."""
_CLOCK_STEPS = 100_000
"""Instructions of SQLite's virtual machine between two checks of the clock, about a millisecond."""
_SCHEMA_SECONDS = 5.0
"""Time limit for reading the schema: ours takes under a millisecond, a crafted one may never end."""

_PAIRS = "(SELECT key, json_extract(value, '$[0]') AS {}, json_extract(value, '$[1]') AS {} FROM json_each(?))"
_REPLACEMENTS = (
    ("LATERAL [", "json_each((SELECT json_group_array(value) FROM ("),
    ("]", ")))"),
    ("texts(?)", "json_each(?)"),
    ("integers(?)", "json_each(?)"),
    ("document_ids(?)", _PAIRS.format("collection", "path")),
    ("counts(?)", _PAIRS.format("value", "count")),
    (
        "PASSAGE_TEXT",
        "CASE typeof(c.text) WHEN 'blob' THEN passage_text(c.text, c.document) ELSE c.text END",
    ),
)
"""Replacements that turn the SQL of `engines/relational/__init__.py` into that of SQLite, in order."""
_UNPACKED = re.compile(r"\bunpacked\(([\w.]+)\)")


@lru_cache(maxsize=1024)
def _translate(sql: str) -> str:
    """Return a statement in the SQL of SQLite; most are constants, so each is translated once."""
    for text, replacement in _REPLACEMENTS:
        sql = sql.replace(text, replacement)
    # As bytes: SQLite calls no function with a damaged text that is no longer UTF-8.
    return _UNPACKED.sub(r"unpack(CAST(\1 AS BLOB))", sql)


class UnknownSchema(StoreError):
    """Raised for a database with other tables than this version creates."""


_encode_list = json.JSONEncoder(ensure_ascii=False).encode


def _bind(values: Sequence[Any]) -> Sequence[Any]:
    """Encode lists as JSON, which `json_each` reads."""
    for value in values:
        if value.__class__ is list:
            return [_encode_list(each) if each.__class__ is list else each for each in values]
    return values


@cache
def _insertion(table: str, columns: str) -> str:
    placeholders = ", ".join("?" * len(columns.split(",")))
    return f"INSERT INTO {table} ({columns}) VALUES ({placeholders})"


_parse_globs = lru_cache(maxsize=64)(json.loads)


def _any_glob(path: str, globs: str) -> bool:
    from marklight.engines.metadata_filters import matches_any_glob

    return matches_any_glob(path, _parse_globs(globs))


class ConnectionLock:
    """A lock that lets one thread at a time use a connection, and translates errors of SQLite.

    A class and not a generator, which would take about as long as a short query itself.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
        # Python cannot always decode SQLite's message about a damaged schema.
        if isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            raise explain(error, self._path) from error


class SqliteSession:
    """A connection whose errors are `StoreError`s; one read transaction of it is one snapshot.

    Several threads may use one snapshot, one at a time. Without the lock, a thread would wait for SQLite while it holds
    Python's global lock, which a statement that calls `any_glob` needs to finish: a deadlock.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.file: tuple[int, int] | None = None
        """Device and inode of the opened file, where the file at the path can change."""
        self.snapshots = 0
        """Snapshots that have ended."""
        self.key = b""
        """Key of the checksums: the random id of the index."""
        self._lock = ConnectionLock(path)
        self.forget_text = stored_rows.register(connection)
        """Drops the text of a large document; called at the end of a snapshot."""
        connection.create_function("any_glob", 2, _any_glob, deterministic=True)

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock:
            return self.connection.execute(_translate(sql), _bind(values)).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        with self._lock:
            row: Row | None = self.connection.execute(_translate(sql), _bind(values)).fetchone()
            return row

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self.one(sql, values)
        return row[0] if row else None

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with self._lock:
            cursor = self.connection.execute(_translate(sql), _bind(values))
            rows = cursor.fetchmany(_FETCH_ROWS)
        while rows:
            yield from rows
            with self._lock:
                rows = cursor.fetchmany(_FETCH_ROWS)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        with self._lock:
            return self.connection.execute(_translate(sql), _bind(values)).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._lock:
            self.connection.executemany(_translate(sql), rows)

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        self.many(_insertion(table, columns), rows)

    def next_rows(self, table: str, count: int) -> Sequence[int]:
        """Return the next row numbers of a table with AUTOINCREMENT: they ascend and are never reused."""
        last = self.value("SELECT seq FROM sqlite_sequence WHERE name = ?", [table]) or 0
        return range(last + 1, last + count + 1)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements inside, or roll all of them back on any exception."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.rollback()
            raise

    def close(self) -> None:
        self.connection.close()


def connect(path: Path, parameters: str = "?mode=rw", wait_seconds: float = 0.0) -> SqliteSession:
    """Open a database; files beside it under the names of SQLite's own files are made safe first."""
    try:
        _make_safe(path)
        connection = sqlite3.connect(
            path.absolute().as_uri() + parameters,
            uri=True,
            timeout=wait_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    session = SqliteSession(path, connection)
    try:
        session.run("PRAGMA trusted_schema = OFF")
        with time_limit(session, _SCHEMA_SECONDS):
            session.value("SELECT count(*) FROM sqlite_master")  # loads the schema
        if sys.version_info >= (3, 12):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    except BaseException:
        session.close()
        raise
    return session


def _make_safe(path: Path) -> None:
    """Delete a rollback journal, and whatever is no plain file at the path of the WAL or the shared memory."""
    remove(path.with_name(f"{path.name}-journal"))
    for suffix in ("-wal", "-shm"):
        remove_foreign(path.with_name(path.name + suffix), stat.S_ISREG)


def check_schema(session: SqliteSession) -> None:
    """Raise UnknownSchema unless the tables and indexes are exactly those of this version: no view, no trigger."""
    version = session.value("PRAGMA user_version")
    if version > VERSION:
        raise StoreError(
            f"{session.path} was created by a newer version of Marklight"
            f" (index format {version}; this version supports {VERSION})",
            "Upgrade with `pip install --upgrade marklight`",
        )
    with time_limit(session, _SCHEMA_SECONDS):
        statements = {
            sql for (sql,) in session.all("SELECT sql FROM sqlite_master") if sql is not None
        }
    if version != VERSION or statements != _KNOWN_STATEMENTS:
        raise UnknownSchema(f"{session.path} has other tables than this version creates")


@contextmanager
def time_limit(session: SqliteSession, seconds: float) -> Iterator[None]:
    """Interrupt the statements inside when together they take longer than this."""
    deadline = time.monotonic() + seconds
    connection = session.connection
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _CLOCK_STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


class WriterLock:
    """Writer lock of an index: held by one thread of one process, reentrant, released by the system when a process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread_lock = RLock()
        self._depth = 0

    @property
    def held(self) -> bool:
        """Return true if this thread holds the lock."""
        if not self._thread_lock.acquire(blocking=False):
            return False
        try:
            return self._depth > 0
        finally:
            self._thread_lock.release()

    @contextmanager
    def hold(self, wait_seconds: float) -> Iterator[bool]:
        """Hold the lock; yield true for the outermost hold, raise Busy if it is not free in time."""
        deadline = time.monotonic() + max(0.0, wait_seconds)
        if not self._thread_lock.acquire(timeout=max(0.0, wait_seconds)):
            raise self._busy(wait_seconds)
        try:
            file_lock = self._lock_file(deadline, wait_seconds) if self._depth == 0 else None
            self._depth += 1
            try:
                yield file_lock is not None
            finally:
                self._depth -= 1
                if file_lock:
                    file_lock.close()
        finally:
            self._thread_lock.release()

    def _lock_file(self, deadline: float, wait_seconds: float) -> sqlite3.Connection:
        try:
            return lock_file(self.path, deadline - time.monotonic())
        except TimeoutError:
            raise self._busy(wait_seconds) from None
        except OSError as error:
            raise explain(error, self.path) from error

    def _busy(self, wait_seconds: float) -> Busy:
        return Busy(
            f"Another process is writing to {self.path.parent} (waited {wait_seconds:g} s)",
            Message(
                "Wait until it has finished, or search without updating the index: --no-refresh",
                "Wait until it has finished",
            ),
        )


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
            from marklight.engines.relational import damaged_rows

            return damaged_rows()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGED_CODES:
            if is_damaged(path):
                return damaged(path, str(error))
            return StoreError(
                f"Could not read {path} ({error}), but it is not damaged", "Try again"
            )
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
        import shutil  # 8 ms, and hardly any command needs it

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
