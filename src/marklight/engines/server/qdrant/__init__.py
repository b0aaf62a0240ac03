"""Lexical and vector index of a fleet: Qdrant collections that follow a PostgreSQL library through an outbox."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from qdrant_client import grpc as api

from marklight.engines.relational.filters import RowReader
from marklight.engines.server.postgres import DerivedIndex, schema
from marklight.engines.server.postgres.connections import MissingLibrary
from marklight.engines.server.postgres.session import PostgresSession, borrowed_session
from marklight.engines.server.postgres.vector_index import STORED, PostgresVectors
from marklight.engines.server.postgres.vector_search import Model, PostgresVectorReader
from marklight.engines.server.qdrant import collections, outbox, shipper
from marklight.engines.server.qdrant.cluster import Cluster
from marklight.engines.server.qdrant.lexical import Caches, QdrantLexicalReader
from marklight.errors import StoreError
from marklight.lexical import analyzer_fingerprint
from marklight.ports import ScoredChunk
from marklight.query import Filters
from marklight.vector_math import unit_rows

if TYPE_CHECKING:
    from marklight.engines import Host, PostgresSettings, ServerSettings
    from marklight.engines.relational.write import ChangedRows
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.postgres.engine import PostgresSnapshot
    from marklight.model import Vector


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
    lexical = QdrantLexicalIndex(Cluster(hosts, settings.qdrant))
    return lexical, QdrantVectorIndex(settings.postgres)


class QdrantLexicalIndex(DerivedIndex[RowReader]):
    """Terms of passages in Qdrant; fills and ships the outbox for both indexes."""

    tables = outbox.TABLE_NAMES
    """Qdrant does not report the bytes of a collection, so only those in PostgreSQL are shown."""
    create_tables = outbox.TABLES

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.caches = Caches()
        self.failure: StoreError | None = None
        """Error of the last attempt to ship."""
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
            with borrowed_session(connections) as session:
                if not self._has_tables:
                    if schema.read_version(session.connection) is None:
                        return
                    # The library was created before Qdrant was configured.
                    schema.prepare(connections, session.connection, [self])
                    self._has_tables = True
                self._catch_up(session)
        except StoreError as error:
            self._fail(error)
        else:
            self.failure = None

    def _catch_up(self, session: PostgresSession) -> None:
        backlog = shipper.read_backlog(session)
        if backlog.analyzer not in ("", analyzer_fingerprint()) and backlog.may_ship:
            with shipper.shipping_lock(session, wait_seconds=0.0) as is_needed:
                if is_needed:
                    shipper.rebuild(session, self.cluster)
                    self.notices.append(REBUILT)
        elif backlog.is_behind and backlog.may_ship:
            shipper.ship(session, self.cluster, WAIT_SECONDS)
        elif backlog.is_behind:
            shipper.wait(session, WAIT_SECONDS)

    def _fail(self, error: StoreError) -> None:
        """Let searches go on, and report once why they do not find the newest changes."""
        self._next_wait = time.monotonic() + PAUSE_SECONDS
        if self.failure is None:
            self.notices.append(f"Searches do not find the newest changes yet. {error}")
        self.failure = error

    def finish(self, session: PostgresSession, change: ChangedRows, generation: int) -> None:
        outbox.fill(session, change, generation)

    def after_commit(self, connections: Connections) -> None:
        """Ship the outbox; what cannot be shipped now stays in it."""
        try:
            with borrowed_session(connections) as session:
                shipper.ship(session, self.cluster)
        except StoreError as error:
            self._fail(error)
        else:
            self.failure = None

    def reader(self, snapshot: Any) -> QdrantLexicalReader:
        return QdrantLexicalReader(snapshot, self)

    def check(self, session: PostgresSession) -> list[str]:
        """Ship what is left, compare the collections with the passages, and rebuild them if they differ."""
        cluster, reason = self.cluster, ""
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
        cluster, unreachable = self.cluster, self.cluster.unreachable_nodes()
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
            names = (state.collection, *of_models.values())
            status["shards"] = collections.shard_states(cluster, names)
        return {"qdrant": status}

    def close(self) -> None:
        """Close the connections and drop the caches."""
        self.cluster.close()
        self.caches = Caches()


class QdrantVectorIndex(PostgresVectors):
    """Vectors of passages in Qdrant, which the lexical index ships; PostgreSQL stores them, without an index of its own."""

    def prepare(self, connections: Connections) -> None:
        """Do nothing: the lexical index ships for both."""

    def after_commit(self, connections: Connections) -> None:
        """Drop the collections of models that were cleaned away; they are deleted when no reader can need them."""
        if not self._due:
            return
        self._due = False
        with borrowed_session(connections) as session:
            session.run(
                "WITH gone AS (DELETE FROM qdrant_models q WHERE NOT EXISTS"
                " (SELECT 1 FROM models m WHERE m.row = q.model) RETURNING q.collection)"
                " INSERT INTO qdrant_dropped (collection, dropped) SELECT collection, clock_timestamp() FROM gone"
            )

    def reader(self, snapshot: Any) -> QdrantVectorReader:
        return QdrantVectorReader(snapshot, snapshot.lexical, self.settings)


OVERSAMPLING = 2.0
"""Candidates by quantised vectors for each result, which are then scored with the full vectors."""

HNSW_EF_SEARCH = 256
"""Candidates that a search of the vector index compares: of a million passages it misses 2 of 100 of the nearest ten."""
ROUNDING = 1e-6
"""Difference between a cosine of Qdrant and the same one computed here."""


class QdrantVectorReader(PostgresVectorReader):
    """Vector search in one snapshot: Qdrant selects candidates, which are scored with the vectors in PostgreSQL."""

    exact = False
    """True to compare all vectors instead, which measures what the index misses."""

    def __init__(
        self, snapshot: PostgresSnapshot, index: QdrantLexicalReader, settings: PostgresSettings
    ) -> None:
        """Take the lexical reader of the same snapshot, which knows the state of the index."""
        super().__init__(snapshot, settings)
        self._index = index

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        state, stored = self._index.state, self._comparable(vector, model)
        if state is None or stored is None or limit <= 0 or not state.passages:
            return []
        name, condition = self._index.collection_of(model), self._index.condition(state, filters)
        if name is None or condition is None:
            return []
        query = unit_rows(vector)
        requested = limit + limit // 4 + 8
        while True:
            requested = min(requested, state.passages)
            points = self._nearest(name, query.tolist(), condition, requested)
            rows = [point.id.num for point in points]
            candidates = self._living_vectors(rows, stored.row)
            results = self._scored(model, stored, query, candidates)
            if len(points) < requested or requested == state.passages:
                return results[:limit]
            # Passages that tie with the last result are ordered by id, so all of them are needed.
            if len(results) >= limit and results[limit - 1].score > points[-1].score + ROUNDING:
                return results[:limit]
            requested *= 4

    def _living_vectors(self, rows: Sequence[int], model: int) -> list[tuple[str, bytes]]:
        """Return the ids and stored vectors of those rows that the snapshot has, with a vector of this model."""
        living = self._session.all(
            f"SELECT c.row, c.id, {STORED} FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value"
            " CROSS JOIN vectors v ON v.digest = c.digest AND v.model = ?",
            [list(rows), model],
        )
        self._snapshot.cache.rows.add({id: row for row, id, _ in living})
        return [(id, stored) for _, id, stored in living]

    def _nearest(
        self, name: str, query: Sequence[float], condition: Any, limit: int
    ) -> Sequence[Any]:
        dense = api.VectorInput(dense=api.DenseVector(data=query))
        params = api.SearchParams(
            exact=self.exact,
            hnsw_ef=max(HNSW_EF_SEARCH, limit),
            quantization=api.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING),
        )
        request = api.QueryPoints(
            collection_name=name,
            query=api.Query(nearest=dense),
            filter=condition,
            params=params,
            limit=limit,
            with_payload=api.WithPayloadSelector(enable=False),
            with_vectors=api.WithVectorsSelector(enable=False),
        )
        points: Sequence[Any] = self._index.index.cluster.read("Query", request).result
        return points

    def _model(self, name: str) -> Model | None:
        """Return the state of a model, read once for each commit: no index in PostgreSQL changes it."""
        model = super()._model(name)
        if model is not None:
            self._snapshot.cache.vector_models[name] = model
        return model
