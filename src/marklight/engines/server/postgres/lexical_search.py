"""Keyword search in the segments of one snapshot: one round trip for the postings of all terms, and one for the ids of the results.

Segments never change and have random ids, so nothing in the cache becomes outdated, even where a backup is restored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from marklight.engines.server.postgres.lexical_scoring import (
    GetPostings,
    Mask,
    Segment,
    VisibleSegments,
    best_passages,
    document_frequency,
    held_terms,
    rows_with,
    rows_with_all,
)
from marklight.engines.server.postgres.segments import (
    DamagedSegment,
    Passages,
    Postings,
    find_postings,
    term_key,
)
from marklight.errors import StoreError
from marklight.lexical import (
    RepeatableSearch,
    analyzer_fingerprint,
    coverage,
    distinct_terms,
    term_weight,
)
from marklight.ports import ScoredChunk, TermCoverage
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.server.postgres.engine import PostgresSnapshot

_EMPTY_BYTES = 256
"""Memory of a cached entry for a term that a segment does not have."""

_SEGMENTS = """
SELECT s.id, s.analyzer, n.* FROM segments s LEFT JOIN LATERAL (
    SELECT s.deleted, s.passage_rows, s.document_rows, s.lengths
) n ON NOT s.id = ANY($1::bigint[]) ORDER BY s.id
"""
"""All segments; of known ones only the id and the analyzer."""

_BLOCKS = """
SELECT w.id, w.first_term, p.data FROM (
    SELECT DISTINCT s.id, b.first_term
    FROM segments s CROSS JOIN unnest($1::bytea[]) t(term) CROSS JOIN LATERAL (
        SELECT p.first_term FROM postings p WHERE p.segment = s.id AND p.first_term <= t.term
        ORDER BY p.first_term DESC LIMIT 1
    ) b
    WHERE NOT s.id = ANY($2::bigint[]) OR t.term = ANY($3::bytea[])
) w CROSS JOIN LATERAL (
    SELECT p.data FROM postings p WHERE p.segment = w.id AND p.first_term = w.first_term LIMIT 1
) p ORDER BY w.id, w.first_term
"""
"""The blocks in which terms are: of known segments, only of terms that are not cached.

LIMIT makes each a look-up: a join, without statistics of these tables, would read all blocks.
"""

_IDS = """
SELECT row, id FROM chunks WHERE row = ANY($1::bigint[])
UNION ALL (SELECT row, id FROM chunks WHERE row = ANY($2::bigint[]) ORDER BY id LIMIT $3)
"""
"""Ids of passages, and of passages with equal scores the first ones by id."""


Key = tuple[int, bytes]
"""Segment and term."""
Found = dict[Key, Postings | None]


class LexicalCache:
    """Cache of one process: segments of the newest snapshot, and postings by segment and term.

    It is bounded by bytes and safe for threads; the least recently used postings are dropped first.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._postings: OrderedDict[Key, Postings | None] = OrderedDict()
        self._lock = Lock()
        self.newest = VisibleSegments.of([])
        """The segments of the snapshot that was opened last."""

    def known(self, segments: Iterable[int], terms: Sequence[bytes]) -> Found:
        """Return what is cached of these terms; None for a term that a segment does not have."""
        cached: Found = {}
        with self._lock:
            for segment in segments:
                for term in terms:
                    key = segment, term
                    if key in self._postings:
                        self._postings.move_to_end(key)
                        cached[key] = self._postings[key]
        return cached

    def add(self, read: Found) -> None:
        """Cache postings, and drop the least recently used ones above the limit."""
        with self._lock:
            for key, postings in read.items():
                if key not in self._postings:
                    self._postings[key] = postings
                    self._bytes += _size(postings)
            while self._postings and self.size > self._max_bytes:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= _size(dropped)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._postings.clear()
            self._bytes = 0
        self.newest = VisibleSegments.of([])

    @property
    def size(self) -> int:
        """Return the bytes of cached segments and postings."""
        return self._bytes + self.newest.size


def _size(postings: Postings | None) -> int:
    return postings.size if postings else _EMPTY_BYTES


class PostgresLexicalReader(RepeatableSearch):
    """Inverted index of one snapshot; its list of segments is read on first use."""

    def __init__(self, snapshot: PostgresSnapshot, cache: LexicalCache) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._session = snapshot.session
        self._cache = cache
        self._opening = Lock()
        self._visible: VisibleSegments | None = None
        self._last_masks: tuple[RowFilter, list[Mask | None]] | None = None

    def find(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        if rows is not None and rows.matches_nothing:
            return []
        visible, get = self._postings(terms)
        best = best_passages(visible, terms, boosts, get, self._masks(visible, rows), limit)
        return self._named(best, limit)

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        wanted = distinct_terms(terms)
        if not wanted or not chunks:
            return {}
        visible, get = self._postings(wanted)
        weights = {
            term: term_weight(visible.passages, document_frequency(visible, term, get))
            for term in wanted
        }

        @cache  # most passages have one of a few sets of terms
        def shares(held: bytes, in_title: bytes) -> TermCoverage:
            return coverage(weights, _selected(wanted, held), _selected(wanted, in_title))

        ids = {row: id for id, row in self._snapshot.rows_of(chunks).items()}
        rows = np.array(sorted(ids), np.int64)
        covered: dict[str, TermCoverage] = {}
        for segment in visible.segments:
            offsets, is_held = segment.passages.offsets(rows)
            anywhere, in_title = held_terms(segment, offsets, wanted, get)
            for row, held, titled in zip(rows[is_held], anywhere, in_title, strict=True):
                if held.any():
                    covered[ids[int(row)]] = shares(held.tobytes(), titled.tobytes())
        return covered

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        visible, get = self._postings(terms)
        return {term for term in dict.fromkeys(terms) if document_frequency(visible, term, get)}

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return the rows of all passages with all of these terms in one field, in no order."""
        visible, get = self._postings(terms)
        return [
            row
            for segment, mask in zip(visible.segments, self._masks(visible, rows), strict=True)
            for row in rows_with_all(segment, terms, get, mask).tolist()
        ]

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return the rows of all passages with each of these terms in a field, in no order."""
        visible, get = self._postings(terms)
        masked = list(zip(visible.segments, self._masks(visible, rows), strict=True))
        return {
            term: [
                row
                for segment, mask in masked
                for row in rows_with(segment, term, field, get, mask).tolist()
            ]
            for term in terms
        }

    def _masks(self, visible: VisibleSegments, rows: RowFilter | None) -> list[Mask | None]:
        """Return which passages of each segment match a filter, None for all; those of the last filter are kept."""
        if rows is None:
            return [None] * len(visible.segments)
        last = self._last_masks  # another thread may replace it meanwhile
        if last is None or last[0] is not rows:
            numbers = np.array(rows.rows, np.int64)
            columns = [
                segment.passages.rows if rows.column == "row" else segment.passages.documents
                for segment in visible.segments
            ]
            last = rows, [np.isin(column, numbers, invert=rows.exclude) for column in columns]
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
            self._snapshot.cache.rows.add({id: row for row, id in ids.items()})
        named = [ScoredChunk(ids[row], score) for row, score in best if row in ids]
        return sorted(named, key=lambda result: (-result.score, result.chunk_id))[:limit]

    def _postings(self, terms: Sequence[str]) -> tuple[VisibleSegments, GetPostings]:
        """Return the segments, and the postings of terms in them; what is not cached is read in one round trip."""
        keys = {term: term_key(term) for term in dict.fromkeys(terms)}
        with self._opening:
            visible, postings = self._read(list(keys.values()), self._visible)
            self._visible = visible
        return visible, lambda segment, term: postings.get((segment.id, keys[term]))

    def _read(
        self, terms: list[bytes], visible: VisibleSegments | None
    ) -> tuple[VisibleSegments, Found]:
        """Read the postings of terms, and the segments unless they are cached."""
        newest = (
            visible or self._cache.newest
        )  # another thread may replace the cached one meanwhile
        stored = [segment.id for segment in newest.segments]
        cached = self._cache.known(stored, terms)
        if visible and len(cached) == len(stored) * len(terms):
            return visible, cached
        missing = [term for term in terms if any((id, term) not in cached for id in stored)]
        with self._session.locked() as connection, connection.pipeline():
            listed = None
            if visible is None:
                listed = connection.execute(_SEGMENTS.encode(), [stored], binary=True)
            values = [terms, stored, missing]
            fetched = connection.execute(_BLOCKS.encode(), values, binary=True)
            rows, blocks = listed.fetchall() if listed else [], fetched.fetchall()
        try:
            visible = visible or self._opened(rows, newest)
            fresh = _decode(visible.segments, terms, cached, blocks)
        except DamagedSegment as error:
            raise self._damaged(str(error)) from error
        self._cache.add(fresh)
        return visible, {**cached, **fresh}

    def _opened(self, rows: Sequence[Sequence[Any]], newest: VisibleSegments) -> VisibleSegments:
        """Return the segments as the snapshot sees them, and cache them for the next snapshots."""
        before = {segment.id: segment for segment in newest.segments}
        segments: list[Segment] = []
        for id, analyzer, deleted, *columns in rows:
            if analyzer != analyzer_fingerprint():
                raise StoreError(
                    f"Another version of Marklight wrote the lexical index of {self._address},"
                    " and it could not be rebuilt now",
                    "Try again in a moment, in case another process is rebuilding it."
                    " Otherwise use the same version on all machines, or run `marklight doctor`",
                )
            segments.append(
                before[id]
                if deleted is None
                else Segment(id, Passages.decode(*columns), np.frombuffer(deleted, "<i8"))
            )
        if [segment.id for segment in segments] != list(before):
            newest = self._cache.newest = VisibleSegments.of(segments)
        if newest.passages != self._snapshot.chunk_count:
            raise self._damaged(
                f"it has {newest.passages} passages instead of {self._snapshot.chunk_count}"
            )
        return newest

    @property
    def _address(self) -> object:
        return self._session.connections.address

    def _damaged(self, reason: str) -> StoreError:
        return StoreError(
            f"The lexical index of {self._address} is damaged ({reason})",
            "Run `marklight doctor`, which rebuilds it",
        )


def _decode(
    segments: Sequence[Segment],
    terms: Sequence[bytes],
    cached: Found,
    blocks: Sequence[tuple[int, bytes, bytes]],
) -> Found:
    """Return the postings of all terms that were not cached."""
    by_segment: dict[int, list[tuple[bytes, bytes]]] = {}
    for id, first, data in blocks:
        by_segment.setdefault(id, []).append((first, data))
    fresh: Found = {}
    for segment in segments:
        for term in terms:
            if (segment.id, term) not in cached:
                before = [data for first, data in by_segment.get(segment.id, ()) if first <= term]
                fresh[segment.id, term] = (
                    find_postings(before[-1], term, segment.passages) if before else None
                )
    return fresh


def _selected(terms: Sequence[str], held: bytes) -> list[str]:
    return [term for term, is_held in zip(terms, held, strict=True) if is_held]
