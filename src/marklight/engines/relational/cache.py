"""Caches of an engine: rows that snapshots of the same commit share, and term vectors of the newest generation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from marklight.model import DocumentId

if TYPE_CHECKING:
    from marklight.engines.relational.documents import DocumentFacts, StoredPassage
    from marklight.engines.relational.vocabulary import TermVectors

MAX_PASSAGES, MAX_DOCUMENTS, MAX_VECTORS = 4096, 8192, 16384
"""Most cached entries of each kind, some 15 MB together. Half of the passages that a search reads were read by
one of the hundred searches before it (benchmarks/searching.py, 19,415 passages)."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key, all dropped at once when they become too many.

    Needs no lock: entries are added to the dictionary or it is replaced; none is ever removed.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: dict[Key, Value] = {}

    def known(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return the cached ones."""
        known = self._known
        return {key: known[key] for key in keys if key in known}

    def get(
        self, keys: Collection[Key], read: Callable[[list[Key]], Mapping[Key, Value]]
    ) -> dict[Key, Value]:
        """Return the values that exist; only those that are not cached are read."""
        known = self.known(keys)
        if len(known) == len(keys):
            return known
        fresh = read([key for key in keys if key not in known])
        self.add(fresh)
        return {**known, **fresh}

    def add(self, fresh: Mapping[Key, Value]) -> None:
        """Cache values that were read."""
        known = self._known
        if len(known) + len(fresh) > self._size:
            known = self._known = {}
        if len(fresh) <= self._size:
            known.update(fresh)


class VectorCache(NamedTuple):
    """Passages of the rows of one vector file, both ways."""

    ids: BoundedCache[int, tuple[str, ...]]
    places: BoundedCache[str, int]


class SnapshotCache:
    """Rows read by the snapshots of one generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.passages: BoundedCache[str, StoredPassage] = BoundedCache(MAX_PASSAGES)
        self.documents: BoundedCache[DocumentId, DocumentFacts] = BoundedCache(MAX_DOCUMENTS)
        self.ids: BoundedCache[int, str] = BoundedCache(MAX_VECTORS)
        """Ids of passages by row."""
        self._degrees: dict[int, BoundedCache[DocumentId, int]] = {}
        self._vectors: dict[tuple[int, int], VectorCache] = {}

    def degrees_up_to(self, limit: int) -> BoundedCache[DocumentId, int]:
        """Return the cache of degrees counted up to a limit."""
        return self._degrees.setdefault(limit, BoundedCache(MAX_DOCUMENTS))

    def of_vectors(self, model_row: int, epoch: int) -> VectorCache:
        """Return the cache of a vector file."""
        new = VectorCache(BoundedCache(MAX_VECTORS), BoundedCache(MAX_VECTORS))
        return self._vectors.setdefault((model_row, epoch), new)


class Caches:
    """Caches of the newest generation that an engine has read."""

    def __init__(self) -> None:
        self.term_vectors: dict[str, TermVectors] = {}
        """Term vectors by model."""
        self._snapshots: dict[str, SnapshotCache] = {}

    def of(self, library: str, generation: int) -> SnapshotCache:
        """Return the cache of a generation of a library; that of the newest one is kept."""
        last = self._snapshots.get(library)
        if last and last.generation == generation:
            return last
        cache = SnapshotCache(generation)
        if last is None or last.generation < generation:
            self._snapshots[library] = cache
        return cache

    def clear(self) -> None:
        """Drop everything."""
        self.term_vectors.clear()
        self._snapshots.clear()
