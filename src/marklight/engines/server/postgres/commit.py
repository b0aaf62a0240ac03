"""Write to a library: the writer lock, a commit in one transaction, and file states per machine.

Writers share the writer lock, so that many write at once; maintenance takes it alone. It is an advisory lock of the connection,
which the server releases when the connection ends. Each thread that writes has a connection of its own. Commits run at the same
time but for a short last part. Every clone of a repository has its own file times of the same documents, so states and failures of
files are stored for each machine.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import local
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from marklight.engines.metadata_filters import clamp_times
from marklight.engines.relational import write
from marklight.engines.relational.write import touch_documents
from marklight.engines.server.postgres import schema
from marklight.engines.server.postgres.connections import AnyConnection, Connections, encode
from marklight.engines.server.postgres.indexes import DerivedIndex, IndexChange
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import add_term_vectors, add_vectors
from marklight.errors import Busy
from marklight.model import Batch, DocumentId, Entry, Failure, FileState
from marklight.ports import IndexedFile, PathRange

if TYPE_CHECKING:
    from marklight.engines.server.postgres.engine import PostgresEngine

MAX_PATH_BYTES = 2000
"""Longest collection and path together: rows of PostgreSQL's indexes have at most 2,704 bytes."""


def apply(engine: PostgresEngine, session: PostgresSession, batch: Batch) -> int:
    """Apply a batch and return the new generation.

    Locks are taken in this order: documents, rows of the tables, and last the row of the state, so that generations have
    the order of commits. What needs that row is short, since all other commits wait for it.
    """
    machine = engine.settings.machine
    with session.transaction():
        _lock(session, engine.address.library, batch)
        others = states_on_other_machines(session, machine, batch.entries)
        rows = write.replace_documents(session, batch)
        states = ((item.document, item.entry.document.file) for item in rows.inserted)
        add_file_states(session, machine, states)
        for item in rows.inserted:
            for other, file in others.get(item.entry.document.id, ()):
                add_file_states(session, other, [(item.document, file)])
        touch_files(session, machine, batch.touched)
        replace_failures(session, machine, _replaced(batch), batch.failures)
        added = add_vectors(session, batch.vectors)
        add_term_vectors(session, batch.concepts)
        change = IndexChange(
            batch, rows.inserted, sorted(rows.deleted.values()), sorted(rows.deleted_chunks)
        )
        for index in (engine.lexical, engine.vectors):
            index.apply(session, change)
        session.run("UPDATE state SET committed = clock_timestamp()")  # locks the row
        generation = write.finish(
            session, batch, rows, [write.AddedVectors(*added)] if added else []
        )
        for index in (engine.lexical, engine.vectors):
            index.finish(session, change, generation)
        engine.queue.finish(session, change)
    return generation


def _replaced(batch: Batch) -> list[DocumentId]:
    return [*batch.removed, *(entry.document.id for entry in batch.entries)]


def _lock(session: PostgresSession, library: str, batch: Batch) -> None:
    documents = [*_replaced(batch), *(id for id, _ in batch.touched)]
    lock_documents(session, library, documents, all=batch.communities is not None)


def without_long_paths(batch: Batch) -> tuple[Batch, int]:
    """Return the batch without documents whose path cannot be indexed, and how many there are."""
    entries = tuple(entry for entry in batch.entries if _fits(entry.document.id))
    failures = tuple(failure for failure in batch.failures if _fits(failure.document))
    left_out = len(batch.entries) - len(entries)
    if not left_out and len(failures) == len(batch.failures):
        return batch, 0
    return replace(batch, entries=entries, failures=failures), left_out


def _fits(id: DocumentId) -> bool:
    # A character has at most 6 bytes when it is encoded.
    characters = len(id.collection) + len(id.path)
    return characters * 6 <= MAX_PATH_BYTES or (
        len(encode(id.collection + id.path).encode()) <= MAX_PATH_BYTES
    )


_SELECT = (
    "SELECT d.collection, d.path, d.size, d.mtime_ns, f.size, f.mtime_ns, f.ctime_ns, d.digest, d.recipe"
    " FROM {} LEFT JOIN file_states f ON f.document = d.row AND f.machine = ?"
)


def indexed_files(
    session: PostgresSession, machine: str, ranges: Sequence[PathRange] | None
) -> Mapping[DocumentId, IndexedFile]:
    """Return all documents, or those in some ranges, with the state of their files on a machine."""
    if ranges is None:
        return _indexed_files(session, _SELECT.format("documents d"), [machine])
    found: dict[DocumentId, IndexedFile] = {}
    for each in ranges:
        condition = " WHERE d.collection = ? AND d.path >= ?"
        values = [machine, each.collection, each.first]
        if each.end is not None:
            condition += " AND d.path < ?"
            values.append(each.end)
        found.update(_indexed_files(session, _SELECT.format("documents d") + condition, values))
    return found


def indexed_files_of(
    session: PostgresSession, machine: str, documents: Iterable[DocumentId]
) -> Mapping[DocumentId, IndexedFile]:
    """Return the states of the files of these documents on a machine; missing ids are skipped."""
    table = "document_ids(?) i JOIN documents d ON d.collection = i.collection AND d.path = i.path"
    return _indexed_files(session, _SELECT.format(table), [list(documents), machine])


def _indexed_files(
    session: PostgresSession, query: str, values: Sequence[object]
) -> dict[DocumentId, IndexedFile]:
    return {
        DocumentId(*row[:2]): IndexedFile(
            FileState.elsewhere(*row[2:4]) if row[4] is None else FileState(*row[4:7]), *row[7:]
        )
        for row in session.all(query, values)
    }


def add_file_states(
    session: PostgresSession, machine: str, states: Iterable[tuple[int, FileState]]
) -> None:
    """Store the states of the files of new documents, given by row."""
    session.insert(
        "file_states",
        "document, machine, size, mtime_ns, ctime_ns",
        ((document, machine, *clamp_times(file)) for document, file in states),
    )


def states_on_other_machines(
    session: PostgresSession, machine: str, entries: Iterable[Entry]
) -> Mapping[DocumentId, Sequence[tuple[str, FileState]]]:
    """Return the states that other machines have stored for documents whose text stays the same; they remain valid."""
    made_from = {entry.document.id: entry.replaces for entry in entries if entry.replaces}
    found: dict[DocumentId, list[tuple[str, FileState]]] = defaultdict(list)
    for *id, text, other, size, mtime_ns, ctime_ns in (
        session.all(
            "SELECT d.collection, d.path, d.digest, f.machine, f.size, f.mtime_ns, f.ctime_ns"
            " FROM document_ids(?) i JOIN documents d ON d.collection = i.collection AND d.path = i.path"
            " JOIN file_states f ON f.document = d.row AND f.machine <> ?",
            [list(made_from), machine],
        )
        if made_from
        else ()
    ):
        if made_from[DocumentId(*id)] == text:
            found[DocumentId(*id)].append((other, FileState(size, mtime_ns, ctime_ns)))
    return found


def touch_files(
    session: PostgresSession, machine: str, touched: Sequence[tuple[DocumentId, FileState]]
) -> None:
    """Store new states of files with unchanged text, and the times of documents that this machine has read before.

    Others are files of a clone that it sees for the first time, whose times say nothing about the document.
    """
    if not touched:
        return
    known = {
        id
        for id, indexed in indexed_files_of(session, machine, [id for id, _ in touched]).items()
        if not indexed.file.is_elsewhere
    }
    session.many(
        "INSERT INTO file_states (document, machine, size, mtime_ns, ctime_ns)"
        " SELECT row, ?, ?, ?, ? FROM documents WHERE collection = ? AND path = ?"
        " ON CONFLICT (document, machine) DO UPDATE SET size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns",
        ((machine, *clamp_times(file), *id) for id, file in touched),
    )
    touch_documents(session, [(id, file) for id, file in touched if id in known])


def read_failures(session: PostgresSession, machine: str) -> list[Failure]:
    """Return the files that a machine could not index, ordered by path."""
    return [
        Failure(DocumentId(*row[:2]), row[2], None if row[3] is None else FileState(*row[3:]))
        for row in session.all(
            "SELECT collection, path, reason, size, mtime_ns, ctime_ns FROM failures"
            " WHERE machine = ? ORDER BY 1, 2",
            [machine],
        )
    ]


def count_failures(session: PostgresSession, machine: str) -> int:
    """Return the number of files that a machine could not index."""
    return int(session.value("SELECT count(*) FROM failures WHERE machine = ?", [machine]))


def replace_failures(
    session: PostgresSession,
    machine: str,
    documents: Sequence[DocumentId],
    failures: Iterable[Failure],
) -> None:
    """Delete the failures of a machine for these documents, and store new ones."""
    if documents:
        session.run(
            "DELETE FROM failures f USING document_ids(?) i"
            " WHERE f.machine = ? AND f.collection = i.collection AND f.path = i.path",
            [documents, machine],
        )
    session.many(
        "INSERT INTO failures (machine, collection, path, reason, size, mtime_ns, ctime_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (machine, collection, path) DO UPDATE"
        " SET reason = excluded.reason, size = excluded.size, mtime_ns = excluded.mtime_ns,"
        " ctime_ns = excluded.ctime_ns",
        (
            (
                *(machine, *failure.document, failure.reason),
                *(clamp_times(failure.file) if failure.file else (None, None, None)),
            )
            for failure in failures
        ),
    )


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
