"""One connection to the store: statements in, rows out, errors a user can read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any

from marklight.engines.embedded.sqlite_errors import explain

Row = tuple[Any, ...]

_AT_ONCE = 256
"""Rows that are read before others have their turn."""


def json_list(values: Iterable[Any]) -> str:
    """Many values as one parameter, read back with `json_each`."""
    return json.dumps(list(values), ensure_ascii=False)


class ConnectionLock:
    """One thread after the other, and errors of SQLite in our words.

    No generator, which would take about as long as a short question itself.
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
        # Python cannot always decode what SQLite complains about in a damaged schema.
        if isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            raise explain(error, self._path) from error


class Session:
    """A connection that speaks our errors; one transaction of it is one view.

    Several threads may ask one view at once, and take turns. Without that, one would wait for SQLite
    while it holds Python's own lock, which a statement that calls `any_glob` needs to go on: for ever.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.file: tuple[int, int] | None = None
        """Which file it is a connection to, where that can change."""
        self.key = b""
        """Key of the checksums: the id of the index, a secret of its owner."""
        self._lock = ConnectionLock(path)

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock:
            return self.connection.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        with self._lock:
            row: Row | None = self.connection.execute(sql, values).fetchone()
            return row

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self.one(sql, values)
        return row[0] if row else None

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with self._lock:
            cursor = self.connection.execute(sql, values)
            rows = cursor.fetchmany(_AT_ONCE)
        while rows:
            yield from rows
            with self._lock:
                rows = cursor.fetchmany(_AT_ONCE)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        with self._lock:
            return self.connection.execute(sql, values).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._lock:
            self.connection.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, whatever happens inside."""
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
