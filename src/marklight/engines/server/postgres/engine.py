"""The PostgreSQL engine: one server for many people; many writers at once, and readers that never wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from marklight.engines import EngineAddress, ServerSettings
from marklight.engines.relational.documents import RelationalContents
from marklight.engines.relational.snapshot import Caches, RelationalSnapshot
from marklight.engines.relational.write import ChangedRows
from marklight.engines.server.postgres import LexicalIndex, VectorIndex, schema
from marklight.engines.server.postgres.commit import (
    PostgresDocuments,
    PostgresStatus,
    Writers,
    apply,
    without_long_paths,
)
from marklight.engines.server.postgres.connections import Connections, MissingLibrary, ServerAddress
from marklight.engines.server.postgres.jobs import JobQueue
from marklight.engines.server.postgres.replicas import Readers, primary_dsn
from marklight.engines.server.postgres.session import (
    PostgresSession,
    borrowed_session,
    open_snapshot,
)
from marklight.engines.server.postgres.vector_index import STORED, unpack
from marklight.errors import Busy, ConnectionLost, ReadOnly, StoreError
from marklight.lazy import once
from marklight.model import Batch, DocumentId, FileState
from marklight.ports import Snapshot

if TYPE_CHECKING:
    from marklight.engines.relational import Row
    from marklight.engines.relational.filters import RowReader
    from marklight.model import Matrix
    from marklight.ports import VectorReader

WAIT_SECONDS = 10.0
"""Seconds that cleaning and checking wait for writers."""
_COMMIT_ATTEMPTS = 3
_SNAPSHOT_ATTEMPTS = 3
_MAINTENANCE_CONNECTIONS = 3
_MAY_ONLY_READ = (
    "SELECT pg_is_in_recovery() OR coalesce(NOT has_table_privilege("
    "(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = $1 AND c.relname = 'state'), 'UPDATE'), false)"
)
_SERVER = (
    "SELECT current_setting('server_version'),"
    " (SELECT extversion FROM pg_extension WHERE extname = 'vector'), current_user::text"
)
_LAST_WRITE = (
    "SELECT to_char(committed AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM state"
)
_TABLE_BYTES = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
)


class PostgresEngine:
    """An index in a schema of a PostgreSQL database.

    Readers, writers and maintenance have pools of their own, so that none of them waits for a connection of another.
    """

    def __init__(self, address: EngineAddress, settings: ServerSettings | None = None) -> None:
        self.address = address
        self.settings = settings or ServerSettings()
        total = self.settings.postgres.connections
        writing = max(1, total // 4)
        self.primary = self._connections(writing)
        self.maintenance = self._connections(_MAINTENANCE_CONNECTIONS)
        server = ServerAddress(address.dsn, address.library, str(address))
        staleness = self.settings.postgres.staleness_seconds
        self.readers = Readers(server, staleness, max(1, total - writing))
        self._indexes = self.lexical, self.vectors = open_indexes(address, self.settings)
        self.writers = Writers(
            self.primary, self._indexes, lambda: self._prepare_indexes(self.maintenance)
        )
        self.caches = Caches()
        self.queue = JobQueue(self.maintenance, self.readers.choose)
        self._notices: deque[str] = deque()
        self._read_only: bool | None = None

    def _connections(self, size: int) -> Connections:
        dsn = primary_dsn(self.address.dsn)
        return Connections(
            ServerAddress(dsn, self.address.library, str(self.address)), max_size=size
        )

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        opened = self._open_snapshot()
        if opened is None:
            from marklight.engines.embedded.engine import empty_snapshot

            with empty_snapshot() as empty:
                yield empty
            return
        try:
            yield opened
        finally:
            opened.session.close()

    def _open_snapshot(self) -> PostgresSnapshot | None:
        """Open a snapshot on a server that responds; None if the library does not exist."""
        for attempt in range(1, _SNAPSHOT_ATTEMPTS + 1):
            connections = self.readers.choose()
            try:
                self._prepare_indexes(connections)
                session, state = open_snapshot(connections)
                return PostgresSnapshot(self, session, state)
            except MissingLibrary:
                with connections.connection() as connection:
                    schema.check_usage(connections, connection)
                return None
            except Busy:
                raise
            except StoreError as error:
                self.readers.failed(connections)
                # The next server may respond; a server that is alone is asked again after a lost connection only.
                others = self.readers.choose() is not connections
                if attempt == _SNAPSHOT_ATTEMPTS or not (
                    others or isinstance(error, ConnectionLost)
                ):
                    raise
        raise AssertionError("unreachable")

    def _prepare_indexes(self, connections: Connections) -> None:
        for index in self._indexes:
            index.prepare(connections)

    @contextmanager
    def writing(self, wait_seconds: float) -> Iterator[None]:
        if self.read_only():
            raise self._refuse_writing()
        with self.writers.hold(wait_seconds):
            yield

    def commit(self, batch: Batch) -> int:
        """Apply a batch in one transaction; one that the server ended as part of a deadlock is repeated."""
        session = self.writers.session
        if not batch:
            return int(session.value("SELECT generation FROM state"))
        batch, left_out = without_long_paths(batch)
        if left_out:
            self._notices.append(
                f"Documents not indexed because their paths are too long for PostgreSQL: {left_out}"
            )
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                generation = apply(self, session, batch)
                break
            except Busy:
                if attempt == _COMMIT_ATTEMPTS:
                    raise
            except ConnectionLost as error:
                raise StoreError(
                    f"{error.message} (during a commit)",
                    "The commit was stored completely or not at all."
                    " Run `marklight index`, which continues from there",
                ) from error
        self._after_commit()
        return generation

    def _after_commit(self) -> None:
        with suppress(
            StoreError
        ):  # the primary is gone, and what it committed is on no other server
            self.readers.committed(self.writers.session)
        for index in self._indexes:
            try:
                index.after_commit(self.maintenance)
            except StoreError as error:  # everything is committed: the next commit tries again
                self._notices.append(str(error))

    def _refuse_writing(self) -> ReadOnly:
        if not self.readers.primary_answers():
            return ReadOnly(
                f"The primary server of {self.address} does not answer, so the index cannot be changed",
                "Searches continue from replicas. Check that one of the servers is a primary, and try again",
            )
        return ReadOnly(
            f"This role may read {self.address} but not change it",
            "Searches work. To index documents, connect as a role that may write",
        )

    def clean(self, keep: Iterable[str]) -> int:
        from marklight.engines.relational.write import delete_unused_vectors

        models = tuple(keep)
        if not self._exists():
            return 0
        with self._maintaining() as session:
            deleted = delete_unused_vectors(session, models)
            self.queue.clean(session, models)
            if deleted:  # a new generation, so that no reader continues with cached values
                query = "UPDATE state SET generation = generation + 1 RETURNING generation"
                self._finish_indexes(session, session.value(query))
        return deleted

    @contextmanager
    def _maintaining(self) -> Iterator[PostgresSession]:
        """Begin a transaction without other writers."""
        with self.writers.hold(WAIT_SECONDS):
            with self.writers.alone(WAIT_SECONDS) as session:
                for index in self._indexes:
                    index.maintain()
                yield session
            self._after_commit()

    def _finish_indexes(self, session: PostgresSession, generation: int) -> None:
        for index in self._indexes:
            index.finish(session, ChangedRows(Batch()), generation)

    def sizes(self) -> Mapping[str, int]:
        with borrowed_session(self.readers.choose()) as session:
            if schema.read_version(session.connection) is None:
                return {}
            tables: dict[str, int] = dict(session.all(_TABLE_BYTES))
        lexical, vectors = (
            sum(tables.pop(name, 0) for name in index.tables) for index in self._indexes
        )
        return {"library": sum(tables.values()), "lexical": lexical, "vectors": vectors}

    def count_unused_vectors(self) -> int:
        opened = self._open_snapshot()
        if opened is None:
            return 0
        opened.session.close()
        return int(opened.unused_vectors)

    def check(self) -> list[str]:
        if not self._exists():
            return []
        from marklight.engines.relational.write import repair_tables

        with self._maintaining() as session:
            before = session.value("SELECT generation FROM state")
            problems = repair_tables(session)
            generation = session.value("SELECT generation FROM state")
            if generation != before:
                self._finish_indexes(session, generation)
            for index in self._indexes:
                problems += index.check(session)
        return problems

    def take_notices(self) -> list[str]:
        notices: list[str] = []
        for queue in (self._notices, *(index.notices for index in self._indexes)):
            with suppress(IndexError):  # other threads take from it too
                while True:
                    notices.append(queue.popleft())
        return notices + self.readers.take_notices()

    def describe(self) -> str:
        return str(self.address)

    def close(self) -> None:
        for index in self._indexes:
            index.close()
        self.readers.close()
        self.primary.close()
        self.maintenance.close()

    def read_only(self) -> bool:
        if not self.readers.primary_answers():
            return True
        if self._read_only is None:
            with self.maintenance.connection() as connection:
                row = connection.execute(_MAY_ONLY_READ, [self.address.library]).fetchone()
            self._read_only = bool(row and row[0])
        return self._read_only

    def server(self) -> Mapping[str, Any]:
        with borrowed_session(self.readers.choose()) as session:
            version, pgvector, role = session.all(_SERVER)[0]
            facts = {
                "version": version,
                "pgvector": pgvector,
                "library": self.address.library,
                "role": role,
                "access": "read" if self.read_only() else "write",
            }
            if schema.read_version(session.connection) is not None:
                facts["last_write"] = session.value(_LAST_WRITE)
                facts.update(self.lexical.status(session))
        if hosts := self.readers.status():
            facts["hosts"] = dict(hosts)
        return facts

    def _exists(self) -> bool:
        with self.primary.connection() as connection:
            return schema.read_version(connection) is not None


def open_indexes(
    address: EngineAddress, settings: ServerSettings
) -> tuple[LexicalIndex, VectorIndex]:
    """Open the derived indexes that the address names: in PostgreSQL, or on Qdrant."""
    if address.vectors:
        from marklight.engines.server.qdrant import open_indexes as open_qdrant

        return open_qdrant(address.vectors, settings)
    from marklight.engines.server.postgres.lexical_index import PostgresLexical
    from marklight.engines.server.postgres.vector_index import PostgresVectors

    lexical = PostgresLexical(round(settings.postgres.lexical_cache_mb * 1_000_000))
    return lexical, PostgresVectors(settings.postgres)


class PostgresSnapshot(RelationalSnapshot):
    """Consistent view of one commit; keyword and vector search come from the indexes of the engine."""

    session: PostgresSession

    def __init__(self, engine: PostgresEngine, session: PostgresSession, state: Row) -> None:
        """Take the columns of `schema.READ_STATE`."""
        _, generation, library, *counts = state
        self.document_count, self.chunk_count, self.unused_vectors = counts
        super().__init__(session, engine.caches, library, generation)
        self.engine = engine

    @once
    def documents(self) -> PostgresDocuments:
        return PostgresDocuments(self)

    @once
    def lexical(self) -> RowReader:
        return self.engine.lexical.reader(self)

    @once
    def vectors(self) -> VectorReader:
        return self.engine.vectors.reader(self)

    @once
    def contents(self) -> PostgresContents:
        return PostgresContents(self)

    @once
    def status(self) -> PostgresStatus:
        return PostgresStatus(self)


class PostgresContents(RelationalContents):
    """Documents and vectors, ordered by key."""

    stored_vector = STORED

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._documents = snapshot.documents

    def file_states(self, documents: Sequence[DocumentId]) -> Mapping[DocumentId, FileState]:
        files = self._documents.files_of(documents)
        return {id: indexed.file for id, indexed in files.items()}

    def decode_vectors(self, model: str, rows: Sequence[bytes], dimension: int) -> Matrix:  # noqa: ARG002
        return unpack(rows, dimension)
