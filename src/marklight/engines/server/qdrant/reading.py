"""Readers of one snapshot: what keyword and vector search share, and vector search by cosine similarity.

PostgreSQL decides which passages a snapshot has. Qdrant may have more: those of later commits, and removed ones. It selects
candidates; vectors are scored with those that PostgreSQL stores, by the same arithmetic as in other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from qdrant_client import grpc as api

from marklight.engines.relational.snapshot import BoundedCache
from marklight.engines.server.postgres.vector_index import STORED
from marklight.engines.server.postgres.vector_search import Model, PostgresVectorReader
from marklight.engines.server.qdrant import collections
from marklight.engines.server.qdrant.collections import (
    is_native,
    living_filter,
    native_filter,
    row_filter,
)
from marklight.engines.server.qdrant.lexical import StoredTerms, stored_terms
from marklight.engines.server.qdrant.outbox import IndexState, read_index
from marklight.engines.vector_math import unit_rows
from marklight.errors import StoreError
from marklight.ports import ScoredChunk
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines import PostgresSettings
    from marklight.engines.server.qdrant.cluster import Cluster
    from marklight.model import Vector

MAX_TERMS = 4096
"""Passages whose terms are cached, some 15 MB: term coverage is computed of passages that a search returned."""
MAX_FREQUENCIES = 100_000
"""Document frequencies that are cached, of the terms of some thousand queries."""


class Caches:
    """Caches of one engine: terms of passages, which never change, and document frequencies by generation."""

    def __init__(self) -> None:
        self.terms: BoundedCache[tuple[str, int], StoredTerms] = BoundedCache(MAX_TERMS)
        self.frequencies: BoundedCache[tuple[int, int, int], int] = BoundedCache(MAX_FREQUENCIES)


class SharedReader:
    """State that the lexical and the vector reader of one snapshot share."""

    def __init__(
        self,
        snapshot: Any,
        cluster: Cluster,
        caches: Caches,
        failure: Callable[[], StoreError | None],
    ) -> None:
        """`failure` returns why the index could not be brought up to date, if that was so."""
        self.snapshot = snapshot
        self._failure = failure
        self.session = snapshot.session
        self.cluster = cluster
        self._caches = caches
        self._lock = Lock()
        self._state: tuple[IndexState | None] | None = None
        self._models: dict[str, str] = {}
        self._rows: dict[str, int] = {}

    @property
    def state(self) -> IndexState | None:
        """Return the state of the index in this snapshot, read once; None if there is no passage to find.

        Raises StoreError if there are passages, but none was ever shipped: no answer would be a wrong answer.
        """
        if not self.snapshot.chunk_count:  # the tables of this index may not exist yet
            return None
        with self._lock:
            if self._state is None:
                state, self._models = read_index(self.session)
                self._state = (state,)
        if self._state[0] is None:
            raise self._failure() or StoreError(
                f"The passages of this library are not in Qdrant at {self.cluster} yet",
                "Run `marklight index` with a role that may write: it copies them from PostgreSQL",
            )
        return self._state[0]

    def collection_of(self, model: str) -> str | None:
        """Return the collection with the vectors of a model; None if it has none."""
        return self._models.get(model) if self.state else None

    def condition(self, state: IndexState, filters: Filters) -> Any:
        """Return the condition for Qdrant; None if no passage can match."""
        if not filters:
            return living_filter(state.generation)
        if is_native(filters):
            return native_filter(filters, state.generation)
        rows = self.snapshot.row_filter(filters)
        if rows is None:
            return living_filter(state.generation)
        return None if rows.matches_nothing else row_filter(rows, state.generation)

    def frequencies(self, dimensions: Sequence[int]) -> Mapping[int, int]:
        """Return the number of passages with each dimension, 0 where there is none."""
        state = self.state
        if state is None:
            return {}
        version, generation = state.version, state.generation

        def read(keys: list[tuple[int, int, int]]) -> Mapping[tuple[int, int, int], int]:
            counts = dict(
                self.session.all(
                    "SELECT t.dimension, t.passages FROM integers(?) i CROSS JOIN term_frequencies t"
                    " ON t.version = ? AND t.dimension = i.value",
                    [[own for _, _, own in keys], version],
                )
            )
            return {key: counts.get(key[2], 0) for key in keys}

        keys = [(version, generation, own) for own in dimensions]
        found = self._caches.frequencies.get(keys, read)
        return {own: count for (_, _, own), count in found.items()}

    def living(self, rows: Sequence[int]) -> dict[int, str]:
        """Return the ids of those rows that the snapshot has."""
        cache = self.snapshot.cache.ids
        ids: dict[int, str] = cache.known(rows)
        missing = [row for row in rows if row not in ids]
        fresh: dict[int, str] = dict(self._living("c.id", "", missing, []))
        cache.add(fresh)
        ids.update(fresh)
        self._rows.update((id, row) for row, id in ids.items())
        return ids

    def living_vectors(self, rows: Sequence[int], model: int) -> list[tuple[str, bytes]]:
        """Return the ids and stored vectors of those rows that the snapshot has, with a vector of this model."""
        join = " CROSS JOIN vectors v ON v.digest = c.digest AND v.model = ?"
        found = self._living(f"c.id, {STORED}", join, rows, [model])
        self._rows.update((id, row) for row, id, _ in found)
        return [(id, stored) for _, id, stored in found]

    def _living(self, columns: str, join: str, rows: Sequence[int], values: list[Any]) -> list[Any]:
        if not rows:
            return []
        living: list[Any] = self.session.all(
            f"SELECT c.row, {columns} FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value{join}",
            [list(rows), *values],
        )
        return living

    def rows_of(self, chunks: Sequence[str]) -> dict[str, int]:
        """Return the rows of passages; missing ids are skipped."""
        known = self._rows
        rows = {id: known[id] for id in chunks if id in known}
        if missing := [id for id in dict.fromkeys(chunks) if id not in rows]:
            found = self.session.all(
                "SELECT c.id, c.row FROM texts(?) t CROSS JOIN chunks c ON c.id = t.value",
                [missing],
            )
            self._rows.update(found)
            rows.update(found)
        return rows

    def keep_terms(self, terms: Mapping[int, StoredTerms]) -> Mapping[int, StoredTerms]:
        """Cache the terms of passages that a search returned."""
        if state := self.state:
            self._caches.terms.add({(state.collection, row): own for row, own in terms.items()})
        return terms

    def stored_terms(self, rows: Sequence[int]) -> Mapping[int, StoredTerms]:
        """Return the terms of passages, those that are not cached in one request."""
        state = self.state
        if state is None:
            return {}

        def read(keys: list[tuple[str, int]]) -> Mapping[tuple[str, int], StoredTerms]:
            missing = [row for _, row in keys]
            points = collections.get(
                self.cluster, state.collection, missing, vectors=True, payload=False
            )
            return {(state.collection, point.id.num): stored_terms(point) for point in points}

        found = self._caches.terms.get([(state.collection, row) for row in rows], read)
        return {row: own for (_, row), own in found.items()}


OVERSAMPLING = 2.0
"""Candidates by quantised vectors for each result, which are then scored with the full vectors."""

HNSW_EF_SEARCH = 256
"""Candidates that a search of the vector index compares: of a million passages it misses 2 of 100 of the nearest ten."""
ROUNDING = 1e-6
"""Difference between a cosine of Qdrant and the same one computed here."""


class QdrantVectorReader(PostgresVectorReader):
    """Vector search in one snapshot."""

    exact = False
    """True to compare all vectors instead, which measures what the index misses."""

    def __init__(self, shared: SharedReader, settings: PostgresSettings) -> None:
        super().__init__(shared.snapshot, settings)
        self._shared = shared

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        state, own = self._shared.state, self._comparable(vector, model)
        if state is None or own is None or limit <= 0 or not state.passages:
            return []
        name, condition = self._shared.collection_of(model), self._shared.condition(state, filters)
        if name is None or condition is None:
            return []
        query = unit_rows(vector)
        requested = limit + limit // 4 + 8
        while True:
            requested = min(requested, state.passages)
            points = self._nearest(name, query.tolist(), condition, requested)
            rows = [point.id.num for point in points]
            candidates = self._shared.living_vectors(rows, own.row)
            results = self._scored(model, own, query, candidates)
            if len(points) < requested or requested == state.passages:
                return results[:limit]
            # Passages that tie with the last result are ordered by id, so all of them are needed.
            if len(results) >= limit and results[limit - 1].score > points[-1].score + ROUNDING:
                return results[:limit]
            requested *= 4

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
        points: Sequence[Any] = self._shared.cluster.read("Query", request).result
        return points

    def _model(self, name: str) -> Model | None:
        """Return the state of a model, read once for each commit: no index in PostgreSQL changes it."""
        model = super()._model(name)
        if model is not None:
            self._snapshot.cache.vector_models[name] = model
        return model
