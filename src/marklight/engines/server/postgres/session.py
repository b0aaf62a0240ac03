"""Database sessions of PostgreSQL: statements on one connection, and snapshots of one commit.

Statements in the shared SQL of `engines/relational` are translated into that of PostgreSQL, with the parameters that belong to it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import Any, NamedTuple

import psycopg
from psycopg import RawServerCursor, sql

from marklight.engines.relational import Row
from marklight.engines.server.postgres.connections import AnyConnection, Connections, MissingLibrary
from marklight.engines.server.postgres.schema import (
    READ_SECRET,
    READ_STATE,
    check_version,
    lock_key,
)

STATEMENT_SECONDS = 30
"""Time limit of one statement of a search, far above that of any search that works; writing has none."""
_FETCH_ROWS = 1000
_READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_cursor_names = itertools.count(1)


def _close(cursor: RawServerCursor[Row]) -> None:
    """Close a cursor, also on a connection that is lost."""
    try:
        cursor.close()
    except psycopg.Error:
        cursor.close()  # the connection is closed now, so that nothing is sent


class PostgresSession:
    """Statements on one connection; its errors are `StoreError`s. Several threads may use it, one at a time.

    Statements are in the SQL of `engines/relational/__init__.py`, which is that of PostgreSQL with `?` for parameters.
    """

    def __init__(self, connections: Connections, connection: AnyConnection) -> None:
        self.connections = connections
        self.connection = connection
        """The connection for what the methods do not offer: use it within `locked()`."""
        self._lock = RLock()

    @contextmanager
    def locked(self) -> Iterator[AnyConnection]:
        """Yield a connection that no other thread uses meanwhile; errors of the server are translated."""
        with self._lock:
            try:
                yield self.connection
            except psycopg.Error as error:
                raise self.connections.explain(error) from error

    def close(self) -> None:
        """Give the connection back, which ends its transaction."""
        with self._lock:
            self.connections.give_back(self.connection)

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query as tuples."""
        statement = translate(sql)
        with self.locked() as connection:
            cursor = connection.execute(
                statement.sql.encode(), statement.parameters(values), binary=True
            )
            return cursor.fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a query; None where there is none."""
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row; None where there is none."""
        row = self.one(sql, values)
        return row[0] if row else None

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a query in portions; other statements may run meanwhile."""
        statement = translate(sql)
        with self.locked() as connection:
            cursor = RawServerCursor(connection, f"rows_{next(_cursor_names)}")
            try:
                cursor.execute(statement.sql.encode(), statement.parameters(values), binary=True)
                rows = cursor.fetchmany(_FETCH_ROWS)
            except BaseException:
                _close(cursor)
                raise
        try:
            while rows:
                yield from rows
                with self.locked():
                    rows = cursor.fetchmany(_FETCH_ROWS) if len(rows) == _FETCH_ROWS else []
        finally:
            with self.locked():
                _close(cursor)

    def lock_key(self, *parts: str) -> int:
        """Return the key of an advisory lock of this library."""
        return lock_key(self.value(READ_SECRET), *parts)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; return the number of rows that it changed."""
        statement = translate(sql)
        with self.locked() as connection:
            return connection.execute(statement.sql.encode(), statement.parameters(values)).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values, in order, without waiting for each result."""
        statement = translate(sql)
        with self.locked() as connection:
            connection.cursor().executemany(
                statement.sql.encode(), [statement.parameters(row) for row in rows]
            )

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows that conflict with none by COPY; `columns` is a list separated by commas."""
        names = [sql.Identifier(column.strip()) for column in columns.split(",")]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table), sql.SQL(", ").join(names)
        )
        given = iter(rows)
        first = next(given, None)
        if first is None:
            return
        with self.locked() as connection, connection.cursor().copy(statement) as copy:
            copy.write_row(first)
            for row in given:
                copy.write_row(row)

    def next_rows(self, table: str, count: int) -> Sequence[int]:
        """Reserve ascending row numbers of a table from its sequence."""
        if count == 0:
            return ()
        rows = self.all(
            "SELECT nextval(pg_get_serial_sequence(?, 'row')) FROM generate_series(1, ?)",
            [table, count],
        )
        return sorted(row for (row,) in rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements inside, or roll all of them back on any exception."""
        with self.locked() as connection, connection.transaction():
            yield


@contextmanager
def borrowed_session(connections: Connections) -> Iterator[PostgresSession]:
    """Borrow a connection for a session that is in no transaction."""
    with connections.connection() as connection:
        yield PostgresSession(connections, connection)


def open_snapshot(connections: Connections) -> tuple[PostgresSession, Row]:
    """Begin a read-only transaction and read the state of the library, in one round trip."""
    connection = connections.borrow()
    try:
        cursor = connection.execute(
            f"{_READ_ONLY}; SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s';"
            f" {READ_STATE}".encode(),
            prepare=False,
        )
        while cursor.nextset():
            pass
        state = cursor.fetchone()
        if state is None:
            raise MissingLibrary(f"{connections.address} has no index yet", "Run `marklight index`")
        check_version(state[0], str(connections.address))
    except BaseException as error:
        connections.give_back(connection)
        if isinstance(error, psycopg.Error):
            raise connections.explain(error) from error
        raise
    return PostgresSession(connections, connection), state


_LIST = "(SELECT ordinality - 1 AS key, {0} FROM unnest({1}) WITH ORDINALITY AS u({2}, ordinality))"
_TEXT = 'COLLATE "C"'
_MARK = re.compile(
    r"(?P<glob>any_glob\((?P<column>[\w.]+), \?\))"
    r"|(?P<list>texts|integers|document_ids|counts)\(\?\)"
    r"|(?P<unpacked>\bunpacked\()|(?P<passage>\bPASSAGE_TEXT\b)"
    r"|(?P<cross>\bCROSS JOIN\b)|(?P<instr>\binstr\()|(?P<literal>'[^']*')|(?P<plain>\?)"
)
_LATERAL = re.compile(r"\bLATERAL \[([^\]]*)\]")
_STATEMENTS = 1024
"""Cached translations."""


class Statement(NamedTuple):
    """A statement of PostgreSQL, and how each value of the shared one becomes parameters of it."""

    sql: str
    splits: tuple[Callable[[Any], Sequence[Any]] | None, ...]
    """For each value the function that returns its parameters; None for one that stays as it is."""

    def parameters(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the parameters for these values."""
        if not any(self.splits):
            return values
        parameters: list[Any] = []
        for value, split in zip(values, self.splits, strict=True):
            if split is None:
                parameters.append(value)
            else:
                parameters.extend(split(value))
        return parameters


@lru_cache(maxsize=_STATEMENTS)
def translate(sql: str) -> Statement:
    """Translate a statement: number its placeholders and replace what only SQLite understands."""
    splits: list[Callable[[Any], Sequence[Any]] | None] = []
    count = 0

    def parameter() -> str:
        nonlocal count
        count += 1
        return f"${count}"

    def replace(match: re.Match[str]) -> str:
        if match["literal"]:
            return match[0]
        if match["cross"]:
            return "JOIN"
        if match["instr"]:
            return "strpos("
        if match["unpacked"]:
            return "("
        if match["passage"]:
            return "c.text"
        if match["plain"]:
            splits.append(None)
            return parameter()
        if match["glob"]:
            splits.append(_split_globs)
            column = match["column"]
            return (
                f"({column} = ANY({parameter()}::text[]) OR {column} ~ ANY({parameter()}::text[]))"
            )
        splits.append(_SPLITS[match["list"]])
        return _table(match["list"], parameter)

    translated = _MARK.sub(replace, _LATERAL.sub(r"LATERAL (\1)", sql))
    return Statement(translated, tuple(splits))


def _table(function: str, parameter: Callable[[], str]) -> str:
    """Return the subquery for one of the table functions of the shared SQL."""
    if function == "texts":
        return _LIST.format(f"value {_TEXT} AS value", f"{parameter()}::text[]", "value")
    if function == "integers":
        return _LIST.format("value", f"{parameter()}::bigint[]", "value")
    arrays = f"{parameter()}::text[], {parameter()}"
    if function == "document_ids":
        columns = f"collection {_TEXT} AS collection, path {_TEXT} AS path"
        return _LIST.format(columns, f"{arrays}::text[]", "collection, path")
    return _LIST.format(f"value {_TEXT} AS value, count", f"{arrays}::bigint[]", "value, count")


def _split_list(value: Sequence[Any]) -> Sequence[Any]:
    return (list(value),)


def _split_pairs(value: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
    return [first for first, _ in value], [second for _, second in value]


def _split_globs(globs: Sequence[str]) -> Sequence[Any]:
    from marklight.text.globs import posix_pattern

    return list(globs), [posix_pattern(glob) for glob in globs]


_SPLITS: dict[str, Callable[[Any], Sequence[Any]]] = {
    "texts": _split_list,
    "integers": _split_list,
    "document_ids": _split_pairs,
    "counts": _split_pairs,
}
