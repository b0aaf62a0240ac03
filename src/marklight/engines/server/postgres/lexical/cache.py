"""Cache of the lexical index in one process: segments of the newest snapshot, and decoded postings by segment and term.

Segments never change and have random ids, so nothing in it becomes outdated, even where a backup is restored. The least recently
used postings are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from marklight.engines.server.postgres.lexical.bm25 import KeyedPostings, ScoreTable
from marklight.engines.server.postgres.lexical.segments import Ints, Passages

_EMPTY_BYTES = 256
"""Memory of an entry for a term that a segment does not have."""

Key = tuple[int, bytes]
"""Segment and term."""
Found = dict[Key, KeyedPostings | None]


class StoredSegment(NamedTuple):
    """A row of the table of segments."""

    passages: Passages
    deleted: Ints
    """Documents that its commits deleted from older segments."""
    net_passages: int
    """Passages that its commits added, minus those that they deleted: the sum over all segments is exact."""
    net_lengths: tuple[int, ...]
    """Change of the total length of each field."""
    analyzer: str


class LexicalCache:
    """Bounded by bytes and safe for threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._postings: OrderedDict[Key, KeyedPostings | None] = OrderedDict()
        self._lock = Lock()
        self._table: tuple[tuple[int, ...], ScoreTable] | None = None
        self.segments: Mapping[int, StoredSegment] = {}
        """Segments of the snapshot that was opened last."""

    def known(self, segments: Iterable[int], terms: Sequence[bytes]) -> Found:
        """Return what is cached of these terms; None for a term that a segment does not have."""
        found: Found = {}
        with self._lock:
            for segment in segments:
                for term in terms:
                    key = segment, term
                    if key in self._postings:
                        self._postings.move_to_end(key)
                        found[key] = self._postings[key]
        return found

    def add(self, found: Found) -> None:
        """Cache postings, and drop the least recently used ones above the limit."""
        with self._lock:
            for key, postings in found.items():
                if key not in self._postings:
                    self._postings[key] = postings
                    self._bytes += _size(postings)
            while self._bytes > self._max_bytes:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= _size(dropped)

    def table(self, passages: int, totals: tuple[int, ...]) -> ScoreTable:
        """Return the score table for these counts; that of the last ones is kept."""
        last, key = self._table, (passages, *totals)
        if last is None or last[0] != key:
            last = self._table = (key, ScoreTable(passages, totals))
        return last[1]

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._postings.clear()
            self._bytes = 0
        self.segments, self._table = {}, None

    @property
    def size(self) -> int:
        """Return the bytes of cached postings."""
        return self._bytes


def _size(postings: KeyedPostings | None) -> int:
    return postings.size if postings else _EMPTY_BYTES
