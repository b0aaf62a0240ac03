"""One connection to the store: statements in, rows out, errors a user can read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from marklight.engines.embedded.trouble import explain

Row = tuple[Any, ...]

_AT_ONCE = 256
"""Rows that are read before others have their turn."""


def listed(values: Iterable[Any]) -> str:
    """Many values as one parameter, read back with `json_each`."""
    return json.dumps(list(values), ensure_ascii=False)


class Session:
    """A connection that speaks our errors; one transaction of it is one view.

    Several threads may ask one view at once, and take turns. Without that, one would wait for SQLite
    while it holds Python's own lock, which a statement that calls `any_glob` needs to go on: for ever.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self._turns = RLock()

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._turn():
            return self.connection.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        with self._turn():
            row: Row | None = self.connection.execute(sql, values).fetchone()
            return row

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self.one(sql, values)
        return row[0] if row else None

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with self._turn():
            cursor = self.connection.execute(sql, values)
            rows = cursor.fetchmany(_AT_ONCE)
        while rows:
            yield from rows
            with self._turn():
                rows = cursor.fetchmany(_AT_ONCE)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        with self._turn():
            return self.connection.execute(sql, values).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._turn():
            self.connection.executemany(sql, rows)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turns:
            try:
                yield
            except sqlite3.Error as error:
                raise explain(error, self.path) from error

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
