"""Vector search in Qdrant by cosine similarity.

Qdrant selects candidates; they are scored with the vectors that PostgreSQL stores, by the same arithmetic as in other engines.
Stored vectors and pending texts are read from PostgreSQL too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qdrant_client import grpc as api

from marklight.engines.server.postgres.vector_search import Model, ModelCache, PostgresVectorReader
from marklight.engines.vector_math import unit_rows
from marklight.ports import ScoredChunk
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines import PostgresSettings
    from marklight.engines.server.qdrant.reading import SharedReader
    from marklight.model import Vector

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

    def __init__(
        self, shared: SharedReader, settings: PostgresSettings, models: ModelCache
    ) -> None:
        super().__init__(shared.snapshot, settings, models)
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
            candidates = self._shared.living_vectors(rows, filters, own.row)
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
            self._known_models.add(name, self._version, model)
        return model
