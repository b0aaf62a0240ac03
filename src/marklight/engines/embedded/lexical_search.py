"""Keyword search in the tantivy index: BM25 queries, term coverage, and the index that fits a snapshot.

The index may contain more passages than the snapshot: those of later commits, and deleted ones. Results are
filtered by rows that the snapshot has. An index that does not fit is rebuilt, or replaced by one in memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import tantivy
from tantivy import Occur, Query

from marklight.engines.embedded import lexical_index
from marklight.engines.embedded.lexical_index import (
    OpenIndex,
    TableState,
    UnusableIndex,
    count_deleted,
    rows_at,
    schema,
    table_state,
    tantivy_errors,
)
from marklight.engines.lexical import (
    PHRASE_FIELDS,
    SCORE_DIGITS,
    WHOLE,
    RepeatableSearch,
    coverage,
    distinct_terms,
    term_weight,
)
from marklight.errors import StoreError
from marklight.ports import ScoredChunk, TermCoverage
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.embedded.engine import EmbeddedSnapshot
    from marklight.engines.relational.filters import RowFilter

Value = TypeVar("Value")


class EmbeddedLexical(RepeatableSearch):
    """Keyword search in the index of one snapshot, opened on first use by one of several threads."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._parts = snapshot.parts
        self._index: OpenIndex | None = None
        self._state = table_state(snapshot.session)
        self._opening = Lock()
        self._deleted = count_deleted(snapshot.session)

    def find(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        if (rows and rows.matches_nothing) or self._is_empty:
            return []
        query = bm25_query(terms, boosts, rows)
        return self._run(lambda index: best(index.searcher, query, limit, self._snapshot.ids_of))

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        ids = self._snapshot.rows_of(chunks) if terms and chunks else {}
        rows = {row: id for id, row in ids.items()}
        return self._run(lambda index: _coverage(index.searcher, terms, rows)) if rows else {}

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        if self._is_empty:
            return set()

        def existing(index: OpenIndex) -> set[str]:
            # Passages beyond the snapshot: those deleted since the index was built, and newer ones.
            newer = max(0, index.searcher.num_docs - self._snapshot.chunk_count)
            beyond = self._deleted - index.deleted + newer
            frequencies = {
                term: index.searcher.doc_freq(WHOLE, term) for term in dict.fromkeys(terms)
            }
            return {
                term
                for term, frequency in frequencies.items()
                # A frequency above that is proof in a thousandth of the time of a search.
                if frequency > beyond or (frequency and self._contains(index, term))
            }

        return self._run(existing)

    def _contains(self, index: OpenIndex, term: str) -> bool:
        query = Query.term_query(schema(), WHOLE, term)
        return bool(best(index.searcher, query, 1, self._snapshot.ids_of))

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return all passages with all of these terms in one field, in no order; some may be deleted."""
        if self._is_empty:
            return []
        query = _restricted(
            Query.boolean_query(
                [
                    (
                        Occur.Should,
                        Query.boolean_query(
                            [
                                (Occur.Must, Query.term_query(schema(), field, term))
                                for term in terms
                            ]
                        ),
                    )
                    for field in PHRASE_FIELDS
                ]
            ),
            rows,
        )

        return self._run(lambda index: _all_rows(index.searcher, query))

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return all passages with each of these terms in a field, in no order; some may be deleted."""
        if self._is_empty:
            return {term: [] for term in terms}
        queries = {
            term: _restricted(Query.term_query(schema(), field, term), rows) for term in terms
        }
        return self._run(
            lambda index: {
                term: _all_rows(index.searcher, query) for term, query in queries.items()
            }
        )

    @property
    def _is_empty(self) -> bool:
        return not self._snapshot.chunk_count

    def _run(self, search: Callable[[OpenIndex], Value]) -> Value:
        """Search the index; if that fails, rebuild it and try once more."""
        for last_try in (False, True):
            index = self._index or self._open_once()
            try:
                with tantivy_errors():
                    return search(index)
            except UnusableIndex as error:
                if last_try:
                    raise StoreError(
                        f"{self._parts.lexical.folder} cannot be searched ({error})",
                        "Run `marklight doctor`",
                    ) from error
                self._replace(index, error)
        raise AssertionError("unreachable")

    def open_early(self) -> None:
        """Open the index if that costs nothing, so that no later commit changes what this snapshot finds."""
        if self._parts.lexical.is_open and not self._is_empty:
            try:
                self._index = self._on_disk()
            except UnusableIndex:
                self._parts.lexical.forget()

    def _open_once(self) -> OpenIndex:
        with self._opening:
            self._index = self._index or self._open_or_rebuild()
            return self._index

    def _replace(self, unfit: OpenIndex, reason: UnusableIndex) -> None:
        with self._opening:
            if self._index is unfit:  # else another thread has done it
                self._index = None
                self._rebuild(reason)

    def _open_or_rebuild(self) -> OpenIndex:
        # Passages that this snapshot still has may be deleted from the index by now.
        late = (
            time.monotonic() - self._snapshot.opened_at > lexical_index.GRACE_SECONDS / 2
            and self._newest()[0] != self._snapshot.generation
        )
        if not late:
            try:
                return self._on_disk()
            except UnusableIndex:
                self._rebuild()
            try:
                return self._on_disk()
            except UnusableIndex:
                self._parts.lexical.forget()
        from marklight.engines.embedded.lexical_writer import build_in_memory

        return OpenIndex(build_in_memory(self._snapshot.session).searcher(), self._deleted)

    def _on_disk(self) -> OpenIndex:
        return self._parts.lexical.open(self._state, lambda: self._newest()[1])

    def _newest(self) -> tuple[int, TableState]:
        """Return the newest generation and the build and commit of the index that belong to it."""
        with self._parts.store.snapshot() as session:
            return int(session.value("SELECT generation FROM state")), table_state(session)

    def _rebuild(self, reason: UnusableIndex | None = None) -> None:
        """Rebuild the index if it does not match the tables; a build of the same generation serves this snapshot too."""
        from marklight.engines.embedded.lexical_writer import rebuild_if_unlocked

        rebuild_if_unlocked(self._parts, reason)
        generation, state = self._newest()
        if generation == self._snapshot.generation:
            self._state = state


def bm25_query(
    terms: Sequence[str], boosts: Mapping[str, float], rows: RowFilter | None = None
) -> Query:
    """Return a query for any of the terms in any of the boosted fields."""
    any_term = Query.boolean_query(
        [
            (
                Occur.Should,
                Query.boost_query(Query.term_query(schema(), field, term), times * boost),
            )
            # A repeated term is one clause with a higher boost: a pasted text would cost more otherwise.
            for term, times in Counter(terms).items()
            for field, boost in boosts.items()
            if boost > 0
        ]
    )
    return _restricted(any_term, rows)


def _restricted(query: Query, rows: RowFilter | None) -> Query:
    """Restrict a query to matching rows, which do not change its scores."""
    if rows is None or (rows.exclude and not rows.rows):
        return query
    those = Query.term_set_query(schema(), rows.column, rows.rows)
    if rows.exclude:
        return Query.boolean_query([(Occur.Must, query), (Occur.MustNot, those)])
    return Query.boolean_query(
        [(Occur.Must, query), (Occur.Must, Query.const_score_query(those, 0.0))]
    )


def _all_rows(searcher: tantivy.Searcher, query: Query) -> list[int]:
    """Return the rows of all passages that match a query, in no order."""
    hits = searcher.search(query, limit=max(1, searcher.num_docs), count=False).hits
    return rows_at(searcher, [address for _, address in hits])


def best(
    searcher: tantivy.Searcher,
    query: Query,
    limit: int,
    living: Callable[[Sequence[int]], Mapping[int, str]],
) -> list[ScoredChunk]:
    """Return the best passages that the snapshot has, ties ordered by id.

    Others are dropped, and more are requested until the limit is filled with everything that ties for it.
    """
    everything = max(1, searcher.num_docs)
    requested = limit + limit // 4 + 8
    while True:
        requested = min(requested, everything)  # tantivy allocates memory for as many
        hits = searcher.search(query, limit=requested, count=False).hits
        rows = rows_at(searcher, [address for _, address in hits])
        scores = [round(score, SCORE_DIGITS) for score, _ in hits]
        # Each row is a page of the database to read: first as many as suffice if none was deleted.
        enough = sum(score >= scores[limit - 1] for score in scores) if len(hits) > limit else 0
        for count in (enough, len(hits)):
            ids = living(rows[:count]) if count else {}
            results = [
                ScoredChunk(ids[row], score)
                for row, score in zip(rows[:count], scores, strict=False)
                if row in ids
            ]
            if len(results) >= limit and scores[-1] < results[limit - 1].score:
                return _ranked(results, limit)
        if len(hits) < requested or requested == everything:
            return _ranked(results, limit)
        requested *= 4


def _ranked(results: list[ScoredChunk], limit: int) -> list[ScoredChunk]:
    return sorted(results, key=lambda result: (-result.score, result.chunk_id))[:limit]


TERMS_PER_QUERY = 12
"""Terms in one coverage query: each has two bits of a score, a 32-bit float, whose integers are exact up to 24 bits. The
lower half of the bits is of terms anywhere in the passage, the upper half of terms in the title."""


def _coverage(
    searcher: tantivy.Searcher, terms: Sequence[str], chunks: Mapping[int, str]
) -> dict[str, TermCoverage]:
    """Return the term coverage of passages, given by their rows."""
    wanted = distinct_terms(terms)
    weights = {
        term: term_weight(searcher.num_docs, searcher.doc_freq(WHOLE, term)) for term in wanted
    }
    rows, bits_of = list(chunks), dict[int, int]()
    for begin in range(0, len(wanted), TERMS_PER_QUERY):
        for row, bits in _term_bits(searcher, wanted[begin : begin + TERMS_PER_QUERY], rows):
            bits_of[row] = bits_of.get(row, 0) | bits << 2 * begin
    places = {
        term: 2 * TERMS_PER_QUERY * (place // TERMS_PER_QUERY) + place % TERMS_PER_QUERY
        for place, term in enumerate(wanted)
    }
    # Most passages have one of a few sets of terms.
    shares = {
        bits: coverage(
            weights,
            [term for term, place in places.items() if bits >> place & 1],
            [term for term, place in places.items() if bits >> place + TERMS_PER_QUERY & 1],
        )
        for bits in set(bits_of.values())
    }
    return {chunks[row]: shares[bits] for row, bits in bits_of.items()}


def _term_bits(
    searcher: tantivy.Searcher, terms: Sequence[str], rows: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Return for each row with any of the terms a bit set of those terms, computed as a sum of scores."""
    # One clause per row: a term set query walks over all terms of the field, which takes twice as long.
    these = Query.boolean_query(
        [(Occur.Should, Query.term_query(schema(), "row", row)) for row in rows]
    )
    any_term = Query.boolean_query(
        [
            (
                Occur.Should,
                Query.const_score_query(Query.term_query(schema(), field, term), float(1 << bit)),
            )
            for place, term in enumerate(terms)
            for field, bit in ((WHOLE, place), ("title", place + TERMS_PER_QUERY))
        ]
    )
    query = Query.boolean_query(
        [(Occur.Must, any_term), (Occur.Must, Query.const_score_query(these, 0.0))]
    )
    hits = searcher.search(query, limit=len(rows), count=False).hits
    matching = rows_at(searcher, [address for _, address in hits])
    return zip(matching, (int(score) for score, _ in hits), strict=True)
