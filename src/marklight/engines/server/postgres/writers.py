"""Writer lock of a library on PostgreSQL: writers share it, so that many write at once; maintenance takes it alone.

The lock is an advisory lock of the connection, which the server releases when the connection ends. Each thread that writes
has a connection of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import local
from typing import Any

import psycopg
from psycopg import errors

from marklight.engines.server.postgres import schema
from marklight.engines.server.postgres.connections import AnyConnection, Connections
from marklight.engines.server.postgres.indexes import DerivedIndex
from marklight.engines.server.postgres.session import PostgresSession
from marklight.errors import Busy
from marklight.model import DocumentId

MAX_DOCUMENT_LOCKS = 512
"""Documents of a batch that are locked one by one; a larger batch excludes all other commits.

A server has room for 64 locks per allowed connection, 6,400 by default.
"""


class Writers(local):
    """Connections of the threads that hold the writer lock; every thread sees only its own."""

    def __init__(
        self,
        connections: Connections,
        indexes: Sequence[DerivedIndex[Any]],
        prepare: Callable[[], None],
    ) -> None:
        """Take what brings derived indexes up to date: called before the lock is taken."""
        self.connections = connections
        self._indexes = indexes
        self._prepare = prepare
        self._depth = 0
        self._session: PostgresSession | None = None

    @contextmanager
    def hold(self, wait_seconds: float) -> Iterator[bool]:
        """Share the writer lock; yield true for the outermost hold, raise Busy if maintenance takes longer.

        Creates the library if it does not exist.
        """
        if self._depth == 0:
            self._open(wait_seconds)
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._close()

    @contextmanager
    def alone(self, wait_seconds: float) -> Iterator[PostgresSession]:
        """Exclude all other writers; this thread may share the lock already."""
        with self.hold(wait_seconds):
            session = self.session
            key = schema.writer_key(self.connections.address.library)
            with session.locked() as connection:
                self._lock(connection, "pg_advisory_lock", key, wait_seconds)
            try:
                yield session
            finally:
                with suppress(psycopg.Error):
                    session.connection.execute("SELECT pg_advisory_unlock($1)", [key])

    @property
    def session(self) -> PostgresSession:
        """Return the session of this thread; raises RuntimeError unless it holds the lock."""
        if self._depth == 0:
            raise RuntimeError("Writing requires the writer lock: use `with engine.writing(…)`")
        if self._session is None or self._session.connection.closed:
            # The server was restarted meanwhile: its locks are gone with the connection.
            self._close()
            self._open(self.connections.wait_seconds)
        assert self._session is not None
        return self._session

    def _open(self, wait_seconds: float) -> None:
        deadline = time.monotonic() + wait_seconds
        connection = self._connect(wait_seconds)
        try:
            self._prepare()
            key = schema.writer_key(self.connections.address.library)
            self._lock(connection, "pg_advisory_lock_shared", key, wait_seconds, deadline)
        except BaseException as error:
            connection.close()
            self.connections.give_back(connection)
            if isinstance(error, psycopg.Error):
                raise self.connections.explain(error) from error
            raise
        self._session = PostgresSession(self.connections, connection)

    def _connect(self, wait_seconds: float) -> AnyConnection:
        """Borrow a connection to a library that exists; one that the server has closed meanwhile is replaced."""
        for _ in range(self.connections.max_size + 1):
            connection = self.connections.borrow(wait_seconds)
            try:
                schema.prepare(self.connections, connection, self._indexes)
                return connection
            except BaseException as error:
                self.connections.give_back(connection)
                if not isinstance(error, psycopg.Error):
                    raise
                failure = self.connections.explain(error)
                if not connection.closed:
                    raise failure from error
        raise failure

    def _lock(
        self,
        connection: AnyConnection,
        function: str,
        key: int,
        wait_seconds: float,
        deadline: float | None = None,
    ) -> None:
        remaining = wait_seconds if deadline is None else deadline - time.monotonic()
        milliseconds = max(1, round(remaining * 1000))  # 0 would mean no limit
        try:
            connection.execute(f"SET lock_timeout = {milliseconds}".encode())
            connection.execute(f"SELECT {function}($1)".encode(), [key])
            connection.execute("SET lock_timeout = 0")
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            with suppress(psycopg.Error):
                connection.execute("SET lock_timeout = 0")
            raise Busy(
                f"Another process is writing to {self.connections.address}"
                f" (waited {wait_seconds:g} s)",
                "Wait until it has finished, or search without updating the index: --no-refresh",
            ) from error

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            connection = session.connection
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock_all()")
            self.connections.give_back(connection)


@contextmanager
def try_exclusive(connections: Connections) -> Iterator[PostgresSession | None]:
    """Exclude all writers if none is active, on a connection of its own; yield None otherwise."""
    key = schema.writer_key(connections.address.library)
    with connections.connection() as connection:
        row = connection.execute("SELECT pg_try_advisory_lock($1)", [key]).fetchone()
        if row is None or not row[0]:
            yield None
            return
        try:
            yield PostgresSession(connections, connection)
        finally:
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock($1)", [key])


def lock_documents(
    session: PostgresSession, library: str, documents: Sequence[DocumentId], *, all: bool
) -> None:
    """Lock documents until the end of the transaction, in the same order in every process.

    A batch that changes all documents, or very many, waits for all other commits and excludes them.
    """
    everything = schema.lock_key(library, "documents")
    keys = sorted({schema.lock_key(library, "document", *id) for id in documents})
    if all or len(keys) > MAX_DOCUMENT_LOCKS:
        session.value("SELECT pg_advisory_xact_lock(?)", [everything])
        return
    session.value("SELECT pg_advisory_xact_lock_shared(?)", [everything])
    if keys:
        session.all(
            "SELECT pg_advisory_xact_lock(t.value) FROM (SELECT value FROM integers(?) i"
            " ORDER BY key) t",
            [keys],
        )
