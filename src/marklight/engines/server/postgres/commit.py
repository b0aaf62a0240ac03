"""Write to a library: the writer lock, a commit in one transaction, and the states of files on each machine.

Writers share the writer lock, so that many write at once; maintenance takes it alone. It is an advisory lock of the connection,
which the server releases when the connection ends. Each thread that writes has a connection of its own. Commits run at the same
time but for a short last part. Every clone of a repository has its own file times of the same documents, so file states and
failures are stored for each machine.
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
from marklight.engines.relational.documents import RelationalDocuments
from marklight.engines.relational.snapshot import RelationalStatus
from marklight.engines.relational.write import touch_documents
from marklight.engines.server.postgres import DerivedIndex, schema
from marklight.engines.server.postgres.connections import AnyConnection, Connections, encode
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import add_term_vectors, add_vectors
from marklight.errors import Busy, ConnectionLost, Message
from marklight.model import Batch, DocumentId, Entry, Failure, FileState

if TYPE_CHECKING:
    from marklight.engines.server.postgres.engine import PostgresEngine, PostgresSnapshot
    from marklight.ports import IndexedFile


MAX_PATH_BYTES = 2000
"""Longest collection and path together: rows of PostgreSQL's indexes have at most 2,704 bytes."""


def apply(engine: PostgresEngine, session: PostgresSession, batch: Batch) -> int:
    """Apply a batch and return the new generation.

    Locks are taken in this order: documents, rows of the tables, and last the row of the state, so that generations have
    the order of commits. What needs that row is short, since all other commits wait for it.
    """
    machine = engine.settings.machine
    with session.transaction():
        _lock(session, batch)
        others = states_on_other_machines(session, machine, batch.entries)
        change = write.replace_documents(session, batch)
        states = ((item.document, item.entry.document.file) for item in change.inserted)
        add_file_states(session, machine, states)
        for item in change.inserted:
            for other, file in others.get(item.entry.document.id, ()):
                add_file_states(session, other, [(item.document, file)])
        touch_files(session, machine, batch.touched)
        replace_failures(session, machine, _replaced(batch), batch.failures)
        added = add_vectors(session, batch.vectors)
        add_term_vectors(session, batch.concepts)
        for index in (engine.lexical, engine.vectors):
            index.apply(session, change)
        session.run("UPDATE state SET committed = clock_timestamp()")  # locks the row
        generation = write.finish(session, change, added)
        for index in (engine.lexical, engine.vectors):
            index.finish(session, change, generation)
        engine.queue.finish(session, change)
    return generation


def _replaced(batch: Batch) -> list[DocumentId]:
    return [*batch.removed, *(entry.document.id for entry in batch.entries)]


def _lock(session: PostgresSession, batch: Batch) -> None:
    documents = [*_replaced(batch), *(id for id, _ in batch.touched)]
    lock_documents(session, documents, all=batch.communities is not None)


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
    def hold(self, wait_seconds: float) -> Iterator[None]:
        """Share the writer lock; raise Busy if maintenance takes longer. Creates the library if it does not exist."""
        if self._depth == 0:
            self._open(wait_seconds)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._close()

    @contextmanager
    def alone(self, wait_seconds: float) -> Iterator[PostgresSession]:
        """Begin a transaction that excludes all other writers; this thread may share the lock already."""
        with self.hold(wait_seconds), self.session.transaction():
            deadline = time.monotonic() + wait_seconds
            self._lock(self.session.connection, "pg_advisory_xact_lock", wait_seconds, deadline)
            yield self.session

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
        try:
            self._connect(wait_seconds)
        except (
            ConnectionLost
        ):  # the server had closed an idle connection: the pool checks all of them now
            self._connect(wait_seconds)

    def _connect(self, wait_seconds: float) -> None:
        deadline = time.monotonic() + wait_seconds
        connection = self.connections.borrow(wait_seconds)
        try:
            schema.prepare(self.connections, connection, self._indexes)
            self._prepare()
            self._lock(connection, "pg_advisory_lock_shared", wait_seconds, deadline)
        except BaseException as error:
            connection.close()
            self.connections.give_back(connection)
            if isinstance(error, psycopg.Error):
                raise self.connections.explain(error) from error
            raise
        self._session = PostgresSession(self.connections, connection)

    def _lock(
        self, connection: AnyConnection, function: str, wait_seconds: float, deadline: float
    ) -> None:
        milliseconds = max(1, round((deadline - time.monotonic()) * 1000))  # 0 would mean no limit
        try:
            key = schema.writer_key(connection)
            connection.execute(f"SET lock_timeout = {milliseconds}".encode())
            connection.execute(f"SELECT {function}($1)".encode(), [key])
            connection.execute("SET lock_timeout = 0")
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            raise Busy(
                f"Another process is writing to {self.connections.address}"
                f" (waited {wait_seconds:g} s)",
                Message(
                    "Wait until it has finished, or search without updating the index: --no-refresh",
                    "Wait until it has finished",
                ),
            ) from error

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(psycopg.Error):
                session.connection.execute("SELECT pg_advisory_unlock_all()")
            self.connections.give_back(session.connection)


def lock_documents(session: PostgresSession, documents: Sequence[DocumentId], *, all: bool) -> None:
    """Lock documents until the end of the transaction, in the same order in every process.

    A batch that changes all documents, or very many, waits for all other commits and excludes them.
    """
    secret = session.value(schema.READ_SECRET)
    everything = schema.lock_key(secret, "documents")
    keys = sorted({schema.lock_key(secret, "document", *id) for id in documents})
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


_GIVEN = "(d.collection, d.path) IN (SELECT i.collection, i.path FROM document_ids(?) i)"


class PostgresDocuments(RelationalDocuments):
    """Documents with the states of their files on this machine."""

    _session: PostgresSession

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._machine = snapshot.engine.settings.machine

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        return self._read_files(_GIVEN, [list(documents)])

    def _read_files(
        self, condition: str, values: Sequence[Any]
    ) -> Mapping[DocumentId, IndexedFile]:
        return _indexed_files(self._session, self._machine, condition, values)


class PostgresStatus(RelationalStatus):
    """Counts, manifest and remarks of the library, and the failures of this machine."""

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._own_failures = "machine = ?", [snapshot.engine.settings.machine]


def _indexed_files(
    session: PostgresSession, machine: str, condition: str, values: Sequence[Any]
) -> dict[DocumentId, IndexedFile]:
    """Return the documents that match a condition, with the states of their files on a machine."""
    from marklight.ports import IndexedFile

    rows = session.all(
        "SELECT d.collection, d.path, d.size, d.mtime_ns, f.size, f.mtime_ns, f.ctime_ns, d.digest,"
        " d.recipe FROM documents d LEFT JOIN file_states f ON f.document = d.row AND f.machine = ?"
        f" WHERE {condition}",
        [machine, *values],
    )
    return {
        DocumentId(*row[:2]): IndexedFile(
            FileState.elsewhere(*row[2:4]) if row[4] is None else FileState(*row[4:7]), *row[7:]
        )
        for row in rows
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
    states: dict[DocumentId, list[tuple[str, FileState]]] = defaultdict(list)
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
            states[DocumentId(*id)].append((other, FileState(size, mtime_ns, ctime_ns)))
    return states


def touch_files(
    session: PostgresSession, machine: str, touched: Sequence[tuple[DocumentId, FileState]]
) -> None:
    """Store new states of files with unchanged text, and the times of documents that this machine has read before.

    Others are files of a clone that it sees for the first time, whose times say nothing about the document.
    """
    if not touched:
        return
    ids = [id for id, _ in touched]
    read_before = {
        id
        for id, indexed in _indexed_files(session, machine, _GIVEN, [ids]).items()
        if not indexed.file.is_elsewhere
    }
    session.many(
        "INSERT INTO file_states (document, machine, size, mtime_ns, ctime_ns)"
        " SELECT row, ?, ?, ?, ? FROM documents WHERE collection = ? AND path = ?"
        " ON CONFLICT (document, machine) DO UPDATE SET size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns",
        ((machine, *clamp_times(file), *id) for id, file in touched),
    )
    touch_documents(session, [(id, file) for id, file in touched if id in read_before])


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
