"""Vector search in PostgreSQL: exact cosine by pgvector in a small library or among few passages, else HNSW.

The database selects candidates, some more than requested; they are scored here with the stored vectors, by the same
arithmetic as in the embedded engine. numpy is imported by the functions that need it: listing passages without a vector
must not load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.engines.relational.snapshot import RelationalVectors
from marklight.engines.server.postgres.session import PostgresSession, translate
from marklight.engines.server.postgres.vector_index import (
    STORED,
    index_name,
    pack_integers,
    pack_vector,
    unit_halfvec,
    unpack,
)
from marklight.model import DocumentId
from marklight.ports import ScoredChunk
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines import PostgresSettings
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.server.postgres.engine import PostgresSnapshot
    from marklight.model import Vector

EXTRA_CANDIDATES = 16
"""Candidates beyond those requested: they differ in the seventh digit between pgvector and here, and in the third by HNSW."""
MAX_EF_SEARCH = 1000
"""Limit of pgvector."""
SCAN_COST = 5.0
"""Time to visit a node of the HNSW graph and test its passages, divided by that of comparing a passage by its digest.

So of 100,000 passages, comparing all that match is chosen up to 4,800 of them for 20 results: measured, both take the same time
between 3,000 and 10,000.
"""
MAX_CACHED_VECTORS = 4096
"""Vectors that a snapshot keeps for `get`, which stages call for the results of a search: 6 MB with 384 numbers each."""

_DISTANCE = "coalesce(nullif(v.embedding <=> ?::vector, 'NaN'), 1)"
"""Cosine distance; a vector of zeros has none, and its score is 0."""
_SETTINGS = (
    "SELECT set_config('hnsw.ef_search', $1, true), set_config('hnsw.max_scan_tuples', $2, true),"
    " set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.scan_mem_multiplier', '8', true)"
)

Candidates = list[tuple[str, bytes]]
"""Ids of passages with their stored vectors."""


class Model(NamedTuple):
    """State of a model in a snapshot."""

    row: int
    dimension: int
    passages: int
    """Number of passages that have a vector."""
    is_indexed: bool
    """True if its HNSW index is complete."""


class PostgresVectorReader(RelationalVectors):
    """Vector search by cosine similarity."""

    _snapshot: PostgresSnapshot
    _session: PostgresSession

    def __init__(self, snapshot: PostgresSnapshot, settings: PostgresSettings) -> None:
        super().__init__(snapshot)
        self._settings = settings
        self._cached: dict[tuple[str, str], Vector] = {}
        """Unit vectors by model and passage."""

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        if limit <= 0 or (rows and rows.matches_nothing):
            return []
        stored_model = self._comparable(vector, model)
        if stored_model is None or not stored_model.passages:
            return []
        from marklight.vector_math import unit_rows

        query = unit_rows(vector)
        candidates: Candidates = []
        if self._uses_index(stored_model, rows, limit):
            candidates = self._approximate(stored_model, query, rows, limit)
        if len({stored for _, stored in candidates}) < _candidate_count(limit):
            # There is no index, or its scan ended before it found enough vectors.
            candidates = self._exact(stored_model, query, rows, limit)
        return self._scored(model, stored_model, query, candidates)[:limit]

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        stored_model = None if rows and rows.matches_nothing else self._comparable(vector, model)
        if stored_model is None:
            return {}
        from marklight.vector_math import unit_rows

        query = unit_rows(vector)
        condition, values = _condition(rows)
        best = self._session.all(
            "WITH best AS MATERIALIZED (SELECT DISTINCT ON (c.document) c.document, c.id, c.digest"
            f" FROM chunks c JOIN vectors v ON v.digest = c.digest AND v.model = {stored_model.row}"
            f" WHERE {condition} ORDER BY c.document, {_DISTANCE}, c.ordinal)"
            f" SELECT d.collection, d.path, b.id, {STORED} FROM best b JOIN documents d ON d.row = b.document"
            f" JOIN vectors v ON v.digest = b.digest AND v.model = {stored_model.row}",
            [*values, pack_vector(query)],
        )
        documents = {id: DocumentId(collection, path) for collection, path, id, _ in best}
        candidates = [(id, stored) for _, _, id, stored in best]
        scored = self._scored(model, stored_model, query, candidates)
        return {documents[result.chunk_id]: result for result in scored}

    def get(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        cached = self._cached  # another thread may replace it
        vectors = {id: cached[model, id] for id in chunks if (model, id) in cached}
        missing = [id for id in chunks if id not in vectors]
        stored_model = self._model(model) if missing else None
        if stored_model:
            candidates = self._session.all(
                f"SELECT c.id, {STORED} FROM texts(?) i JOIN chunks c ON c.id = i.value"
                f" JOIN vectors v ON v.digest = c.digest AND v.model = {stored_model.row}",
                [missing],
            )
            ids = [id for id, _ in candidates]
            vectors.update(
                zip(ids, self._unit_vectors(model, stored_model, candidates), strict=True)
            )
        return {id: vector.copy() for id, vector in vectors.items()}

    def _uses_index(self, model: Model, rows: RowFilter | None, limit: int) -> bool:
        """Return true if the HNSW index answers faster than a comparison of all passages that match.

        With a filter the scan visits nodes until enough of them match, so its time grows as fewer passages match, and it
        misses more of the best.
        """
        if not model.is_indexed or model.passages < self._settings.exact_below:
            return False
        if rows is None:
            return True
        matching = self._estimate(rows, model)
        visited = _candidate_count(limit) * model.passages / max(1.0, matching)
        return not self._settings.exact_below or matching > SCAN_COST * visited

    def _estimate(self, rows: RowFilter, model: Model) -> float:
        """Return the number of passages that match, as if all documents had equally many."""
        listed: float = len(rows.rows)
        if rows.column == "document":
            listed *= model.passages / max(1, self._snapshot.document_count)
        return model.passages - listed if rows.exclude else listed

    def _approximate(
        self, model: Model, query: Vector, rows: RowFilter | None, limit: int
    ) -> Candidates:
        """Return the nearest passages by HNSW: an iterative scan, which continues until enough of them match."""
        count = _candidate_count(limit)
        condition, values = _condition(rows)
        passage = f"SELECT 1 FROM chunks c WHERE c.digest = v.digest AND {condition}"
        # OFFSET keeps the planner from turning the condition into a join, which would read all passages.
        matches = (
            f" AND EXISTS ({passage} OFFSET 0)" if rows or self._snapshot.unused_vectors else ""
        )
        # The numbers are literals: a plan for unknown ones would use neither the partial index nor the limit.
        nearest = (
            f"WITH nearest AS MATERIALIZED (SELECT v.digest, {STORED} AS stored FROM vectors v"
            f" WHERE v.model = {model.row}{matches}"
            f" ORDER BY {unit_halfvec(model.dimension)} <#> ?::vector::halfvec({model.dimension}) LIMIT {count})"
            f" SELECT p.id, n.stored FROM nearest n JOIN LATERAL ({_passages(condition, limit)}) p ON true"
        )
        statement = translate(nearest)
        filtering = values if matches else []
        parameters = statement.parameters([*filtering, pack_vector(query), *values])
        ef_search = min(MAX_EF_SEARCH, self._settings.hnsw_ef_search + count)
        # A scan may visit as many nodes as take the time of an exact search, which follows if it finds too few.
        visited = max(20 * count, int(model.passages / SCAN_COST))
        with self._session.locked() as connection, connection.pipeline():
            connection.execute(_SETTINGS, [str(ef_search), str(visited)])
            cursor = connection.execute(
                statement.sql.encode(), parameters, prepare=False, binary=True
            )
            return cursor.fetchall()

    def _exact(self, model: Model, query: Vector, rows: RowFilter | None, limit: int) -> Candidates:
        """Return the nearest passages by a comparison of all that match."""
        count = limit + EXTRA_CANDIDATES
        if rows is None:
            # One pass over the vectors without looking at passages; a vector may have several of them, or none.
            candidates = self._session.all(
                f"WITH nearest AS MATERIALIZED (SELECT v.digest FROM vectors v WHERE v.model = {model.row}"
                f" ORDER BY {_DISTANCE}, v.digest LIMIT {count + min(self._snapshot.unused_vectors, count)})"
                f" SELECT p.id, {STORED} FROM nearest n JOIN LATERAL ({_passages('true', limit)}) p ON true"
                f" JOIN vectors v ON v.digest = n.digest AND v.model = {model.row}",
                [pack_vector(query)],
            )
            if len(candidates) >= min(limit, model.passages):
                return candidates
        condition, values = _condition(rows)
        return self._session.all(
            "WITH nearest AS MATERIALIZED (SELECT c.id, c.digest FROM chunks c"
            f" JOIN vectors v ON v.digest = c.digest AND v.model = {model.row}"
            f" WHERE {condition} ORDER BY {_DISTANCE}, c.id LIMIT {count})"
            f" SELECT n.id, {STORED} FROM nearest n JOIN vectors v ON v.digest = n.digest AND v.model = {model.row}",
            [*values, pack_vector(query)],
        )

    def _scored(
        self, name: str, model: Model, query: Vector, candidates: Candidates
    ) -> list[ScoredChunk]:
        """Return the passages with their exact cosines, best first."""
        import numpy as np

        scores = np.vecdot(self._unit_vectors(name, model, candidates), query).tolist()
        scored = [ScoredChunk(id, score) for (id, _), score in zip(candidates, scores, strict=True)]
        return sorted(scored, key=lambda result: (-result.score, result.chunk_id))

    def _unit_vectors(self, name: str, model: Model, candidates: Candidates) -> Any:
        """Return the unit vectors of passages, and keep them for `get`."""
        from marklight.vector_math import unit_rows

        vectors = unit_rows(unpack([stored for _, stored in candidates], model.dimension))
        if len(self._cached) + len(candidates) > MAX_CACHED_VECTORS:
            self._cached = {}
        ids = [id for id, _ in candidates[:MAX_CACHED_VECTORS]]
        self._cached.update({(name, id): vectors[at] for at, id in enumerate(ids)})
        return vectors

    def _comparable(self, vector: Vector, name: str) -> Model | None:
        """Return the state of a model; raise StoreError if the query has another dimension."""
        from marklight.vector_math import check_dimension

        model = self._model(name)
        if model:
            check_dimension(vector, model.dimension, name)
        return model

    def _model(self, name: str) -> Model | None:
        """Return the state of a model, read once for each commit; None if it has no vectors."""
        cached: Model | None = self._snapshot.cache.vector_models.get(name)
        if cached:
            return cached
        row = self._session.one(
            "SELECT m.row, m.dimension, m.embedded, EXISTS (SELECT 1 FROM pg_index i"
            " JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass('vectors')"
            f" AND i.indisvalid AND c.relname = '{index_name(0)[:-1]}' || m.row)"
            " FROM models m WHERE m.name = ?",
            [name],
        )
        if row is None:
            return None
        model = Model(*row)
        # An index that is being built will be complete without a commit.
        if model.is_indexed or model.passages < self._settings.exact_below:
            self._snapshot.cache.vector_models[name] = model
        return model


def _candidate_count(limit: int) -> int:
    """Return the number of candidates that the HNSW index has to find."""
    return limit + limit // 2 + EXTRA_CANDIDATES


def _passages(condition: str, limit: int) -> str:
    """Return the query for the passages of a vector `n`: no more than can be results, should many have the same text."""
    return f"SELECT c.id FROM chunks c WHERE c.digest = n.digest AND {condition} ORDER BY c.id LIMIT {limit}"


def _condition(rows: RowFilter | None) -> tuple[str, list[Any]]:
    """Return the SQL condition on a passage `c`, with its parameters: an array, which PostgreSQL hashes."""
    if rows is None or (rows.exclude and not rows.rows):
        return "true", []
    operator = "<> ALL" if rows.exclude else "= ANY"
    column = "c.document" if rows.column == "document" else "c.row"
    return f"{column} {operator}(?::bigint[])", [pack_integers(rows.rows)]
