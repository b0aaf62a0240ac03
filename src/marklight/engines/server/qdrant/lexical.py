"""Keyword search in Qdrant: a sparse query selects candidates, and their exact BM25 scores are computed here.

Document frequencies come from PostgreSQL: they are exact for the generation that a search reads. The inverse document
frequencies of Qdrant (`Modifier.IDF`) are those of one shard, with passages that were removed or are not visible yet. In a cluster
of three nodes with six shards, 150 queries of Cranfield gave the order of the embedded engine always with exact frequencies and
never with those of Qdrant, which returned another first passage for 15 of 100 queries and 92 % of the best 20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from qdrant_client import grpc as api

from marklight.engines.lexical import (
    CODE,
    PHRASE_FIELDS,
    PROSE,
    SCORE_DIGITS,
    WHOLE,
    LastSearch,
    analyzer_fingerprint,
    coverage,
    distinct_terms,
    idf,
    term_weight,
)
from marklight.engines.server.qdrant.filters import living_filter, row_filter
from marklight.engines.server.qdrant.points import TERMS, stored_terms
from marklight.engines.server.qdrant.terms import (
    QueryWeights,
    dimension,
    exact_scores,
    highest_score,
)
from marklight.errors import StoreError
from marklight.ports import ScoredChunk, TermCoverage
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.server.qdrant.outbox import IndexState
    from marklight.engines.server.qdrant.reading import SharedReader

EXACT_PASSAGES = 1_000
"""Passages up to which the candidates are proven to contain all results; above, the lowest scores are an estimate of the bound.

The mean lengths of fields change most while a library is small. Later the proof would often need a second, larger request.
"""


class QdrantLexicalReader:
    """Keyword search in one snapshot."""

    def __init__(self, shared: SharedReader) -> None:
        self._shared = shared
        self._last = LastSearch((), 0, [])

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        state = self._state()
        if state is None or not terms or limit <= 0:
            return []
        key = (*terms, *boosts.items(), filters)
        last = self._last  # another thread may replace it meanwhile
        if last.key != key or last.limit < limit:
            results = self._search(state, terms, boosts, filters, limit)
            last = self._last = LastSearch(key, limit, results)
        return last.results[:limit]

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        return self.search(terms, {CODE: 1.0}, filters, limit)

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        state, wanted = self._state(), distinct_terms(terms)
        if state is None or not wanted or not chunks:
            return {}
        anywhere, in_title = (
            np.array([dimension(field, term) for term in wanted]) for field in (WHOLE, "title")
        )
        frequencies = self._shared.frequencies(anywhere.tolist())
        weights = {
            term: term_weight(state.passages, frequencies.get(own, 0))
            for term, own in zip(wanted, anywhere.tolist(), strict=True)
        }
        rows = self._shared.rows_of(chunks)
        stored = self._shared.stored_terms(list(rows.values()))
        shares: dict[str, TermCoverage] = {}
        for id, row in rows.items():
            if row in stored:
                held = _selected(wanted, stored[row].get(anywhere))
                titled = _selected(wanted, stored[row].get(in_title))
                if held:
                    shares[id] = coverage(weights, held, titled)
        return shares

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        if self._state() is None:
            return set()
        # Of all fields at once: a keyword search of the same terms follows.
        every = [dimension(field, term) for term in terms for field in PROSE]
        frequencies = self._shared.frequencies(every)
        return {term for term in terms if frequencies.get(dimension(WHOLE, term), 0) > 0}

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return the rows of all passages with all of these terms in one field, in no order."""
        state = self._state()
        if state is None or (rows is not None and rows.matches_nothing):
            return []
        condition = _condition(state, rows)
        fields = [
            [dimension(field, term) for term in dict.fromkeys(terms)] for field in PHRASE_FIELDS
        ]
        frequencies = self._shared.frequencies([each for field in fields for each in field])
        queries = [
            self._conjunction(
                state, sorted(field, key=frequencies.__getitem__), frequencies, condition
            )
            for field in fields
            if all(frequencies.get(each, 0) > 0 for each in field)
        ]
        if not queries:
            return []
        request = api.QueryBatchPoints(collection_name=state.collection, query_points=queries)
        replies = self._shared.cluster.read("QueryBatch", request).result
        return list({point.id.num for reply in replies for point in reply.result})

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return the rows of all passages with each of these terms in a field, in no order."""
        state, found = self._state(), dict[str, list[int]]((term, []) for term in terms)
        if state is None or (rows is not None and rows.matches_nothing):
            return found
        frequencies = self._shared.frequencies([dimension(field, term) for term in terms])
        existing = [term for term in found if frequencies.get(dimension(field, term), 0) > 0]
        if existing:
            condition = _condition(state, rows)
            queries = [
                self._conjunction(state, [dimension(field, term)], frequencies, condition)
                for term in existing
            ]
            request = api.QueryBatchPoints(collection_name=state.collection, query_points=queries)
            replies = self._shared.cluster.read("QueryBatch", request).result
            for term, reply in zip(existing, replies, strict=True):
                found[term] = [point.id.num for point in reply.result]
        return found

    def _conjunction(
        self,
        state: IndexState,
        dimensions: Sequence[int],
        frequencies: Mapping[int, int],
        condition: Any,
    ) -> Any:
        """Return a query for the passages with all dimensions, rarest first: each step searches the results of the last."""
        limit = frequencies[dimensions[0]]
        prefetch: list[Any] = []
        for each in dimensions[:-1]:
            step = api.PrefetchQuery(
                prefetch=prefetch,
                query=_sparse([each], [1.0]),
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

    def _search(
        self,
        state: IndexState,
        terms: Sequence[str],
        boosts: Mapping[str, float],
        filters: Filters,
        limit: int,
    ) -> list[ScoredChunk]:
        condition = self._shared.condition(state, filters)
        wanted = {dimension(field, term) for term in terms for field in boosts}
        weights = {
            own: idf(state.passages, frequency)
            for own, frequency in self._shared.frequencies(list(wanted)).items()
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
            stored = self._shared.keep_terms(
                {point.id.num: stored_terms(point) for point in points}
            )
            scores = exact_scores(query, [stored[row] for row in rows], reference, means)
            ids = self._shared.living(rows, filters)
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
        points: Sequence[Any] = self._shared.cluster.read("Query", request).result
        return points

    def _state(self) -> IndexState | None:
        state = self._shared.state
        if state is not None and state.analyzer != analyzer_fingerprint():
            raise StoreError(
                f"Another version of Marklight wrote the terms in Qdrant at {self._shared.cluster}",
                "Use the same version on all machines; `marklight doctor` rebuilds the index for this one",
            )
        return state if state and state.passages else None


def _condition(state: IndexState, rows: RowFilter | None) -> Any:
    """Return the condition of the living passages among the rows; None for all."""
    return living_filter(state.generation) if rows is None else row_filter(rows, state.generation)


def _sparse(indices: Sequence[int], values: Sequence[float]) -> Any:
    vector = api.SparseVector(indices=indices, values=values)
    return api.Query(nearest=api.VectorInput(sparse=vector))


def _selected(terms: Sequence[str], values: Any) -> list[str]:
    return [term for term, value in zip(terms, values.tolist(), strict=True) if value > 0]
