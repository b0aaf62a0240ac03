"""Vector search: exact cosine over the matrix of a model; in a large one a first pass over binary vectors.

numpy is imported by the functions that need it: listing passages without a vector must not load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from marklight.engines.embedded.vector_files import (
    BinaryVectorFile,
    VectorFile,
    VectorFileInfo,
    vector_file_info,
)
from marklight.engines.relational import records
from marklight.engines.relational.documents import digests_without_vector
from marklight.model import DocumentId
from marklight.ports import Pending, ScoredChunk
from marklight.query import Filters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marklight.engines.embedded.engine import EmbeddedSnapshot
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.relational.snapshot import VectorCache
    from marklight.engines.vector_math import BinaryVectors
    from marklight.model import Matrix, Vector

_BLOCK_ROWS = 8192
"""Rows copied at once, 12 MB with 384 numbers each."""


class ModelVectors(NamedTuple):
    """The vectors of one model in a snapshot."""

    model_row: int
    matrix: Matrix
    binary: BinaryVectors | None
    """Sign bits, if there are so many vectors that a first pass over them is faster."""
    cache: VectorCache
    all_used: bool
    """True if every vector belongs to a passage."""


class EmbeddedVectors:
    """Vector search by cosine similarity."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session
        self._models: dict[str, ModelVectors | None] = {}

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        if limit <= 0 or (rows and rows.matches_nothing):
            return []
        vectors = self._comparable(vector, model)
        if vectors is None:
            return []
        from marklight.engines.vector_math import unit_rows

        query = unit_rows(vector)
        if rows is None:
            return self._search_all(vectors, query, limit)
        return self._search_among(vectors, query, rows, limit)

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        vectors = None if rows and rows.matches_nothing else self._comparable(vector, model)
        if vectors is None:
            return {}
        import numpy as np

        from marklight.engines.vector_math import unit_rows

        condition, values = self._snapshot.sql_condition(filters)
        passages = self._session.all(
            "SELECT c.document, v.file_row, c.row FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
            f" WHERE v.model = ? AND {condition} ORDER BY c.document, c.ordinal",
            [vectors.model_row, *values],
        )
        places = np.array([place for _, place, _ in passages], dtype=np.int64)
        scores = _scores(vectors.matrix, unit_rows(vector), places)
        best: dict[int, int] = {}
        for at in np.argsort(-scores, kind="stable").tolist():
            best.setdefault(passages[at][0], at)
        by_row = {passages[at][2]: float(scores[at]) for at in best.values()}
        ids = self._session.all(
            "SELECT c.row, c.id, d.collection, d.path FROM chunks c JOIN documents d ON d.row = c.document"
            " WHERE c.row IN (SELECT value FROM json_each(?))",
            [list(by_row)],
        )
        return {
            DocumentId(collection, path): ScoredChunk(id, by_row[row])
            for row, id, collection, path in ids
        }

    def get(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        vectors = self._open(model)
        if vectors is None:
            return {}

        def read(ids: Sequence[str]) -> dict[str, int]:
            rows = self._session.all(
                "SELECT c.id, v.file_row FROM json_each(?) i CROSS JOIN chunks c ON c.id = i.value"
                " CROSS JOIN vectors v ON v.digest = c.digest WHERE v.model = ?",
                [list(ids), vectors.model_row],
            )
            return dict(rows)

        places = vectors.cache.places.get(chunks, read)
        return {id: vectors.matrix[place].copy() for id, place in places.items()}

    def missing(self, model: str, digests: Sequence[str]) -> list[str]:
        return digests_without_vector(self._session, model, digests)

    def pending(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        known = self._session.one("SELECT row, embedded_to FROM models WHERE name = ?", [model])
        model_row, done = known or (-1, 0)
        lacking = "c.digest <> '' AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.digest = c.digest AND v.model = ?)"
        rows: dict[str, int] = {}
        for row, digest in self._session.each(
            "SELECT c.row, c.digest FROM json_each(?) f CROSS JOIN chunks c ON c.id = f.value"
            f" WHERE {lacking} ORDER BY f.key",
            [list(first), model_row],
        ):
            rows.setdefault(digest, row)
        for row, digest in self._session.each(
            f"SELECT c.row, c.digest FROM chunks c WHERE c.row > ? AND {lacking} ORDER BY c.row",
            [done, model_row],
        ):
            if len(rows) >= limit:
                break
            rows.setdefault(digest, row)
        chosen = list(rows.values())[: max(0, limit)]
        chunks = {
            row[0]: records.chunk(row[1:])
            for row in self._session.all(
                f"SELECT c.row, {records.CHUNK} FROM chunks c JOIN documents d ON d.row = c.document"
                " WHERE c.row IN (SELECT value FROM json_each(?))",
                [list(chosen)],
            )
        }
        return [Pending(chunks[row].digest, chunks[row]) for row in chosen]

    def _search_all(self, vectors: ModelVectors, query: Vector, limit: int) -> list[ScoredChunk]:
        from marklight.engines.vector_math import top

        candidates = _hamming_candidates(vectors, query, limit)
        scores = _scores(vectors.matrix, query, candidates)
        # Vectors that no passage uses any more may be among the best: then more are looked up, and at
        # last all. Each is a page of the database, so the first try reads few.
        for count in (limit if vectors.all_used else limit + limit // 4 + 8, 4 * limit + 64):
            best = top(scores, count)
            places = best if candidates is None else candidates[best].tolist()
            passages = self._passages_at(vectors, places)
            if len(passages) >= limit or not len(scores):
                by_place = dict(zip(places, scores[best].tolist(), strict=True))
                return _ranked(by_place, passages, limit)
        return self._search_among(vectors, query, None, limit)

    def _search_among(
        self, vectors: ModelVectors, query: Vector, rows: RowFilter | None, limit: int
    ) -> list[ScoredChunk]:
        import numpy as np

        from marklight.engines.vector_math import top

        condition, values = rows.condition() if rows else ("true", [])
        passages = self._session.all(
            "SELECT v.file_row, c.id FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
            f" WHERE v.model = ? AND {condition}",
            [vectors.model_row, *values],
        )
        among = np.array([place for place, _ in passages], dtype=np.int64)
        candidates = _hamming_candidates(vectors, query, limit, among)
        if candidates is None:
            scores = _scores(vectors.matrix, query, among)
        else:
            every = np.full(len(vectors.matrix), -np.inf, dtype=np.float32)
            every[candidates] = _scores(vectors.matrix, query, candidates)
            scores = every[among]
        best = [passages[at] for at in top(scores, limit)]
        return _ranked(dict(zip(among.tolist(), scores.tolist(), strict=True)), best, limit)

    def _passages_at(self, vectors: ModelVectors, places: list[int]) -> list[tuple[int, str]]:
        """Return the passages of these matrix rows: several for one row, where a text is repeated."""

        def read(missing: Sequence[int]) -> dict[int, tuple[str, ...]]:
            ids: dict[int, tuple[str, ...]] = {}
            for place, id in self._session.all(
                "SELECT v.file_row, c.id FROM json_each(?) p CROSS JOIN vectors v ON v.file_row = p.value"
                " CROSS JOIN chunks c ON c.digest = v.digest WHERE v.model = ?",
                [list(missing), vectors.model_row],
            ):
                ids[place] = (*ids.get(place, ()), id)
            return ids

        known = vectors.cache.ids.get(places, read)
        passages = [(place, id) for place, ids in known.items() for id in ids]
        vectors.cache.places.add({id: place for place, id in passages})
        return passages

    def _comparable(self, vector: Vector, model: str) -> ModelVectors | None:
        """Return the vectors of a model; raise StoreError if the query has another dimension."""
        from marklight.engines.vector_math import check_dimension

        vectors = self._open(model)
        if vectors:
            check_dimension(vector, vectors.matrix.shape[1], model)
        return vectors

    def _open(self, model: str) -> ModelVectors | None:
        """Map the vectors of a model once; None if it has none."""
        if model not in self._models:
            info = vector_file_info(self._session, model)
            self._models[model] = (
                ModelVectors(
                    info.model_row,
                    self._matrix(info),
                    self._binary(info),
                    self._snapshot.cache.of_vectors(info.model_row, info.epoch),
                    all_used=not self._snapshot.unused_vectors,
                )
                if info and info.row_count
                else None
            )
        return self._models[model]

    def _matrix(self, info: VectorFileInfo) -> Matrix:
        parts = self._snapshot.parts
        file = VectorFile.at(parts.folder, self._snapshot.library, info)
        rows = parts.mapped_vectors.rows(file)
        return file.read_tables(self._session) if rows is None else rows

    def _binary(self, info: VectorFileInfo) -> BinaryVectors | None:
        """Map the sign bits where there are many vectors; without them all vectors are compared."""
        parts = self._snapshot.parts
        if info.row_count <= parts.max_exact_vectors:
            return None
        file = BinaryVectorFile.at(parts.folder, self._snapshot.library, info)
        return parts.mapped_vectors.rows(file)


def _hamming_candidates(
    vectors: ModelVectors, query: Vector, limit: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """Return the rows to score exactly, by Hamming distance; None if all should be."""
    if vectors.binary is None:
        return None
    from marklight.engines.vector_math import MIN_CANDIDATES, hamming_candidates

    if among is not None and len(among) <= MIN_CANDIDATES:
        return None
    return hamming_candidates(vectors.binary, query, limit, among=among)


def _scores(matrix: Matrix, query: Vector, wanted: NDArray[np.int64] | None) -> Vector:
    """Return the cosine of each of these rows, in order, or of all."""
    import numpy as np

    # Row by row, not as one product: BLAS would split that among threads, which wait for each other
    # on busy cores. 20,000 rows take 1.2 ms against 26 on busy cores, and no more on idle ones.
    if wanted is None:
        return np.asarray(np.vecdot(matrix, query))
    if 4 * len(wanted) > len(matrix):
        return np.asarray(np.vecdot(matrix, query)[wanted])
    scores = np.empty(len(wanted), dtype=np.float32)
    for start in range(0, len(wanted), _BLOCK_ROWS):
        block = wanted[start : start + _BLOCK_ROWS]
        scores[start : start + _BLOCK_ROWS] = np.vecdot(matrix[block], query)
    return scores


def _ranked(
    scores: Mapping[int, float], passages: list[tuple[int, str]], limit: int
) -> list[ScoredChunk]:
    results = [ScoredChunk(id, scores[place]) for place, id in passages]
    return sorted(results, key=lambda result: (-result.score, result.chunk_id))[:limit]
