"""Keyword search in the segments of one snapshot: one round trip for the postings of all terms, and one for the ids of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from marklight.engines.lexical import (
    CODE,
    analyzer_fingerprint,
    coverage,
    distinct_terms,
    term_weight,
)
from marklight.engines.server.postgres.lexical import bm25
from marklight.engines.server.postgres.lexical.cache import Found, Key, LexicalCache, StoredSegment
from marklight.engines.server.postgres.lexical.posting_blocks import find_postings
from marklight.engines.server.postgres.lexical.segments import (
    FIELDS,
    NO_ROWS,
    DamagedSegment,
    Passages,
    term_key,
)
from marklight.errors import StoreError
from marklight.ports import ScoredChunk, TermCoverage
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.relational.snapshot import SnapshotCache
    from marklight.engines.server.postgres.session import PostgresSession

_SEGMENTS = """
SELECT s.id, k.id IS NOT NULL, s.analyzer, s.net_passages, s.net_lengths,
    CASE WHEN k.id IS NULL THEN s.deleted END, CASE WHEN k.id IS NULL THEN s.passage_rows END,
    CASE WHEN k.id IS NULL THEN s.document_rows END, CASE WHEN k.id IS NULL THEN s.lengths END
FROM segments s LEFT JOIN unnest($1::bigint[]) k(id) ON k.id = s.id
"""
"""All segments; of known ones only the id."""

_BLOCKS = """
SELECT p.segment, p.first_term, p.data FROM (
    SELECT DISTINCT s.id, b.first_term
    FROM segments s CROSS JOIN unnest($1::bytea[]) t(term) CROSS JOIN LATERAL (
        SELECT p.first_term FROM postings p WHERE p.segment = s.id AND p.first_term <= t.term
        ORDER BY p.first_term DESC LIMIT 1
    ) b
    WHERE NOT s.id = ANY($2::bigint[]) OR t.term = ANY($3::bytea[])
) w JOIN postings p ON p.segment = w.id AND p.first_term = w.first_term
"""
"""The blocks in which terms are: of known segments, only of terms that are not cached."""

_IDS = """
SELECT row, id FROM chunks WHERE row = ANY($1::bigint[])
UNION ALL (SELECT row, id FROM chunks WHERE row = ANY($2::bigint[]) ORDER BY id LIMIT $3)
"""
"""Ids of passages, and of passages with equal scores the first ones by id."""


class FilteringSnapshot(Protocol):
    """The part of a snapshot that the reader uses."""

    @property
    def session(self) -> PostgresSession: ...

    @property
    def cache(self) -> SnapshotCache: ...

    def row_filter(self, filters: Filters) -> RowFilter | None:
        """Return the rows that match; None if all match."""


class _LastSearch(NamedTuple):
    """The last search: several retrievers of one query repeat it, some with a lower limit."""

    key: tuple[object, ...]
    limit: int
    results: list[ScoredChunk]


class PostgresLexicalReader:
    """Inverted index of one snapshot; its list of segments is read on first use."""

    def __init__(self, snapshot: FilteringSnapshot, cache: LexicalCache) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session
        self._cache = cache
        self._opening = RLock()
        self._segments: list[bm25.Segment] | None = None
        self._passages = 0
        self._totals: tuple[int, ...] = ()
        self._last = _LastSearch((), 0, [])
        self._last_masks: tuple[RowFilter, list[bm25.Mask | None]] | None = None
        self._rows: dict[str, int] = {}
        """Rows of passages that this reader returned, by id."""

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        used = {field: boost for field, boost in boosts.items() if boost > 0}
        if not terms or not used or limit <= 0:
            return []
        rows = self._snapshot.row_filter(filters)
        if rows is not None and rows.matches_nothing:
            return []
        key = (*terms, *used.items(), filters)
        last = self._last  # another thread may replace it meanwhile
        if last.key != key or last.limit < limit:
            results = self._search(terms, used, rows, limit)
            last = self._last = _LastSearch(key, limit, results)
        return last.results[:limit]

    def _search(
        self, terms: Sequence[str], boosts: Mapping[str, float], rows: RowFilter | None, limit: int
    ) -> list[ScoredChunk]:
        postings = self._postings(terms)
        segments = self._open()
        best = bm25.search(
            segments,
            self._cache.table(self._passages, self._totals),
            terms,
            boosts,
            postings.get,
            self._masks(rows),
            limit,
        )
        return self._named(best, limit)

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        return self.search(terms, {CODE: 1.0}, filters, limit)

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        wanted = distinct_terms(terms)
        if not wanted or not chunks:
            return {}
        postings = self._postings(wanted)
        segments = self._open()
        weights = {
            term: term_weight(self._passages, bm25.document_frequency(segments, term, postings.get))
            for term in wanted
        }

        @cache  # most passages have one of a few sets of terms
        def shares(held: bytes, in_title: bytes) -> TermCoverage:
            return coverage(weights, _selected(wanted, held), _selected(wanted, in_title))

        ids = {row: id for id, row in self._rows_of(chunks).items()}
        rows = np.array(sorted(ids), np.int64)
        found: dict[str, TermCoverage] = {}
        for segment in segments:
            offsets, known = segment.passages.offsets(rows)
            anywhere, in_title = bm25.held_terms(segment, offsets, wanted, postings.get)
            for row, held, titled in zip(rows[known], anywhere, in_title, strict=True):
                if held.any():
                    found[ids[int(row)]] = shares(held.tobytes(), titled.tobytes())
        return found

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        postings = self._postings(terms)
        segments = self._open()
        return {
            term
            for term in dict.fromkeys(terms)
            if bm25.document_frequency(segments, term, postings.get)
        }

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return the rows of all passages with all of these terms in one field, in no order."""
        postings = self._postings(terms)
        segments = self._open()
        found = [
            bm25.rows_with_all(segment, terms, postings.get, mask)
            for segment, mask in zip(segments, self._masks(rows), strict=True)
        ]
        return np.concatenate(found).tolist() if found else []

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return the rows of all passages with each of these terms in a field, in no order."""
        postings = self._postings(terms)
        segments = list(zip(self._open(), self._masks(rows), strict=True))
        return {
            term: [
                row
                for segment, mask in segments
                for row in bm25.rows_with(segment, term, field, postings.get, mask).tolist()
            ]
            for term in terms
        }

    def _masks(self, rows: RowFilter | None) -> list[bm25.Mask | None]:
        """Return which passages of each segment match a filter, None for all; those of the last filter are kept."""
        segments = self._open()
        if rows is None:
            return [None] * len(segments)
        last = self._last_masks  # another thread may replace it meanwhile
        if last is None or last[0] is not rows:
            numbers = np.unique(np.array(rows.rows, np.int64))
            inside = [
                each.passages.of_rows(numbers)
                if rows.column == "row"
                else each.passages.of_documents(numbers)
                for each in segments
            ]
            last = rows, [~mask if rows.exclude else mask for mask in inside]
            self._last_masks = last
        return last[1]

    def _named(self, best: Sequence[tuple[int, float]], limit: int) -> list[ScoredChunk]:
        """Return the results with their ids, equal scores ordered by id."""
        ids = self._snapshot.cache.ids.known(row for row, _ in best)
        if len(ids) < len(best):
            last = best[min(limit, len(best)) - 1][1]
            above = [row for row, score in best if score > last]
            tied = [row for row, score in best if score == last]
            with self._session.locked() as connection:
                values = [above, tied, limit]
                ids = dict(connection.execute(_IDS.encode(), values, binary=True).fetchall())
            self._snapshot.cache.ids.add(ids)
        named = [ScoredChunk(ids[row], score) for row, score in best if row in ids]
        self._rows.update((ids[row], row) for row, _ in best if row in ids)
        return sorted(named, key=lambda result: (-result.score, result.chunk_id))[:limit]

    def _rows_of(self, chunks: Sequence[str]) -> Mapping[str, int]:
        """Return the rows of passages; missing ids are skipped."""
        cached = self._snapshot.cache.passages.known(chunks)
        rows = {id: passage.row for id, passage in cached.items()}
        known = self._rows
        rows.update((id, known[id]) for id in chunks if id in known)
        if missing := [id for id in dict.fromkeys(chunks) if id not in rows]:
            found = self._session.all(
                "SELECT c.id, c.row FROM texts(?) t JOIN chunks c ON c.id = t.value", [missing]
            )
            self._rows.update(found)
            rows.update(found)
        return rows

    def _open(self) -> list[bm25.Segment]:
        """Return the segments of the snapshot."""
        if self._segments is None:
            self._postings(())
        assert self._segments is not None
        return self._segments

    def _postings(self, terms: Sequence[str]) -> _TermPostings:
        """Return the postings of terms in all segments; what is not cached is read in one round trip."""
        keys = {term: term_key(term) for term in dict.fromkeys(terms)}
        with self._opening:
            if self._segments is None:
                found = self._read(list(keys.values()), opening=True)
                return _TermPostings(keys, found)
        return _TermPostings(keys, self._read(list(keys.values()), opening=False))

    def _read(self, terms: list[bytes], opening: bool) -> Found:
        cache = self._cache
        stored = cache.segments if opening else {each.id: each for each in self._segments or ()}
        known = cache.known(stored, terms)
        if not opening and len(known) == len(stored) * len(terms):
            return known
        missing = [term for term in terms if any((id, term) not in known for id in stored)]
        with self._session.locked() as connection, connection.pipeline():
            listed = blocks = None
            if opening:
                listed = connection.execute(_SEGMENTS.encode(), [list(stored)], binary=True)
            if terms:
                values = [terms, list(stored), missing]
                blocks = connection.execute(_BLOCKS.encode(), values, binary=True)
            segments = listed.fetchall() if listed else []
            fetched = blocks.fetchall() if blocks else []
        try:
            if opening:
                self._segments = self._opened(segments)
            fresh = self._decode(terms, known, fetched)
        except DamagedSegment as error:
            raise StoreError(
                f"The lexical index of {self._session.connections.address} is damaged ({error})",
                "Run `marklight doctor`, which rebuilds it",
            ) from error
        cache.add(fresh)
        return {**known, **fresh}

    def _opened(self, listed: Sequence[Sequence[Any]]) -> list[bm25.Segment]:
        """Return the segments as the snapshot sees them, and cache those that are new."""
        before = self._cache.segments
        stored: dict[int, StoredSegment] = {}
        for id, is_known, analyzer, net_passages, net_lengths, deleted, *columns in sorted(
            listed, key=itemgetter(0)
        ):
            if is_known and id in before:
                stored[id] = before[id]
            else:
                stored[id] = StoredSegment(
                    Passages.decode(*columns),
                    np.frombuffer(deleted, "<i8"),
                    net_passages,
                    tuple(net_lengths),
                    analyzer,
                )
        self._cache.segments = stored
        return self._visible(stored)

    def _visible(self, stored: Mapping[int, StoredSegment]) -> list[bm25.Segment]:
        if any(each.analyzer != analyzer_fingerprint() for each in stored.values()):
            raise StoreError(
                f"Another version of Marklight wrote the lexical index of {self._session.connections.address},"
                " and it could not be rebuilt now",
                "Try again in a moment, in case another process is rebuilding it."
                " Otherwise use the same version on all machines, or run `marklight doctor`",
            )
        self._passages = sum(each.net_passages for each in stored.values())
        lengths = [each.net_lengths for each in stored.values()]
        self._totals = tuple(map(sum, zip(*lengths, strict=True))) or (0,) * len(FIELDS)
        deleted = np.unique(np.concatenate([NO_ROWS, *(each.deleted for each in stored.values())]))
        segments = []
        for id, each in stored.items():
            dead = each.passages.of_documents(deleted) if len(deleted) else np.zeros(0, bool)
            segments.append(bm25.Segment(id, each.passages, ~dead if dead.any() else None))
        return segments

    def _decode(
        self, terms: Sequence[bytes], known: Found, blocks: Sequence[tuple[int, bytes, bytes]]
    ) -> Found:
        """Return the postings of all terms that were not known."""
        by_segment: dict[int, list[tuple[bytes, bytes]]] = {}
        for id, first, data in sorted(blocks):
            by_segment.setdefault(id, []).append((first, data))
        fresh: Found = {}
        for segment in self._segments or ():
            for term in terms:
                key: Key = segment.id, term
                if key in known:
                    continue
                before = [data for first, data in by_segment.get(segment.id, ()) if first <= term]
                fresh[key] = None
                if before:
                    postings = find_postings(before[-1], term, len(segment.passages))
                    if len(postings.offsets):
                        fresh[key] = bm25.keyed(postings, segment.passages)
        return fresh


class _TermPostings:
    """Postings of the terms of one call."""

    def __init__(self, keys: Mapping[str, bytes], found: Found) -> None:
        self._keys = keys
        self._found = found

    def get(self, segment: bm25.Segment, term: str) -> bm25.KeyedPostings | None:
        return self._found.get((segment.id, self._keys[term]))


def _selected(terms: Sequence[str], held: bytes) -> list[str]:
    return [term for term, is_held in zip(terms, held, strict=True) if is_held]
