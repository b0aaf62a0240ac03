"""Keyword search in Qdrant: a sparse query selects candidates, and their exact BM25 scores are computed here.

The terms of a passage are a sparse vector: a dimension for each field and term, BM25's share of the term frequency as its value. It
depends on the mean length of its field when the collection was built, which changes with every commit, so stored values only select
candidates. Their exact scores are computed from the term frequencies, which follow from the values, and the field lengths, which
have dimensions of their own.

Document frequencies come from PostgreSQL: they are exact for the generation that a search reads. The inverse document
frequencies of Qdrant (`Modifier.IDF`) are those of one shard, with passages that were removed or are not visible yet. In a cluster
of three nodes with six shards, 150 queries of Cranfield gave the order of the embedded engine always with exact frequencies and
never with those of Qdrant, which returned another first passage for 15 of 100 queries and 92 % of the best 20.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from qdrant_client import grpc as api

from marklight.engines.relational.snapshot import BoundedCache
from marklight.engines.server.bm25 import (
    LENGTHS,
    SATURATION,
    Floats,
    Ints,
    length_codes,
    norms,
    term_scores,
)
from marklight.engines.server.qdrant import collections
from marklight.engines.server.qdrant.collections import (
    TERMS,
    is_native,
    native_filter,
    row_filter,
)
from marklight.engines.server.qdrant.outbox import IndexState, read_index
from marklight.errors import StoreError
from marklight.lazy import once
from marklight.lexical import FIELDS as FIELDS
from marklight.lexical import (
    PHRASE_FIELDS,
    PROSE,
    SCORE_DIGITS,
    WHOLE,
    RepeatableSearch,
    analyzer_fingerprint,
    coverage,
    distinct_terms,
    idf,
    term_weight,
)
from marklight.ports import ScoredChunk, TermCoverage
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.server.postgres.engine import PostgresSnapshot
    from marklight.engines.server.qdrant import QdrantLexicalIndex

FIELD_NUMBERS = {field: number for number, field in enumerate(FIELDS)}
MAX_FREQUENCY = 65_535
CACHED_DIMENSIONS = 200_000
"""Dimensions that are kept, some 30 MB: hashing takes half of the time of preparing a passage otherwise."""
EXACT_PASSAGES = 1_000
"""Passages up to which the candidates are proven to contain all results; above, the lowest scores are an estimate of the bound.

The mean lengths of fields change most while a library is small. Later the proof would often need a second, larger request.
"""


@lru_cache(maxsize=CACHED_DIMENSIONS)
def dimension(field: str, term: str) -> int:
    """Return the dimension of a term in a field: a 32-bit hash."""
    data = f"{field}\0{term}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=4).digest(), "little")


LENGTH_DIMENSIONS = np.array([dimension("", field) for field in FIELDS], dtype=np.int64)
"""Dimensions with the length of each field; no term is in a field without a name."""


class PassageTerms(NamedTuple):
    """Terms of one passage: a dimension, its field and its term frequency for each, and the length of every field."""

    dimensions: Ints
    fields: Ints
    frequencies: Ints
    lengths: Ints


def passage_vector_terms(terms: Mapping[str, Sequence[str]]) -> PassageTerms:
    """Return the terms of a passage, given by field, by dimension."""
    by_dimension: dict[int, tuple[int, int]] = {}
    for number, field in enumerate(FIELDS):
        for term, frequency in Counter(terms[field]).items():
            # Of two terms with the same hash the first counts.
            by_dimension.setdefault(dimension(field, term), (number, min(frequency, MAX_FREQUENCY)))
    pairs = np.array(list(by_dimension.values()), dtype=np.int64).reshape(-1, 2)
    return PassageTerms(
        np.array(list(by_dimension), dtype=np.int64),
        pairs[:, 0],
        pairs[:, 1],
        np.array([len(terms[field]) for field in FIELDS], dtype=np.int64),
    )


def rounded(lengths: Ints) -> Ints:
    """Return lengths as other engines store them, in one byte."""
    return LENGTHS[length_codes(lengths)]


def sparse_vector(terms: PassageTerms, reference: Floats) -> tuple[list[int], list[float]]:
    """Return dimensions and values of a passage, computed with the mean lengths of `reference`."""
    lengths = rounded(terms.lengths)[terms.fields]
    values = term_scores(terms.frequencies, norms(lengths, reference[terms.fields]))
    filled = np.nonzero(terms.lengths)[0]
    return (
        [*terms.dimensions.tolist(), *LENGTH_DIMENSIONS[filled].tolist()],
        [*values.tolist(), *terms.lengths[filled].astype(float).tolist()],
    )


class StoredTerms(NamedTuple):
    """A sparse vector as Qdrant returns it, sorted by dimension."""

    dimensions: Ints
    values: Floats

    @classmethod
    def sorted(cls, dimensions: Iterable[int], values: Iterable[float]) -> StoredTerms:
        """Return a vector in the order of its dimensions."""
        given = np.fromiter(dimensions, dtype=np.int64)
        order = np.argsort(given, kind="stable")
        return cls(given[order], np.fromiter(values, dtype=np.float64)[order])

    def get(self, wanted: Ints) -> Floats:
        """Return the values of these dimensions, 0 where it has none."""
        if not len(self.dimensions):
            return np.zeros(len(wanted))
        places = np.minimum(np.searchsorted(self.dimensions, wanted), len(self.dimensions) - 1)
        return np.where(self.dimensions[places] == wanted, self.values[places], 0.0)

    def terms(self) -> Ints:
        """Return the dimensions of its terms, without those of field lengths."""
        return np.setdiff1d(self.dimensions, LENGTH_DIMENSIONS, assume_unique=True)

    def lengths(self) -> Ints:
        """Return the length of every field."""
        return self.get(LENGTH_DIMENSIONS).astype(np.int64)


def stored_terms(point: Any) -> StoredTerms:
    """Return the sparse vector of a point."""
    vector = point.vectors.vectors.vectors[TERMS]
    # Servers up to 1.16 return them in fields that are deprecated.
    sparse = vector.HasField("sparse")
    return StoredTerms.sorted(
        vector.sparse.indices if sparse else vector.indices.data,
        vector.sparse.values if sparse else vector.data,
    )


class QueryWeights(NamedTuple):
    """Dimensions of a query, sorted, with the weight (boost × idf) and the field of each."""

    dimensions: Ints
    weights: Floats
    fields: Ints

    @classmethod
    def of(
        cls, terms: Sequence[str], boosts: Mapping[str, float], idf: Mapping[int, float]
    ) -> QueryWeights:
        """Return the weights of the terms that occur; a repeated term has a higher weight."""
        weights: dict[int, tuple[float, int]] = {}
        for term, times in Counter(terms).items():
            for field, boost in boosts.items():
                number = dimension(field, term)
                if boost > 0 and number in idf:
                    before = weights.get(number, (0.0, 0))[0]
                    weights[number] = before + times * boost * idf[number], FIELD_NUMBERS[field]
        dimensions = sorted(weights)
        return cls(
            np.array(dimensions, dtype=np.int64),
            np.array([weights[number][0] for number in dimensions]),
            np.array([weights[number][1] for number in dimensions], dtype=np.int64),
        )


def exact_scores(
    query: QueryWeights, passages: Sequence[StoredTerms], reference: Floats, means: Floats
) -> list[float]:
    """Return BM25 with the mean lengths of now, from values that were stored with those of `reference`."""
    if not passages:
        return []
    values = np.stack([passage.get(query.dimensions) for passage in passages])
    lengths = rounded(np.stack([passage.lengths() for passage in passages])[:, query.fields])
    before = norms(lengths, reference[query.fields])
    frequencies = np.rint(values * before / np.maximum(SATURATION - values, 1e-9))
    now = norms(lengths, np.maximum(means[query.fields], 1e-9))
    scores: list[float] = (term_scores(frequencies, now) @ query.weights).tolist()
    return scores


def highest_score(query: QueryWeights, score: float, reference: Floats, means: Floats) -> float:
    """Return a bound of the exact scores of passages whose stored values give at most this score.

    The share of a field grows at most by the ratio of the mean lengths, and is never more than its weights allow.
    """
    bound = score
    for field in np.unique(query.fields):
        growth = float(means[field] / reference[field]) - 1
        most = SATURATION * float(query.weights[query.fields == field].sum())
        bound += max(0.0, growth) * min(score, most)
    return bound


MAX_TERMS = 4096
"""Passages whose terms are cached, some 15 MB: term coverage is computed of passages that a search returned."""
MAX_FREQUENCIES = 100_000
"""Document frequencies that are cached, of the terms of some thousand queries."""


class Caches:
    """Caches of one engine: terms of passages, which never change, and document frequencies by generation."""

    def __init__(self) -> None:
        self.terms: BoundedCache[tuple[str, int], StoredTerms] = BoundedCache(MAX_TERMS)
        self.frequencies: BoundedCache[tuple[int, int, int], int] = BoundedCache(MAX_FREQUENCIES)


class QdrantLexicalReader(RepeatableSearch):
    """Keyword search in one snapshot, and what vector search in it needs too.

    PostgreSQL decides which passages a snapshot has. Qdrant may have more: those of later commits, and removed ones.
    """

    def __init__(self, snapshot: PostgresSnapshot, index: QdrantLexicalIndex) -> None:
        super().__init__()
        self.index = index
        self._snapshot = snapshot
        self._session = snapshot.session

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        state, wanted = self._terms_state(), distinct_terms(terms)
        if state is None or not wanted or not chunks:
            return {}
        anywhere, in_title = (
            np.array([dimension(field, term) for term in wanted]) for field in (WHOLE, "title")
        )
        frequencies = self.frequencies(anywhere.tolist())
        weights = {
            term: term_weight(state.passages, frequencies.get(number, 0))
            for term, number in zip(wanted, anywhere.tolist(), strict=True)
        }
        rows = self._snapshot.rows_of(chunks)
        stored = self.stored_terms(list(rows.values()))
        shares: dict[str, TermCoverage] = {}
        for id, row in rows.items():
            if row in stored:
                held = _selected(wanted, stored[row].get(anywhere))
                titled = _selected(wanted, stored[row].get(in_title))
                if held:
                    shares[id] = coverage(weights, held, titled)
        return shares

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        if self._terms_state() is None:
            return set()
        # Of all fields at once: a keyword search of the same terms follows.
        every = [dimension(field, term) for term in terms for field in PROSE]
        frequencies = self.frequencies(every)
        return {term for term in terms if frequencies.get(dimension(WHOLE, term), 0) > 0}

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return the rows of all passages with all of these terms in one field, in no order."""
        distinct = list(dict.fromkeys(terms))
        groups = [[dimension(field, term) for term in distinct] for field in PHRASE_FIELDS]
        return list({row for matches in self._rows_with_all(groups, rows) for row in matches})

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return the rows of all passages with each of these terms in a field, in no order."""
        groups = [[dimension(field, term)] for term in terms]
        return dict(zip(terms, self._rows_with_all(groups, rows), strict=True))

    def _rows_with_all(
        self, groups: Sequence[Sequence[int]], rows: RowFilter | None
    ) -> list[list[int]]:
        """Return for each group of dimensions the rows of all passages that have all of them."""
        state, results = self._terms_state(), [list[int]() for _ in groups]
        if state is None or (rows is not None and rows.matches_nothing):
            return results
        condition = row_filter(rows, state.generation)
        frequencies = self.frequencies([number for group in groups for number in group])
        existing = [
            (place, sorted(group, key=frequencies.__getitem__))
            for place, group in enumerate(groups)
            if all(frequencies[number] > 0 for number in group)
        ]
        if existing:
            queries = [
                self._conjunction(state, group, frequencies[group[0]], condition)
                for _, group in existing
            ]
            request = api.QueryBatchPoints(collection_name=state.collection, query_points=queries)
            replies = self.index.cluster.read("QueryBatch", request).result
            for (place, _), reply in zip(existing, replies, strict=True):
                results[place] = [point.id.num for point in reply.result]
        return results

    def _conjunction(
        self, state: IndexState, dimensions: Sequence[int], limit: int, condition: Any
    ) -> Any:
        """Return a query for the passages with all dimensions, rarest first: each step searches the results of the last."""
        prefetch: list[Any] = []
        for number in dimensions[:-1]:
            step = api.PrefetchQuery(
                prefetch=prefetch,
                query=_sparse([number], [1.0]),
                using=TERMS,
                filter=condition,
                limit=limit,
            )
            prefetch = [step]
        return api.QueryPoints(
            collection_name=state.collection,
            prefetch=prefetch,
            query=_sparse([dimensions[-1]], [1.0]),
            using=TERMS,
            filter=condition,
            limit=limit,
        )

    def find(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        state = self._terms_state()
        if state is None:
            return []
        condition = self.condition(state, filters)
        wanted = {dimension(field, term) for term in terms for field in boosts}
        weights = {
            number: idf(state.passages, frequency)
            for number, frequency in self.frequencies(list(wanted)).items()
            if frequency > 0
        }
        query = QueryWeights.of(terms, boosts, weights)
        if condition is None or not len(query.dimensions):
            return []
        reference, means = state.reference, state.means
        requested = limit + limit // 4 + 8
        while True:
            requested = min(requested, state.passages)
            points = self._candidates(state, query, condition, requested)
            rows = [point.id.num for point in points]
            stored = self.keep_terms({point.id.num: stored_terms(point) for point in points})
            scores = exact_scores(query, [stored[row] for row in rows], reference, means)
            ids = self._snapshot.ids_of(rows)
            results = sorted(
                (
                    ScoredChunk(ids[row], round(score, SCORE_DIGITS))
                    for row, score in zip(rows, scores, strict=True)
                    if row in ids
                ),
                key=lambda result: (-result.score, result.chunk_id),
            )
            if len(points) < requested or requested == state.passages:
                return results[:limit]
            # No passage that was not fetched may belong to the results, nor tie with the last of them.
            last = points[-1].score
            bound = (
                highest_score(query, last, reference, means)
                if state.passages <= EXACT_PASSAGES
                else min(scores[-1], last)
            )
            if len(results) >= limit and results[limit - 1].score > bound + 10**-SCORE_DIGITS:
                return results[:limit]
            requested *= 4

    def _candidates(
        self, state: IndexState, query: QueryWeights, condition: Any, limit: int
    ) -> Sequence[Any]:
        request = api.QueryPoints(
            collection_name=state.collection,
            query=_sparse(query.dimensions.tolist(), query.weights.tolist()),
            using=TERMS,
            filter=condition,
            limit=limit,
            with_payload=api.WithPayloadSelector(enable=False),
            with_vectors=api.WithVectorsSelector(enable=True),
        )
        points: Sequence[Any] = self.index.cluster.read("Query", request).result
        return points

    def _terms_state(self) -> IndexState | None:
        """Return the state of the index; raise StoreError if another analyzer produced its terms."""
        state = self.state
        if state is not None and state.analyzer != analyzer_fingerprint():
            raise StoreError(
                f"Another version of Marklight wrote the terms in Qdrant at {self.index.cluster}",
                "Use the same version on all machines; `marklight doctor` rebuilds the index for this one",
            )
        return state if state and state.passages else None

    @property
    def state(self) -> IndexState | None:
        """Return the state of the index in this snapshot, read once; None if there is no passage to find.

        Raises StoreError if there are passages, but none was ever shipped: no answer would be a wrong answer.
        """
        if not self._snapshot.chunk_count:  # the tables of this index may not exist yet
            return None
        state, _ = self._collections
        if state is None:
            raise self.index.failure or StoreError(
                f"The passages of this library are not in Qdrant at {self.index.cluster} yet",
                "Run `marklight index` with a role that may write: it copies them from PostgreSQL",
            )
        return state

    @once
    def _collections(self) -> tuple[IndexState | None, dict[str, str]]:
        return read_index(self._session)

    def collection_of(self, model: str) -> str | None:
        """Return the collection with the vectors of a model; None if it has none."""
        return self._collections[1].get(model) if self.state else None

    def condition(self, state: IndexState, filters: Filters) -> Any:
        """Return the condition for Qdrant; None if no passage can match."""
        if is_native(filters):
            return native_filter(filters, state.generation)
        rows = self._snapshot.row_filter(filters)
        return None if rows and rows.matches_nothing else row_filter(rows, state.generation)

    def frequencies(self, dimensions: Sequence[int]) -> Mapping[int, int]:
        """Return the number of passages with each dimension, 0 where there is none."""
        state = self.state
        if state is None:
            return {}
        version, generation = state.version, state.generation

        def read(keys: list[tuple[int, int, int]]) -> Mapping[tuple[int, int, int], int]:
            counts: dict[int, int] = dict(
                self._session.all(
                    "SELECT t.dimension, t.passages FROM integers(?) i CROSS JOIN term_frequencies t"
                    " ON t.version = ? AND t.dimension = i.value",
                    [[number for _, _, number in keys], version],
                )
            )
            return {key: counts.get(key[2], 0) for key in keys}

        keys = [(version, generation, number) for number in dimensions]
        counts = self.index.caches.frequencies.get(keys, read)
        return {number: count for (_, _, number), count in counts.items()}

    def keep_terms(self, terms: Mapping[int, StoredTerms]) -> Mapping[int, StoredTerms]:
        """Cache the terms of passages that a search returned."""
        if state := self.state:
            self.index.caches.terms.add(
                {(state.collection, row): stored for row, stored in terms.items()}
            )
        return terms

    def stored_terms(self, rows: Sequence[int]) -> Mapping[int, StoredTerms]:
        """Return the terms of passages, those that are not cached in one request."""
        state = self.state
        if state is None:
            return {}

        def read(keys: list[tuple[str, int]]) -> Mapping[tuple[str, int], StoredTerms]:
            missing = [row for _, row in keys]
            points = collections.get(self.index.cluster, state.collection, missing, vectors=True)
            return {(state.collection, point.id.num): stored_terms(point) for point in points}

        cached = self.index.caches.terms.get([(state.collection, row) for row in rows], read)
        return {row: terms for (_, row), terms in cached.items()}


def _sparse(indices: Sequence[int], values: Sequence[float]) -> Any:
    vector = api.SparseVector(indices=indices, values=values)
    return api.Query(nearest=api.VectorInput(sparse=vector))


def _selected(terms: Sequence[str], values: Any) -> list[str]:
    return [term for term, value in zip(terms, values.tolist(), strict=True) if value > 0]
