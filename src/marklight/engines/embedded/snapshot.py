"""Snapshot of the embedded engine: readers over one transaction, built on first use, and what they cache.

Snapshots of the same commit share a cache, so that a search does not read again what the one before it read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from marklight.answer import Filters
from marklight.engines.embedded import records
from marklight.engines.embedded.session import Session
from marklight.model import Counts, DocumentId, Failure, FileState
from marklight.once import once

if TYPE_CHECKING:
    from marklight.engines.embedded.contents import EmbeddedContents
    from marklight.engines.embedded.documents import (
        DocumentFacts,
        EmbeddedDocuments,
        StoredPassage,
    )
    from marklight.engines.embedded.filters import RowFilter
    from marklight.engines.embedded.lexical_index import LexicalIndex
    from marklight.engines.embedded.lexical_search import EmbeddedLexical
    from marklight.engines.embedded.links import EmbeddedLinks
    from marklight.engines.embedded.session import WriterLock
    from marklight.engines.embedded.store import Store
    from marklight.engines.embedded.vector_files import MappedVectors, VectorFileInfo
    from marklight.engines.embedded.vector_search import EmbeddedVectors
    from marklight.engines.embedded.vocabulary import EmbeddedVocabulary, TermVectors

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

    def of_vectors(self, info: VectorFileInfo) -> VectorCache:
        """Return the cache of a vector file."""
        new = VectorCache(BoundedCache(MAX_VECTORS), BoundedCache(MAX_VECTORS))
        return self._vectors.setdefault((info.model_row, info.epoch), new)


@dataclass(frozen=True, slots=True)
class Parts:
    """Resources of an engine that its snapshots share."""

    folder: Path
    writer_lock: WriterLock
    store: Store
    lexical: LexicalIndex
    mapped_vectors: MappedVectors
    max_exact_vectors: int
    """Vectors up to which all are compared with the query."""
    term_vectors: dict[str, TermVectors] = field(default_factory=dict)
    """Term vectors of the newest generation by model."""
    caches: dict[str, SnapshotCache] = field(default_factory=dict)
    """Cache of the newest generation by library."""

    def cache_of(self, library: str, generation: int) -> SnapshotCache:
        """Return the cache of a generation; that of the newest one is kept."""
        last = self.caches.get(library)
        if last and last.generation == generation:
            return last
        cache = SnapshotCache(generation)
        if last is None or last.generation < generation:
            self.caches[library] = cache
        return cache

    def forget(self) -> None:
        """Drop everything that was read or mapped."""
        self.mapped_vectors.clear()
        self.term_vectors.clear()
        self.caches.clear()
        self.lexical.forget()


class EmbeddedSnapshot:
    """Consistent view of one commit; its readers import what they need when they are first used."""

    def __init__(self, parts: Parts, session: Session) -> None:
        self.parts = parts
        self.session = session
        self.opened_at = time.monotonic()
        state = session.all(
            "SELECT generation, library, opstamp, lexical_commit, chunks, unused_vectors FROM state"
        )[0]
        self.generation: int = state[0]
        self.library: str = state[1]
        self.opstamp: int = state[2]
        self.lexical_commit: str = state[3]
        self.chunk_count: int = state[4]
        self.unused_vectors: int = state[5]
        self.cache = parts.cache_of(self.library, self.generation)
        self.status = EmbeddedStatus(session)
        self.metadata = EmbeddedMetadata(self)
        self._filter_lock = Lock()
        self._row_filters: dict[Filters, RowFilter | None] = {}
        if parts.lexical.is_open:
            self.lexical.open_early()

    @once
    def documents(self) -> EmbeddedDocuments:
        from marklight.engines.embedded.documents import EmbeddedDocuments

        return EmbeddedDocuments(self)

    @once
    def lexical(self) -> EmbeddedLexical:
        from marklight.engines.embedded.lexical_search import EmbeddedLexical

        return EmbeddedLexical(self)

    @once
    def vectors(self) -> EmbeddedVectors:
        from marklight.engines.embedded.vector_search import EmbeddedVectors

        return EmbeddedVectors(self)

    @once
    def links(self) -> EmbeddedLinks:
        from marklight.engines.embedded.links import EmbeddedLinks

        return EmbeddedLinks(self)

    @once
    def vocabulary(self) -> EmbeddedVocabulary:
        from marklight.engines.embedded.vocabulary import EmbeddedVocabulary

        return EmbeddedVocabulary(self)

    @once
    def contents(self) -> EmbeddedContents:
        from marklight.engines.embedded.contents import EmbeddedContents

        return EmbeddedContents(self)

    def row_filter(self, filters: Filters) -> RowFilter | None:
        """Return the rows that match, found once for all retrievers of a query; None if all match."""
        if not filters:
            return None
        from marklight.engines.embedded.filters import matching_rows

        with self._filter_lock:
            if filters not in self._row_filters:
                self._row_filters[filters] = matching_rows(
                    self.session, filters, lambda *given: self.lexical.rows_with_terms(*given)
                )
            return self._row_filters[filters]

    def sql_condition(self, filters: Filters) -> tuple[str, list[str]]:
        """Return the SQL condition on a passage `c` that selects those that match."""
        rows = self.row_filter(filters)
        return rows.condition() if rows else ("true", [])


class EmbeddedMetadata:
    """Frontmatter keys, values and tags, and the documents that match filters."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def matching_documents(self, filters: Filters, limit: int) -> list[DocumentId]:
        from marklight.engines.embedded.filters import matching_documents

        return matching_documents(self._session, self._snapshot.row_filter(filters), limit)

    def count_matching(self, filters: Filters) -> int:
        from marklight.engines.embedded.filters import count_matching

        return count_matching(self._session, self._snapshot.row_filter(filters))

    def has_key(self, key: str) -> bool:
        key = key.strip().lower()
        return bool(self._session.value("SELECT 1 FROM metadata WHERE key = ? LIMIT 1", [key]))

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        rows = self._session.all(
            "SELECT value, count(*) FROM metadata WHERE key = ? GROUP BY value"
            " ORDER BY 2 DESC, 1 LIMIT ?",
            [key.strip().lower(), max(0, limit)],
        )
        return dict(rows)

    def tags(self) -> Mapping[str, int]:
        from marklight.engines.metadata_filters import TAG

        rows = self._session.all(
            "SELECT value, count(*) FROM metadata WHERE key = ? GROUP BY value", [TAG]
        )
        return dict(rows)


class EmbeddedStatus:
    """Counts, manifest, failures and integrity of the tables."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts: dict[str, Counts] = {}

    def counts(self, model: str) -> Counts:
        # From counters that every commit updates: the size of the library does not matter.
        if model not in self._counts:
            documents, chunks, generation = self._session.all(
                "SELECT documents, chunks, generation FROM state"
            )[0]
            embedded = "SELECT embedded FROM models WHERE name = ?"
            self._counts[model] = Counts(
                documents=documents,
                chunks=chunks,
                embedded=self._session.value(embedded, [model]) or 0,
                failed=self._session.value("SELECT count(*) FROM failures"),
                generation=generation,
                model=model,
            )
        return self._counts[model]

    def models(self) -> Mapping[str, int]:
        return dict(self._session.all("SELECT name, embedded FROM models WHERE embedded > 0"))

    def manifest(self) -> Mapping[str, str]:
        return dict(self._session.all("SELECT key, value FROM manifest"))

    @records.raises_damaged
    def failures(self) -> Sequence[Failure]:
        return [
            Failure(
                DocumentId(collection, path),
                reason,
                None if size is None else FileState(size, mtime_ns, ctime_ns),
            )
            for collection, path, reason, size, mtime_ns, ctime_ns in self._session.all(
                "SELECT collection, path, reason, size, mtime_ns, ctime_ns FROM failures ORDER BY 1, 2"
            )
        ]

    @records.raises_damaged
    def remarks(self) -> list[tuple[DocumentId, str]]:
        return [
            (DocumentId(collection, path), remark)
            for collection, path, remarks in self._session.all(
                "SELECT d.collection, d.path, c.remarks FROM contents c"
                " JOIN documents d ON d.row = c.document WHERE c.remarks <> '' ORDER BY 1, 2"
            )
            for remark in records.decode_texts(remarks)
        ]

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:
        from marklight.engines.embedded.checksums import damaged_passages

        return damaged_passages(self._session, ids)

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        from marklight.engines.embedded import checksums
        from marklight.engines.embedded.documents import column

        rows: Mapping[DocumentId, int] = column(self._session, "row", documents)
        damaged = set(checksums.damaged_documents(self._session, list(rows.values())))
        return {id for id, row in rows.items() if row in damaged}
