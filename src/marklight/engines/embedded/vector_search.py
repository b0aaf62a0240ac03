"""Vector search: exact cosine over the matrix of a model; in a large one a first pass over binary vectors.

numpy is imported by the functions that need it: listing passages without a vector must not load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.engines import relational
from marklight.engines.embedded.vector_files import (
    BinaryVectorFile,
    VectorFile,
    VectorFileInfo,
    vector_file_info,
)
from marklight.engines.relational.documents import RelationalContents
from marklight.engines.relational.snapshot import RelationalVectors
from marklight.model import DocumentId
from marklight.ports import ScoredChunk
from marklight.query import Filters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marklight.engines.embedded.engine import EmbeddedSnapshot
    from marklight.engines.relational.snapshot import VectorCache
    from marklight.model import Matrix, Vector
    from marklight.vector_math import BinaryVectors

_BLOCK_ROWS = 8192
"""Rows copied at once, 12 MB with 384 numbers each."""
_CACHED_ROWS = 512
"""Rows that stay in the processor's cache."""
_ROUNDING_ERROR = 1e-5
"""A cosine may differ by this much; by 3e-8 in 20,000 random rows."""


class ModelVectors(NamedTuple):
    """The vectors of one model in a snapshot."""

    model_row: int
    matrix: NDArray[Any]
    """Unit vectors, or quantised ones if there are many."""
    binary: BinaryVectors | None
    """Sign bits, if there are so many vectors that a first pass over them is faster."""
    cache: VectorCache
    all_used: bool
    """True if every vector belongs to a passage."""


class EmbeddedVectors(RelationalVectors):
    """Vector search by cosine similarity."""

    _snapshot: EmbeddedSnapshot

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        super().__init__(snapshot)
        self._models: dict[str, ModelVectors | None] = {}

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        if limit <= 0 or (rows and rows.matches_nothing):
            return []
        vectors = self._comparable(vector, model)
        if vectors is None:
            return []
        from marklight.vector_math import unit_rows

        query = unit_rows(vector)
        if rows is None:
            return self._search_all(vectors, query, limit)
        return self._search_among(vectors, query, filters, limit)

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        vectors = None if rows and rows.matches_nothing else self._comparable(vector, model)
        if vectors is None:
            return {}
        import numpy as np

        from marklight.vector_math import unit_rows

        condition, values = self._snapshot.sql_condition(filters)
        passages = self._session.all(
            "SELECT c.document, v.file_row, c.row FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
            f" WHERE v.model = ? AND {condition} ORDER BY c.document, c.ordinal",
            [vectors.model_row, *values],
        )
        places = np.array([place for _, place, _ in passages], dtype=np.int64)
        scores = _scores(vectors.matrix, unit_rows(vector), places)
        best: dict[int, int] = {}
        for number in np.argsort(-scores, kind="stable").tolist():
            best.setdefault(passages[number][0], number)
        by_row = {passages[number][2]: float(scores[number]) for number in best.values()}
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
        return dict(zip(places, _decoded(vectors.matrix[list(places.values())]), strict=True))

    def at(self, model: str, places: Sequence[int]) -> Matrix:
        """Return the vectors at some rows of the vector file of a model."""
        vectors = self._open(model)
        if vectors is None or max(places, default=-1) >= len(vectors.matrix):
            raise relational.damaged_rows()
        return _decoded(vectors.matrix[list(places)])

    def _search_all(self, vectors: ModelVectors, query: Vector, limit: int) -> list[ScoredChunk]:
        from marklight.vector_math import top

        most = 4 * limit + 64
        candidates = _hamming_candidates(vectors, query, limit)
        if candidates is not None:
            candidates = _possibly_nearest(vectors.matrix, query, candidates, most)
        scores = _scores(vectors.matrix, query, candidates)
        # Vectors that no passage uses any more may be among the best: then more are looked up, and at
        # last all. Each is a page of the database, so the first try reads few.
        for count in (limit if vectors.all_used else limit + limit // 4 + 8, most):
            best = top(scores, count)
            places = best if candidates is None else candidates[best].tolist()
            passages = self._passages_at(vectors, places)
            if len(passages) >= limit or not len(scores):
                by_place = dict(zip(places, scores[best].tolist(), strict=True))
                return _best_first([ScoredChunk(id, by_place[at]) for at, id in passages], limit)
        return self._search_among(vectors, query, Filters(), limit)

    def _search_among(
        self, vectors: ModelVectors, query: Vector, filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        import numpy as np

        from marklight.vector_math import top

        def read(_: Sequence[Filters]) -> dict[Filters, NDArray[np.int64]]:
            condition, values = self._snapshot.sql_condition(filters)
            passages = self._session.all(
                "SELECT v.file_row, c.row FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
                f" WHERE v.model = ? AND {condition}",
                [vectors.model_row, *values],
            )
            return {filters: np.array(passages, dtype=np.int64).reshape(-1, 2).T.copy()}

        among, rows = vectors.cache.matching.get([filters], read)[filters]
        candidates = _hamming_candidates(vectors, query, limit, among)
        if candidates is None:
            scores = _scores(vectors.matrix, query, among)
        else:
            every = np.full(len(vectors.matrix), -np.inf, dtype=np.float32)
            every[candidates] = _scores(vectors.matrix, query, candidates)
            scores = every[among]
        best = top(scores, limit)
        found = rows[best].tolist()
        ids = self._snapshot.ids_of(found)
        if len(ids) < len(found):
            raise relational.damaged_rows()
        hits = zip(found, scores[best].tolist(), strict=True)
        return _best_first([ScoredChunk(ids[row], score) for row, score in hits], limit)

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

        stored = vectors.cache.ids.get(places, read)
        passages = [(place, id) for place, ids in stored.items() for id in ids]
        vectors.cache.places.add({id: place for place, id in passages})
        return passages

    def _comparable(self, vector: Vector, model: str) -> ModelVectors | None:
        """Return the vectors of a model; raise StoreError if the query has another dimension."""
        from marklight.vector_math import check_dimension

        vectors = self._open(model)
        if vectors:
            check_dimension(vector, vectors.matrix.shape[1], model)
        return vectors

    def _open(self, model: str) -> ModelVectors | None:
        """Map the vectors of a model once; None if it has none."""
        if model not in self._models:
            info = vector_file_info(self._snapshot.session, model)
            self._models[model] = self._mapped(info) if info and info.row_count else None
        return self._models[model]

    def _mapped(self, info: VectorFileInfo) -> ModelVectors | None:
        """Map the vectors, and the sign bits where there are many; without these all vectors are compared."""
        parts, library = self._snapshot.parts, self._snapshot.library
        matrix = parts.mapped_vectors.rows(VectorFile.at(parts.folder, library, info))
        if matrix is None:
            return None
        binary = None
        if info.row_count > parts.max_exact_vectors:
            binary = parts.mapped_vectors.rows(BinaryVectorFile.at(parts.folder, library, info))
        cache = self._snapshot.cache.of_vectors(info.model_row, info.epoch)
        all_used = not self._snapshot.unused_vectors
        return ModelVectors(info.model_row, matrix, binary, cache, all_used)


class EmbeddedContents(RelationalContents):
    """Documents and vectors, ordered by key."""

    stored_vector = "v.file_row"

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        super().__init__(snapshot)
        self._vectors = snapshot.vectors

    def decode_vectors(self, model: str, rows: Sequence[int], dimension: int) -> Matrix:  # noqa: ARG002
        return self._vectors.at(model, rows)


def _hamming_candidates(
    vectors: ModelVectors, query: Vector, limit: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """Return the rows to score exactly, by Hamming distance; None if all should be."""
    if vectors.binary is None:
        return None
    from marklight.vector_math import MIN_CANDIDATES, hamming_candidates

    if among is not None and len(among) <= MIN_CANDIDATES:
        return None
    return hamming_candidates(vectors.binary, query, limit, among=among)


def _possibly_nearest(
    matrix: NDArray[Any], query: Vector, candidates: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the candidates that may be among the nearest so many, by cosines that only rounding makes inexact.

    Without decoding the rows this takes half the time: 1.9 instead of 4.3 ms for the 20,000 candidates of a million vectors.
    """
    import numpy as np

    if len(candidates) <= count:
        return candidates
    cosines = np.empty(len(candidates), dtype=np.float32)
    for start in range(0, len(candidates), _CACHED_ROWS):
        block = slice(start, start + _CACHED_ROWS)
        rows = matrix[candidates[block]].astype(np.float32)
        lengths = np.sqrt(np.vecdot(rows, rows))
        cosines[block] = np.vecdot(rows, query) / np.where(lengths > 0, lengths, 1)
    least = np.partition(cosines, len(cosines) - count)[len(cosines) - count]
    possible: NDArray[np.int64] = candidates[cosines >= least - _ROUNDING_ERROR]
    return possible


def _scores(matrix: NDArray[Any], query: Vector, wanted: NDArray[np.int64] | None) -> Vector:
    """Return the cosine of each of these rows, in order, or of all."""
    import numpy as np

    # Row by row, not as one product: BLAS would split that among threads, which wait for each other
    # on busy cores. 20,000 rows take 1.2 ms against 26 on busy cores, and no more on idle ones.
    if matrix.dtype == np.float32 and (wanted is None or 4 * len(wanted) > len(matrix)):
        every = np.asarray(np.vecdot(matrix, query))
        return every if wanted is None else every[wanted]
    scores = np.empty(len(matrix) if wanted is None else len(wanted), dtype=np.float32)
    for start in range(0, len(scores), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        rows = matrix[block if wanted is None else wanted[block]]
        scores[block] = np.vecdot(_decoded(rows), query)
    return scores


def _decoded(rows: NDArray[Any]) -> Matrix:
    """Return rows of a vector file as unit vectors; those of a small one are decoded already."""
    from marklight.vector_math import decode_vectors

    return rows if rows.dtype.kind == "f" else decode_vectors(rows)


def _best_first(results: list[ScoredChunk], limit: int) -> list[ScoredChunk]:
    return sorted(results, key=lambda result: (-result.score, result.chunk_id))[:limit]
