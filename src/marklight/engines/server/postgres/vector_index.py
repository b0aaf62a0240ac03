"""The vector index in PostgreSQL: one HNSW graph of pgvector per model, built outside of commits once a library is large.

PostgreSQL updates the graph with each vector that a commit inserts. It contains unit vectors in half precision; results are
scored again with the stored ones. Without it, or while it is being built, searches compare all vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors, sql

from marklight.engines.server.postgres.schema import lock_key
from marklight.engines.server.postgres.vector_table import TABLES

if TYPE_CHECKING:
    from marklight.engines import PostgresSettings
    from marklight.engines.server.postgres.connections import AnyConnection, Connections
    from marklight.engines.server.postgres.indexes import Change
    from marklight.engines.server.postgres.session import PostgresSession
    from marklight.engines.server.postgres.snapshot import PostgresSnapshot
    from marklight.engines.server.postgres.vector_search import ModelCache, PostgresVectorReader

MAX_DIMENSION = 4000
"""Most numbers of a vector that pgvector indexes in half precision."""
_CLOSE_SECONDS = 2.0
"""Seconds that closing waits for a build; the server completes the statement that it has begun without us."""
_MIN_BUILD_KB, _MAX_BUILD_KB = 64 * 1024, 1024 * 1024
"""Memory for a build; the maximum is larger on a server whose own setting is."""
_MIN_EMBEDDED_SHARE = 0.8
"""Share of the passages that must have a vector: adding them one by one takes three to six times as long as building the
index at once (benchmarks/pgvector.py)."""
HNSW_M, HNSW_EF_CONSTRUCTION = 16, 64
"""Edges of a node, and candidates that are compared when a vector is added: the defaults of pgvector."""
_PREFIX, _LOCK = "vectors_hnsw_", "vector index"
_BUILD_ERRORS = (errors.OutOfMemory, errors.DiskFull, errors.InsufficientResources)
"""Raised if shared memory is too small for a parallel build, as in containers with 64 MB of it."""

_INDEXES = (
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " WHERE i.indrelid = to_regclass('vectors') AND starts_with(c.relname, $1)"
)
_IS_OWNER = (
    "SELECT pg_has_role(relowner, 'USAGE') AND NOT pg_is_in_recovery() FROM pg_class"
    " WHERE oid = to_regclass('vectors')"
)
_SET_MEMORY = (
    "SELECT set_config('maintenance_work_mem', least($1, greatest($2, setting::bigint)) || 'kB', false)"
    " FROM pg_settings WHERE name = 'maintenance_work_mem'"
)


def index_name(model_row: int) -> str:
    """Return the name of the HNSW index of a model."""
    return f"{_PREFIX}{model_row}"


def unit_halfvec(dimension: int) -> str:
    """Return the expression on the table `vectors` that is indexed; a query uses the index if it contains the same one.

    Vectors are normalised first: numbers above 65,504 do not fit into half precision. So the inner product is the cosine,
    and vectors of zeros, which have none, are indexed too.
    """
    return f"(l2_normalize(embedding)::halfvec({int(dimension)}))"


class _Work(NamedTuple):
    """Indexes to delete and models to build one for."""

    unusable: list[str]
    missing: list[tuple[int, int, int]]
    """Row, dimension and number of passages of models without an index."""

    def __bool__(self) -> bool:
        return bool(self.unusable or self.missing)


class PostgresVectors:
    """Vectors in the database, searched with pgvector."""

    tables: Sequence[str] = ("vectors", "term_vectors", "models")
    create_tables = TABLES

    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self._lock = Lock()
        self._due = True
        """True if the indexes may need work: when the engine is opened, and after commits with vectors."""
        self._builder: Thread | None = None
        self._notices: list[str] = []
        self._models: ModelCache | None = None

    def prepare(self, connections: Connections) -> None:
        """Build an index that is missing although nothing is committed: others, who may not build it, embedded the passages."""
        self.after_commit(connections)

    def apply(self, session: PostgresSession, change: Change) -> None:
        """Do nothing: `vector_table.add_vectors` inserts the vectors, for every kind of vector index."""

    def finish(self, session: PostgresSession, change: Change, generation: int) -> None:  # noqa: ARG002
        """Update the row up to which all passages have a vector.

        Concurrent commits become visible in another order than that of their rows, so new passages may lower it.
        """
        rows = [row for each in change.inserted for row in each.chunks[:1]]
        if rows:
            session.run(
                "UPDATE models SET embedded_to = ? WHERE embedded_to >= ?",
                [min(rows) - 1, min(rows)],
            )
        if change.batch.vectors and change.batch.vectors.digests:
            self._due = True
            session.run(
                "UPDATE models m SET embedded_to = coalesce("
                " (SELECT c.row - 1 FROM chunks c WHERE c.row > m.embedded_to AND c.digest <> '' AND NOT EXISTS"
                "  (SELECT 1 FROM vectors v WHERE v.digest = c.digest AND v.model = m.row OFFSET 0)"
                "  ORDER BY c.row LIMIT 1), (SELECT max(c.row) FROM chunks c), 0) WHERE m.name = ?",
                [change.batch.vectors.model],
            )

    def after_commit(self, connections: Connections) -> None:
        """Build the index of a model that has become large, and delete unusable ones, in a thread of its own."""
        if not self._due:
            return
        with connections.connection() as connection:
            has_work = bool(self._work(connection))
        self._due = False
        if not has_work:
            return
        with self._lock:
            if self._builder is not None and self._builder.is_alive():
                self._due = True  # it may be about to end
            else:
                self._builder = Thread(
                    target=self._build, args=(connections,), name="marklight-hnsw", daemon=True
                )
                self._builder.start()

    def reader(self, snapshot: PostgresSnapshot) -> PostgresVectorReader:
        """Return the reader for a snapshot."""
        from marklight.engines.server.postgres.vector_search import ModelCache, PostgresVectorReader

        if self._models is None:
            self._models = ModelCache()
        return PostgresVectorReader(snapshot, self.settings, self._models)

    def clean(self, session: PostgresSession, keep: Iterable[str]) -> int:
        """Delete vectors that no passage uses and all of other models; their indexes are deleted after the commit."""
        self._due = True
        others = [
            row
            for (row,) in session.all(
                "SELECT row FROM models WHERE name NOT IN (SELECT t.value FROM texts(?) t)",
                [list(keep)],
            )
        ]
        deleted = session.run("DELETE FROM vectors WHERE model = ANY(?::bigint[])", [others])
        session.run("DELETE FROM models WHERE row = ANY(?::bigint[])", [others])
        deleted += session.run(
            "DELETE FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest)"
        )
        session.run("UPDATE state SET unused_vectors = 0 WHERE unused_vectors <> 0")
        return deleted

    def check(self, session: PostgresSession) -> list[str]:
        """Report vectors of a wrong dimension and unusable indexes; the latter are built again after the check."""
        self._due = True
        wrong = session.all(
            "SELECT m.name, count(*) FROM vectors v JOIN models m ON m.row = v.model"
            " WHERE vector_dims(v.embedding) <> m.dimension GROUP BY 1 ORDER BY 1"
        )
        problems = [
            f"{count} vectors of {name} had another dimension than the model and have been deleted"
            for name, count in wrong
        ]
        if wrong:
            session.run(
                "DELETE FROM vectors v USING models m"
                " WHERE m.row = v.model AND vector_dims(v.embedding) <> m.dimension"
            )
        key = lock_key(session.connections.address.library, _LOCK)
        if session.value("SELECT pg_try_advisory_xact_lock(?)", [key]):  # else one is being built
            with session.locked() as connection:
                unusable = self._work(connection).unusable
            problems += [
                f"The vector index {name} was unusable and is being rebuilt" for name in unusable
            ]
        return problems

    def status(self, session: PostgresSession) -> Mapping[str, Any]:  # noqa: ARG002
        """Return nothing: the index is in PostgreSQL."""
        return {}

    def take_notices(self) -> list[str]:
        """Return and clear the notices about builds that failed."""
        with self._lock:
            notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """Wait a moment for a build; one that takes longer is completed by the server."""
        if self._builder is not None:
            self._builder.join(_CLOSE_SECONDS)

    def wait(self) -> None:
        """Wait until the indexes are built."""
        if self._builder is not None:
            self._builder.join()

    def _work(self, connection: AnyConnection) -> _Work:
        """Return what has to be done: unusable indexes, and those of deleted models; large models without one.

        A role that does not own the table can do nothing about them, so it has no work; nor is there any on a replica.
        """
        owner = connection.execute(_IS_OWNER).fetchone()
        if not owner or not owner[0]:
            return _Work([], [])
        indexes: dict[str, bool] = dict(connection.execute(_INDEXES, [_PREFIX]).fetchall())
        models: list[Any] = connection.execute(
            "SELECT m.row, m.dimension, m.embedded, s.chunks FROM models m CROSS JOIN state s"
        ).fetchall()
        known = {index_name(row) for row, *_ in models}
        unusable = [name for name, valid in indexes.items() if not valid or name not in known]
        missing = [
            (row, dimension, passages)
            for row, dimension, passages, total in models
            if not indexes.get(index_name(row))
            and passages >= max(1, self.settings.exact_below, _MIN_EMBEDDED_SHARE * total)
            and dimension <= MAX_DIMENSION
        ]
        return _Work(unusable, missing)

    def _build(self, connections: Connections) -> None:
        """Delete and build indexes one after another, unless another process does so."""
        try:
            with connections.connection() as connection:
                key = lock_key(connections.address.library, _LOCK)
                locked = connection.execute("SELECT pg_try_advisory_lock($1)", [key]).fetchone()
                if locked is None or not locked[0]:
                    return
                try:
                    connection.execute("SET statement_timeout = 0")
                    connection.execute("SET lock_timeout = 0")
                    while work := self._work(connection):  # commits may go on meanwhile
                        for name in work.unusable:
                            self._drop(connection, name)
                        for row, dimension, passages in work.missing:
                            self._create(connection, row, dimension, passages)
                finally:
                    if not connection.closed:
                        connection.execute("RESET ALL")
                        connections.configure(connection)
                        connection.execute("SELECT pg_advisory_unlock($1)", [key])
        except (
            Exception
        ) as error:  # a search works without the index, so nobody waits for this thread
            with self._lock:
                self._notices.append(
                    f"The vector index could not be built, so searches compare all vectors: {error}"
                )

    def _drop(self, connection: AnyConnection, name: str) -> None:
        statement = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}")
        connection.execute(statement.format(sql.Identifier(name)))

    def _create(self, connection: AnyConnection, row: int, dimension: int, passages: int) -> None:
        """Build the index of a model while commits and searches go on."""
        # In memory a node has its vector, and two edges of 8 bytes with as much overhead for each of m. A parallel build
        # reserves all of the memory that it is given, so it gets no more than it needs.
        needed = passages * (2 * dimension + 32 * HNSW_M + 300) // 1000
        connection.execute(_SET_MEMORY, [max(_MIN_BUILD_KB, needed), _MAX_BUILD_KB])
        statement = sql.SQL(
            f"CREATE INDEX CONCURRENTLY {{}} ON vectors USING hnsw ({unit_halfvec(dimension)} halfvec_ip_ops)"
            f" WITH (m = {HNSW_M}, ef_construction = {HNSW_EF_CONSTRUCTION})"
            f" WHERE model = {row}"
        ).format(sql.Identifier(index_name(row)))
        connection.execute("ANALYZE vectors (digest, model)")
        try:
            connection.execute(statement)
        except _BUILD_ERRORS:
            self._drop(connection, index_name(row))
            connection.execute("SET max_parallel_maintenance_workers = 0")
            connection.execute(statement)
        except psycopg.Error:
            if not connection.closed:
                self._drop(connection, index_name(row))
            raise
