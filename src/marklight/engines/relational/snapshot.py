"""Snapshot of a relational database: readers over one transaction, built on first use, and the rows that they cache.

Snapshots of the same commit share a cache, so that a search does not read again what the one before it read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from marklight.engines import relational
from marklight.lazy import once
from marklight.model import Counts, DocumentId, Failure, FileState, normalize_key
from marklight.ports import Pending
from marklight.query import Filters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marklight.engines.relational import SqlSession
    from marklight.engines.relational.blocks import RelationalBlocks
    from marklight.engines.relational.documents import (
        DocumentFacts,
        RelationalDocuments,
        StoredCandidate,
        StoredPassage,
    )
    from marklight.engines.relational.filters import RowFilter, RowReader
    from marklight.engines.relational.links import RelationalLinks
    from marklight.engines.relational.vocabulary import RelationalVocabulary, TermVectors
    from marklight.ports import DocumentMatch


MAX_PASSAGES, MAX_DOCUMENTS, MAX_VECTORS = 4096, 8192, 16384
"""Most cached entries of each kind, some 15 MB together. Half of the passages that a search reads were read by
one of the hundred searches before it (benchmarks/searching.py, 19,415 passages)."""
MAX_FILTERS = 4
"""Filters whose matching documents and passages are cached, 16 bytes for a passage; a client often has the same ones."""
MAX_DOCUMENTS_COUNTED = 1_000
"""Documents whose passages are counted exactly, which takes a millisecond; counting more takes longer than a search."""
MAX_LANGUAGES = 100
"""Distinct values of the key `language` that are read: frontmatter may use it for something else."""

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
    matching: BoundedCache[Filters, NDArray[np.int64]]
    """Rows of the file and rows of the passages that match filters."""


class SnapshotCache:
    """Rows read by the snapshots of one generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.passages: BoundedCache[str, StoredPassage] = BoundedCache(MAX_PASSAGES)
        self.candidates: BoundedCache[str, StoredCandidate] = BoundedCache(MAX_VECTORS)
        self.documents: BoundedCache[DocumentId, DocumentFacts] = BoundedCache(MAX_DOCUMENTS)
        self.ids: BoundedCache[int, str] = BoundedCache(MAX_VECTORS)
        """Ids of passages by row."""
        self.rows: BoundedCache[str, int] = BoundedCache(MAX_VECTORS)
        """Rows of passages by id."""
        self.keys: BoundedCache[str, bool] = BoundedCache(MAX_DOCUMENTS)
        """Frontmatter keys that exist or do not."""
        self.vector_models: dict[str, Any] = {}
        """States of models in a vector index on a server, by name."""
        self.degrees: BoundedCache[tuple[DocumentId, int], int] = BoundedCache(MAX_DOCUMENTS)
        """Degrees of documents, counted up to a limit."""
        self.row_filters: BoundedCache[Filters, RowFilter | None] = BoundedCache(MAX_FILTERS)
        self._vectors: dict[tuple[int, int], VectorCache] = {}
        self._single: dict[str, Any] = {}

    def once(self, name: str, read: Callable[[], Value]) -> Value:
        """Return a value that is read once for a generation, by its name."""
        if name not in self._single:
            self._single[name] = read()
        value: Value = self._single[name]
        return value

    def of_vectors(self, model_row: int, epoch: int) -> VectorCache:
        """Return the cache of a vector file."""
        new = VectorCache(
            BoundedCache(MAX_VECTORS), BoundedCache(MAX_VECTORS), BoundedCache(MAX_FILTERS)
        )
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


class RelationalSnapshot(ABC):
    """Consistent view of one commit; its readers import what they need when they are first used.

    A subclass adds the readers of its lexical index and its vectors.
    """

    def __init__(self, session: SqlSession, caches: Caches, library: str, generation: int) -> None:
        self.session = session
        self.caches = caches
        self.library = library
        self.generation = generation
        self.cache = caches.of(library, generation)
        self._filter_lock = Lock()

    @once
    def documents(self) -> RelationalDocuments:
        from marklight.engines.relational.documents import RelationalDocuments

        return RelationalDocuments(self)

    @once
    def links(self) -> RelationalLinks:
        from marklight.engines.relational.links import RelationalLinks

        return RelationalLinks(self)

    @once
    def vocabulary(self) -> RelationalVocabulary:
        from marklight.engines.relational.vocabulary import RelationalVocabulary

        return RelationalVocabulary(self)

    @once
    def blocks(self) -> RelationalBlocks:
        from marklight.engines.relational.blocks import RelationalBlocks

        return RelationalBlocks(self)

    @once
    def metadata(self) -> RelationalMetadata:
        return RelationalMetadata(self)

    @once
    def status(self) -> RelationalStatus:
        return RelationalStatus(self)

    @property
    @abstractmethod
    def lexical(self) -> RowReader: ...

    def ids_of(self, rows: Collection[int]) -> dict[int, str]:
        """Return the ids of those rows that the snapshot has."""

        def read(missing: list[int]) -> Mapping[int, str]:
            query = "SELECT c.row, c.id FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value"
            ids: dict[int, str] = dict(self.session.all(query, [missing]))
            self.cache.rows.add({id: row for row, id in ids.items()})
            return ids

        return self.cache.ids.get(rows, read)

    def rows_of(self, chunks: Collection[str]) -> dict[str, int]:
        """Return the rows of passages; missing ids are skipped."""

        def read(missing: list[str]) -> Mapping[str, int]:
            query = "SELECT c.id, c.row FROM texts(?) t CROSS JOIN chunks c ON c.id = t.value"
            return dict(self.session.all(query, [missing]))

        return self.cache.rows.get(list(dict.fromkeys(chunks)), read)

    def row_filter(self, filters: Filters) -> RowFilter | None:
        """Return the rows that match, found once for all retrievers of a query; None if all match."""
        if not filters:
            return None
        from marklight.engines.relational.filters import matching_rows

        def read(_: Sequence[Filters]) -> dict[Filters, RowFilter | None]:
            return {filters: matching_rows(self, filters)}

        with self._filter_lock:
            return self.cache.row_filters.get([filters], read)[filters]

    def sql_condition(self, filters: Filters) -> tuple[str, list[Any]]:
        """Return the SQL condition on a passage `c` that selects those that match."""
        rows = self.row_filter(filters)
        return rows.condition() if rows else ("true", [])


class RelationalMetadata:
    """Frontmatter keys, values and tags, and the documents that match filters."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def matching_documents(self, filters: Filters, limit: int) -> list[DocumentId]:
        """Return the documents with a passage that matches the filters, ordered by id."""
        rows = self._snapshot.row_filter(filters)
        condition, values = self._snapshot.sql_condition(filters)
        # Few matching rows are looked up; else each document is checked for a matching passage.
        matching = (
            f"d.row IN (SELECT c.document FROM chunks c WHERE {condition})"
            if rows and not rows.exclude
            else f"EXISTS (SELECT 1 FROM chunks c WHERE c.document = d.row AND {condition})"
        )
        documents = self._session.all(
            f"SELECT d.collection, d.path FROM documents d WHERE {matching} ORDER BY 1, 2 LIMIT ?",
            [*values, max(0, limit)],
        )
        return [DocumentId(*row) for row in documents]

    def count_matching(self, filters: Filters) -> int:
        """Return the number of passages that match; an estimate if more than a thousand documents do."""
        rows = self._snapshot.row_filter(filters)
        documents, chunks = map(int, self._session.all("SELECT documents, chunks FROM state")[0])
        if rows is None:
            return chunks
        total = chunks if rows.column == "row" else documents
        matching = total - len(rows.rows) if rows.exclude else len(rows.rows)
        if rows.column == "row":
            return matching
        if matching > MAX_DOCUMENTS_COUNTED:
            return round(chunks * matching / documents)
        condition, values = rows.condition()
        return int(self._session.value(f"SELECT count(*) FROM chunks c WHERE {condition}", values))

    def documents_with_terms(
        self, groups: Sequence[Collection[str]], field: str, filters: Filters
    ) -> Mapping[DocumentId, DocumentMatch]:
        """Return the documents whose passages together have a term of every group in a field.

        Only passages that match the filters count. Without groups, all of them match.
        """
        from marklight.engines.relational.filters import documents_with_terms

        return documents_with_terms(self._snapshot, groups, field, filters)

    def has_key(self, key: str) -> bool:
        """Return True if any document has this frontmatter key."""
        known = "SELECT 1 FROM metadata WHERE key = ? LIMIT 1"
        key = normalize_key(key)
        return self._snapshot.cache.keys.get(
            [key], lambda keys: {each: bool(self._session.value(known, [each])) for each in keys}
        )[key]

    def languages(self) -> Mapping[str, int]:
        """Return the languages of documents in order, with document counts up to a bound; values that are not ISO 639-1 codes come from frontmatter."""
        return self._snapshot.cache.once("languages", lambda: language_counts(self._session))

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        """Return the lower-case values of a frontmatter key with document counts, most frequent first."""
        rows = self._session.all(
            "SELECT value, count(*) FROM metadata WHERE key = ? GROUP BY value"
            " ORDER BY 2 DESC, 1 LIMIT ?",
            [normalize_key(key), max(0, limit)],
        )
        return dict(rows)

    def tags(self) -> Mapping[str, int]:
        """Return all tags in lower case with document counts; a nested tag counts for its parents too."""
        from marklight.engines.metadata_filters import TAG

        rows = self._session.all(
            "SELECT value, count(*) FROM metadata WHERE key = ? GROUP BY value", [TAG]
        )
        return dict(rows)


def document_languages(session: SqlSession) -> list[str]:
    """Return the distinct languages of documents in order, each by one lookup in the index of metadata."""
    from marklight.engines.metadata_filters import LANGUAGE

    rows = session.all(
        "WITH RECURSIVE v (value) AS (SELECT min(m.value) FROM metadata m WHERE m.key = ? UNION ALL"
        " SELECT (SELECT min(m.value) FROM metadata m WHERE m.key = ? AND m.value > v.value)"
        " FROM v WHERE v.value IS NOT NULL) SELECT value FROM v WHERE value IS NOT NULL LIMIT ?",
        [LANGUAGE, LANGUAGE, MAX_LANGUAGES],
    )
    return [value for (value,) in rows]


def language_counts(session: SqlSession) -> dict[str, int]:
    """Return the languages of documents in order with document counts up to `MAX_COUNTED`."""
    from marklight.engines.metadata_filters import LANGUAGE
    from marklight.text.languages import MAX_COUNTED

    count = (
        "SELECT count(*) FROM (SELECT 1 FROM metadata WHERE key = ? AND value = ? LIMIT ?) AS one"
    )
    return {
        value: session.all(count, [LANGUAGE, value, MAX_COUNTED])[0][0]
        for value in document_languages(session)
    }


_LACKING = "c.digest <> '' AND (SELECT count(*) FROM vectors v WHERE v.digest = c.digest AND v.model = ?) = 0"
"""A look-up for each passage: a join by statistics from before a model's vectors would compare all pairs in PostgreSQL."""


class RelationalVectors:
    """Texts without a vector, which the tables know; a subclass searches the vectors."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def missing(self, model: str, digests: Sequence[str]) -> list[str]:
        rows = self._session.all(
            "SELECT t.value FROM texts(?) t WHERE EXISTS (SELECT 1 FROM vectors v"
            " JOIN models m ON m.row = v.model WHERE v.digest = t.value AND m.name = ?)",
            [list(digests), model],
        )
        known = {digest for (digest,) in rows}
        return [digest for digest in digests if digest not in known]

    def pending(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        row, done = self._session.one(
            "SELECT row, embedded_to FROM models WHERE name = ?", [model]
        ) or (-1, 0)
        ids: dict[str, str] = {}
        for id, digest in self._session.all(
            "SELECT c.id, c.digest FROM texts(?) f CROSS JOIN chunks c ON c.id = f.value"
            f" WHERE {_LACKING} ORDER BY f.key",
            [list(first), row],
        ):
            ids.setdefault(digest, id)
        while len(ids) < limit:
            # In pages, since several passages may have the same text.
            page = self._session.all(
                "SELECT c.id, c.digest, c.row FROM chunks c"
                f" WHERE c.row > ? AND {_LACKING} ORDER BY c.row LIMIT {int(limit)}",
                [done, row],
            )
            for id, digest, _ in page:
                ids.setdefault(digest, id)
            if len(page) < limit:
                break
            done = page[-1][2]
        chunks = self._snapshot.documents.chunks(list(ids.values())[: max(0, limit)])
        return [Pending(chunk.digest, chunk) for chunk in chunks]


class RelationalStatus:
    """Counts, manifest, failures and remarks.

    Damage is reported by a subclass, if the database itself does not detect it.
    """

    VERSION = "documents, (SELECT max(row) FROM documents)"
    """Columns whose values change when documents do."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._session = snapshot.session
        self._cache, self._library = snapshot.cache, snapshot.library
        self._own_failures: tuple[str, list[Any]] = "true", []
        """Condition of the failures that are reported, and its values."""

    def counts(self, model: str) -> Counts:
        """Return the numbers of documents and passages, and of those with a vector of this model."""
        return self._cache.once(f"counts {model}", lambda: self._counts(model))

    def _counts(self, model: str) -> Counts:
        """Read counters that every commit updates: the size of the library does not matter."""
        documents, chunks, boilerplate, generation = self._session.all(
            "SELECT documents, chunks, boilerplate_chunks, generation FROM state"
        )[0]
        embedded = "SELECT embedded FROM models WHERE name = ?"
        own, values = self._own_failures
        return Counts(
            documents=documents,
            chunks=chunks,
            embedded=self._session.value(embedded, [model]) or 0,
            failed=self._session.value(f"SELECT count(*) FROM failures WHERE {own}", values),
            generation=generation,
            model=model,
            boilerplate=boilerplate,
        )

    def models(self) -> Mapping[str, int]:
        """Return the fingerprints of models with the number of passages that have a vector."""
        query = "SELECT name, embedded FROM models WHERE embedded > 0"
        return dict(self._cache.once("models", lambda: self._session.all(query)))

    def documents_version(self) -> str:
        """Return a text that differs once documents were added, replaced or removed: their rows are never reused."""
        query = f"SELECT {self.VERSION} FROM state"
        values = self._cache.once("version", lambda: self._session.all(query)[0])
        return " ".join(map(str, (self._library, *values)))

    def manifest(self) -> Mapping[str, str]:
        """Return the key-value pairs that commits have stored."""
        query = "SELECT key, value FROM manifest"
        return dict(self._cache.once("manifest", lambda: self._session.all(query)))

    @relational.raises_damaged
    def failures(self) -> Sequence[Failure]:
        """Return the files that could not be indexed, ordered by path."""
        own, values = self._own_failures
        rows = self._session.all(
            "SELECT collection, path, reason, size, mtime_ns, ctime_ns FROM failures"
            f" WHERE {own} ORDER BY 1, 2",
            values,
        )
        return [
            Failure(
                DocumentId(collection, path), reason, None if file[0] is None else FileState(*file)
            )
            for collection, path, reason, *file in rows
        ]

    @relational.raises_damaged
    def remarks(self) -> list[tuple[DocumentId, str]]:
        """Return the warnings about documents that are indexed all the same, ordered by path."""
        return [
            (DocumentId(collection, path), remark)
            for collection, path, remarks in self._session.all(
                "SELECT d.collection, d.path, c.remarks FROM contents c"
                " JOIN documents d ON d.row = c.document WHERE c.remarks <> '' ORDER BY 1, 2"
            )
            for remark in relational.decode_texts(remarks)
        ]

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:  # noqa: ARG002
        """Return the documents of those passages that do not match their checksums."""
        return set()

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:  # noqa: ARG002
        """Return the documents of which any stored part does not match its checksum."""
        return set()
