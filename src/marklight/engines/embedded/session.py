"""One connection to the store: statements in, rows out, errors a user can read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marklight.engines.embedded.schema import VERSION
from marklight.engines.embedded.trouble import explain

Row = tuple[Any, ...]


def listed(values: Iterable[Any]) -> str:
    """Many values as one parameter, read back with `json_each`."""
    return json.dumps(list(values), ensure_ascii=False)


class Session:
    """A connection that speaks our errors; one transaction of it is one view."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.format = VERSION
        """Of the tables that stand behind those it is asked for."""

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        try:
            row: Row | None = self.connection.execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        return row

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self.one(sql, values)
        return row[0] if row else None

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        try:
            yield from self.connection.execute(sql, values)
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        try:
            return self.connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self.connection.executemany(sql, rows)
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
