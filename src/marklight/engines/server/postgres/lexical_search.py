"""Keyword search in the segments of one snapshot: one round trip for the postings of all terms, and one for the ids of the results.

Segments never change and have random ids, so nothing in the cache becomes outdated, even where a backup is restored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marklight.engines.lexical import (
    CODE,
    LastSearch,
    analyzer_fingerprint,
    coverage,
    distinct_terms,
    term_weight,
)
from marklight.engines.server.bm25 import Ints
from marklight.engines.server.postgres.lexical_scoring import (
    Mask,
    ScoreTable,
    Segment,
    best_passages,
    document_frequency,
    held_terms,
    rows_with,
    rows_with_all,
)
from marklight.engines.server.postgres.segments import (
    FIELDS,
    NO_ROWS,
    DamagedSegment,
    Passages,
    Postings,
    find_postings,
    term_key,
)
from marklight.errors import StoreError
from marklight.ports import ScoredChunk, TermCoverage
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.server.postgres.engine import PostgresSnapshot

_EMPTY_BYTES = 256
"""Memory of a cached entry for a term that a segment does not have."""

_SEGMENTS = """
SELECT s.id, k.id IS NOT NULL, s.analyzer, CASE WHEN k.id IS NULL THEN s.deleted END,
    CASE WHEN k.id IS NULL THEN s.passage_rows END, CASE WHEN k.id IS NULL THEN s.document_rows END,
    CASE WHEN k.id IS NULL THEN s.lengths END
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


Key = tuple[int, bytes]
"""Segment and term."""
Found = dict[Key, Postings | None]


class StoredSegment(NamedTuple):
    """A row of the table of segments."""

    passages: Passages
    deleted: Ints
    """Documents that its commits deleted from older segments."""


class VisibleSegments(NamedTuple):
    """The segments of a snapshot without deleted passages; the same for all snapshots with these segments."""

    segments: list[Segment]
    passages: int
    """Number of living passages."""
    table: ScoreTable

    @classmethod
    def of(cls, stored: Mapping[int, StoredSegment]) -> VisibleSegments:
        """Return the segments without the passages that any of them deletes."""
        deleted = np.concatenate([NO_ROWS, *(segment.deleted for segment in stored.values())])
        segments, count, totals = [], 0, np.zeros(len(FIELDS), np.int64)
        for id, (passages, _) in stored.items():
            living = ~np.isin(passages.documents, deleted)
            segments.append(Segment(id, passages, None if living.all() else living))
            count += int(living.sum())
            totals += passages.lengths[:, living].sum(axis=1, dtype=np.int64)
        return cls(segments, count, ScoreTable(count, totals.tolist()))


_NOTHING: tuple[Mapping[int, StoredSegment], VisibleSegments] = {}, VisibleSegments.of({})


class LexicalCache:
    """Cache of one process: segments of the newest snapshot, and postings by segment and term.

    It is bounded by bytes and safe for threads; the least recently used postings are dropped first.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._postings: OrderedDict[Key, Postings | None] = OrderedDict()
        self._lock = Lock()
        self._newest = _NOTHING

    @property
    def segments(self) -> Mapping[int, StoredSegment]:
        """Return the segments of the snapshot that was opened last."""
        return self._newest[0]

    def known(self, segments: Iterable[int], terms: Sequence[bytes]) -> Found:
        """Return what is cached of these terms; None for a term that a segment does not have."""
        known: Found = {}
        with self._lock:
            for segment in segments:
                for term in terms:
                    key = segment, term
                    if key in self._postings:
                        self._postings.move_to_end(key)
                        known[key] = self._postings[key]
        return known

    def add(self, read: Found) -> None:
        """Cache postings, and drop the least recently used ones above the limit."""
        with self._lock:
            for key, postings in read.items():
                if key not in self._postings:
                    self._postings[key] = postings
                    self._bytes += _size(postings)
            while self._bytes > self._max_bytes:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= _size(dropped)

    def visible(self, stored: Mapping[int, StoredSegment]) -> VisibleSegments:
        """Return the visible part of segments, and keep it together with them for the next snapshots."""
        newest = self._newest  # another thread may replace it meanwhile
        if newest[0].keys() != stored.keys():
            newest = self._newest = stored, VisibleSegments.of(stored)
        return newest[1]

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._postings.clear()
            self._bytes = 0
        self._newest = _NOTHING

    @property
    def size(self) -> int:
        """Return the bytes of cached postings."""
        return self._bytes


def _size(postings: Postings | None) -> int:
    return postings.size if postings else _EMPTY_BYTES


class PostgresLexicalReader:
    """Inverted index of one snapshot; its list of segments is read on first use."""

    def __init__(self, snapshot: PostgresSnapshot, cache: LexicalCache) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session
        self._cache = cache
        self._opening = RLock()
        self._visible: VisibleSegments | None = None
        self._last = LastSearch((), 0, [])
        self._last_masks: tuple[RowFilter, list[Mask | None]] | None = None
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
            last = self._last = LastSearch(key, limit, results)
        return last.results[:limit]

    def _search(
        self, terms: Sequence[str], boosts: Mapping[str, float], rows: RowFilter | None, limit: int
    ) -> list[ScoredChunk]:
        postings = self._postings(terms)
        visible, masks = self._open(), self._masks(rows)
        best = best_passages(
            visible.segments, visible.table, terms, boosts, postings.get, masks, limit
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
        segments, passages, _ = self._open()
        weights = {
            term: term_weight(passages, document_frequency(segments, term, postings.get))
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
            anywhere, in_title = held_terms(segment, offsets, wanted, postings.get)
            for row, held, titled in zip(rows[known], anywhere, in_title, strict=True):
                if held.any():
                    found[ids[int(row)]] = shares(held.tobytes(), titled.tobytes())
        return found

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        postings = self._postings(terms)
        segments = self._open().segments
        return {
            term
            for term in dict.fromkeys(terms)
            if document_frequency(segments, term, postings.get)
        }

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return the rows of all passages with all of these terms in one field, in no order."""
        postings = self._postings(terms)
        segments = self._open().segments
        found = [
            rows_with_all(segment, terms, postings.get, mask)
            for segment, mask in zip(segments, self._masks(rows), strict=True)
        ]
        return np.concatenate(found).tolist() if found else []

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return the rows of all passages with each of these terms in a field, in no order."""
        postings = self._postings(terms)
        segments = list(zip(self._open().segments, self._masks(rows), strict=True))
        return {
            term: [
                row
                for segment, mask in segments
                for row in rows_with(segment, term, field, postings.get, mask).tolist()
            ]
            for term in terms
        }

    def _masks(self, rows: RowFilter | None) -> list[Mask | None]:
        """Return which passages of each segment match a filter, None for all; those of the last filter are kept."""
        segments = self._open().segments
        if rows is None:
            return [None] * len(segments)
        last = self._last_masks  # another thread may replace it meanwhile
        if last is None or last[0] is not rows:
            numbers = np.array(rows.rows, np.int64)
            columns = [
                segment.passages.rows if rows.column == "row" else segment.passages.documents
                for segment in segments
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

    def _open(self) -> VisibleSegments:
        """Return the segments of the snapshot."""
        if self._visible is None:
            self._postings(())
        assert self._visible is not None
        return self._visible

    def _postings(self, terms: Sequence[str]) -> _TermPostings:
        """Return the postings of terms in all segments; what is not cached is read in one round trip."""
        keys = {term: term_key(term) for term in dict.fromkeys(terms)}
        with self._opening:
            if self._visible is None:
                found = self._read(list(keys.values()), opening=True)
                return _TermPostings(keys, found)
        return _TermPostings(keys, self._read(list(keys.values()), opening=False))

    def _read(self, terms: list[bytes], *, opening: bool) -> Found:
        segments = self._visible.segments if self._visible else []
        stored = list(self._cache.segments) if opening else [segment.id for segment in segments]
        known = self._cache.known(stored, terms)
        if not opening and len(known) == len(stored) * len(terms):
            return known
        missing = [term for term in terms if any((id, term) not in known for id in stored)]
        with self._session.locked() as connection, connection.pipeline():
            listed = blocks = None
            if opening:
                listed = connection.execute(_SEGMENTS.encode(), [stored], binary=True)
            if terms:
                values = [terms, stored, missing]
                blocks = connection.execute(_BLOCKS.encode(), values, binary=True)
            rows = listed.fetchall() if listed else []
            fetched = blocks.fetchall() if blocks else []
        try:
            if opening:
                self._visible = self._opened(rows)
            fresh = self._decode(terms, known, fetched)
        except DamagedSegment as error:
            raise self._damaged(str(error)) from error
        self._cache.add(fresh)
        return {**known, **fresh}

    def _opened(self, rows: Sequence[Sequence[Any]]) -> VisibleSegments:
        """Return the segments as the snapshot sees them, and cache those that are new."""
        before = self._cache.segments
        stored: dict[int, StoredSegment] = {}
        for id, is_known, analyzer, deleted, *columns in sorted(rows, key=itemgetter(0)):
            if analyzer != analyzer_fingerprint():
                raise StoreError(
                    f"Another version of Marklight wrote the lexical index of {self._address},"
                    " and it could not be rebuilt now",
                    "Try again in a moment, in case another process is rebuilding it."
                    " Otherwise use the same version on all machines, or run `marklight doctor`",
                )
            if is_known and id in before:
                stored[id] = before[id]
            else:
                tombstones = np.frombuffer(deleted, "<i8")
                stored[id] = StoredSegment(Passages.decode(*columns), tombstones)
        visible = self._cache.visible(stored)
        if visible.passages != self._snapshot.chunk_count:
            raise self._damaged(
                f"it has {visible.passages} passages instead of {self._snapshot.chunk_count}"
            )
        return visible

    @property
    def _address(self) -> object:
        return self._session.connections.address

    def _damaged(self, reason: str) -> StoreError:
        return StoreError(
            f"The lexical index of {self._address} is damaged ({reason})",
            "Run `marklight doctor`, which rebuilds it",
        )

    def _decode(
        self, terms: Sequence[bytes], known: Found, blocks: Sequence[tuple[int, bytes, bytes]]
    ) -> Found:
        """Return the postings of all terms that were not known."""
        by_segment: dict[int, list[tuple[bytes, bytes]]] = {}
        for id, first, data in sorted(blocks):
            by_segment.setdefault(id, []).append((first, data))
        fresh: Found = {}
        for segment in self._visible.segments if self._visible else ():
            for term in terms:
                if (segment.id, term) not in known:
                    before = [
                        data for first, data in by_segment.get(segment.id, ()) if first <= term
                    ]
                    fresh[segment.id, term] = (
                        find_postings(before[-1], term, segment.passages) if before else None
                    )
        return fresh


class _TermPostings:
    """Postings of the terms of one call."""

    def __init__(self, keys: Mapping[str, bytes], found: Found) -> None:
        self._keys = keys
        self._found = found

    def get(self, segment: Segment, term: str) -> Postings | None:
        return self._found.get((segment.id, self._keys[term]))


def _selected(terms: Sequence[str], held: bytes) -> list[str]:
    return [term for term, is_held in zip(terms, held, strict=True) if is_held]
