"""Lexical and vector index on Qdrant, as a PostgreSQL engine uses them: written through the outbox, shipped after each commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from marklight.engines.lexical import analyzer_fingerprint
from marklight.engines.server.postgres import schema
from marklight.engines.server.postgres.connections import MissingLibrary
from marklight.engines.server.postgres.indexes import DerivedIndex, RowReader
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import PostgresVectors
from marklight.engines.server.qdrant import collections, outbox, shipper
from marklight.engines.server.qdrant.cluster import Cluster
from marklight.engines.server.qdrant.reading import Caches, SharedReader
from marklight.errors import StoreError

if TYPE_CHECKING:
    from marklight.engines import Host, ServerSettings
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.postgres.indexes import IndexChange
    from marklight.engines.server.qdrant.lexical import QdrantLexicalReader
    from marklight.engines.server.qdrant.reading import QdrantVectorReader

REBUILT = (
    "The terms in Qdrant were written again, because this version of Marklight analyzes text differently;"
    " that happens once after an update"
)

WAIT_SECONDS = 1.0
"""Time that a search waits for a commit that is being shipped."""
PAUSE_SECONDS = 5.0
"""Time for which searches do not wait again after that was in vain."""


def open_indexes(
    hosts: Sequence[Host], settings: ServerSettings
) -> tuple[QdrantLexicalIndex, QdrantVectorIndex]:
    """Return both indexes of a library; they share connections and caches."""
    shared = _Shared(Cluster(hosts, settings.qdrant))
    return QdrantLexicalIndex(shared), QdrantVectorIndex(settings.postgres)


class _Shared:
    """Connections and caches of both indexes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.caches = Caches()
        self.failure: StoreError | None = None
        """Error of the last attempt to ship."""

    def close(self) -> None:
        self.cluster.close()
        self.caches = Caches()


class QdrantLexicalIndex(DerivedIndex[RowReader]):
    """Terms of passages in Qdrant; fills and ships the outbox for both indexes."""

    tables = outbox.TABLE_NAMES
    """Qdrant does not report the bytes of a collection, so only those in PostgreSQL are shown."""
    create_tables = outbox.TABLES

    def __init__(self, shared: _Shared) -> None:
        super().__init__()
        self._shared = shared
        self._has_tables = False
        self._next_wait = 0.0

    def prepare(self, connections: Connections) -> None:
        """Wait a moment for commits that are being shipped, and ship those that nobody ships.

        A document that was replaced is not found until its commit is shipped. If that takes long, as while no node can be
        reached, searches go on with the last generation that was shipped, and do not wait again for a while.
        """
        if time.monotonic() < self._next_wait:
            return
        try:
            with connections.connection() as connection:
                if not self._has_tables:
                    if schema.read_version(connection) is None:
                        return
                    # The library was created before Qdrant was configured.
                    schema.prepare(connections, connection, [self])
                    self._has_tables = True
                backlog = shipper.read_backlog(PostgresSession(connections, connection))
            if backlog.analyzer not in ("", analyzer_fingerprint()) and backlog.may_ship:
                with shipper.shipping(connections, wait_seconds=0.0) as session:
                    if session is not None:
                        shipper.rebuild(session, self._shared.cluster)
                        self.notices.append(REBUILT)
            elif backlog.is_behind and backlog.may_ship:
                shipper.ship(connections, self._shared.cluster, WAIT_SECONDS)
            elif backlog.is_behind:
                shipper.wait(connections, WAIT_SECONDS)
        except StoreError as error:
            self._fail(error)
        else:
            self._shared.failure = None

    def _fail(self, error: StoreError) -> None:
        """Let searches go on, and report once why they do not find the newest changes."""
        self._next_wait = time.monotonic() + PAUSE_SECONDS
        if self._shared.failure is None:
            self.notices.append(f"Searches do not find the newest changes yet. {error}")
        self._shared.failure = error

    def finish(self, session: PostgresSession, change: IndexChange, generation: int) -> None:
        outbox.fill(session, change, generation)

    def after_commit(self, connections: Connections) -> None:
        """Ship the outbox; what cannot be shipped now stays in it."""
        try:
            shipper.ship(connections, self._shared.cluster)
        except StoreError as error:
            self._fail(error)
        else:
            self._shared.failure = None

    def reader(self, snapshot: Any) -> QdrantLexicalReader:
        """Return the reader for a snapshot."""
        from marklight.engines.server.qdrant.lexical import QdrantLexicalReader

        shared = self._shared
        return QdrantLexicalReader(
            SharedReader(snapshot, shared.cluster, shared.caches, lambda: shared.failure)
        )

    def check(self, session: PostgresSession) -> list[str]:
        """Ship what is left, compare the collections with the passages, and rebuild them if they differ."""
        cluster, reason = self._shared.cluster, ""
        with shipper.shipping_lock(session, shipper.WAIT_SECONDS) as is_needed:
            if is_needed:
                shipper.ship_pending(session, cluster)
                reason = shipper.find_difference(session, cluster)
                if reason:
                    shipper.rebuild(session, cluster)
        problems = [
            f"The Qdrant node {name} does not answer" for name in cluster.unreachable_nodes()
        ]
        if reason:
            problems.append(f"The index in Qdrant was rebuilt from PostgreSQL ({reason})")
        return problems

    def status(self, session: PostgresSession) -> Mapping[str, Any]:
        """Return nodes, commits that are not shipped, and the replicas of shards by state."""
        cluster, unreachable = self._shared.cluster, self._shared.cluster.unreachable_nodes()
        generation = session.value("SELECT generation FROM state")
        state, of_models = None, dict[str, str]()
        with suppress(MissingLibrary):  # no writer has used this address yet
            state, of_models = outbox.read_index(session)
        status: dict[str, Any] = {
            "nodes": cluster.size,
            "unreachable": ", ".join(unreachable) or "none",
            "unshipped_commits": generation - (state.generation if state else 0),
        }
        if state and len(unreachable) < cluster.size:
            with suppress(StoreError):  # a collection that was deleted is reported by searches
                names = (state.collection, *of_models.values())
                status["shards"] = collections.shard_states(cluster, names)
        return {"qdrant": status}

    def close(self) -> None:
        """Close the connections and drop the caches."""
        self._shared.close()


class QdrantVectorIndex(PostgresVectors):
    """Vectors of passages in Qdrant, which the lexical index ships; PostgreSQL stores them, without an index of its own."""

    def prepare(self, connections: Connections) -> None:
        """Do nothing: the lexical index ships for both."""

    def after_commit(self, connections: Connections) -> None:
        """Drop the collections of models that were cleaned away; they are deleted when no reader can need them."""
        if not self._due:
            return
        self._due = False
        with connections.connection() as connection:
            PostgresSession(connections, connection).run(
                "WITH gone AS (DELETE FROM qdrant_models q WHERE NOT EXISTS"
                " (SELECT 1 FROM models m WHERE m.row = q.model) RETURNING q.collection)"
                " INSERT INTO qdrant_dropped (collection, dropped) SELECT collection, clock_timestamp() FROM gone"
            )

    def reader(self, snapshot: Any) -> QdrantVectorReader:
        """Return the reader for a snapshot."""
        from marklight.engines.server.qdrant.reading import QdrantVectorReader

        return QdrantVectorReader(snapshot.lexical.shared, self.settings)
