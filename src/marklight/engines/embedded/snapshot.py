"""Readers of one snapshot: the tables as one transaction sees them, with indexes as old as it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from marklight.answer import Filters, Level
from marklight.engines.embedded import (
    checksums,
    edges,
    graph,
    nearby,
    read,
    records,
    stored,
    vocabulary,
)
from marklight.engines.embedded.allowed import Allowed, allowed
from marklight.engines.embedded.named import named
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.worded import worded
from marklight.engines.lexical import CODE
from marklight.model import (
    Chunk,
    Counts,
    Document,
    DocumentId,
    Failure,
    Heading,
    ResolvedLink,
    Section,
)
from marklight.ports import (
    IndexedFile,
    PathRange,
    Pending,
    ScoredChunk,
    ScoredTerm,
    Snapshot,
    TermCoverage,
)

if TYPE_CHECKING:
    from marklight.engines.embedded.derived import Derived
    from marklight.model import Vector


def snapshot_of(session: Session, derived: Derived) -> Snapshot:
    """Return the readers of one transaction."""
    filters = FilterCache(session, derived)
    return Snapshot(
        int(derived.generation),
        EmbeddedDocuments(session, derived, filters),
        EmbeddedMetadata(session, filters),
        EmbeddedLexical(derived, filters),
        EmbeddedVectors(session, derived, filters),
        EmbeddedLinks(session, derived),
        EmbeddedVocabulary(session, derived),
        EmbeddedStatus(session),
    )


class FilterCache:
    """Rows that match filters, found once, since all retrievers of a query have the same filters."""

    def __init__(self, session: Session, derived: Derived) -> None:
        self._session = session
        self._derived = derived
        self._lock = Lock()
        self._allowed: dict[Filters, Allowed | None] = {}

    def allowed(self, filters: Filters) -> Allowed | None:
        """Return the rows that match; None if all do."""
        if not filters:
            return None
        with self._lock:
            if filters not in self._allowed:
                rows = allowed(self._session, filters)
                self._allowed[filters] = worded(self._session, filters, rows, self._derived.holding)
            return self._allowed[filters]


class EmbeddedDocuments:
    """Documents, their files, passages and sections."""

    def __init__(self, session: Session, derived: Derived, filters: FilterCache) -> None:
        self._session = session
        self._cache = derived.kept
        self._filters = filters

    def files(self, ranges: Sequence[PathRange] | None = None) -> Mapping[DocumentId, IndexedFile]:
        if ranges is None:
            return read.files(self._session)
        found = [read.files_within(self._session, part) for part in ranges]
        return {id: file for files in found for id, file in files.items()}

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        return {id: facts.indexed for id, facts in self._facts(documents).items()}

    def modified_times(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        return {id: facts.indexed.file.mtime_ns for id, facts in self._facts(documents).items()}

    def dates(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        return {id: facts.moment for id, facts in self._facts(documents).items()}

    def _facts(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, read.Facts]:
        return self._cache.facts(self._session, set(documents))

    def get(self, id: DocumentId) -> Document | None:
        return read.document(self._session, id)

    def text_and_outline(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        return read.text_of(self._session, id)

    def find_by_path(self, path: str) -> list[DocumentId]:
        return read.find(self._session, path)

    def find_by_title(self, title: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        return named(self._session, title, lambda: self._filters.allowed(filters), limit)

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        known = self._cache.of(self._session, ids)
        return [known[id].chunk for id in ids if id in known]

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        return stored.chunks_of(self._session, document)

    def chunks_around(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        return stored.beside(self._session, document, ordinal, count)

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        return self._cache.owners(self._session, chunks)

    def context_levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        known = self._cache.of(self._session, ids)
        return {id: records.levels(each.levels) for id, each in known.items() if each.levels}

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        return stored.section(self._session, id)


class EmbeddedMetadata:
    """Frontmatter keys, values and tags, and the documents that match filters."""

    def __init__(self, session: Session, filters: FilterCache) -> None:
        self._session = session
        self._filters = filters

    def matching_documents(self, filters: Filters, limit: int) -> list[DocumentId]:
        return read.listed_documents(self._session, self._filters.allowed(filters), limit)

    def count_matching(self, filters: Filters) -> int:
        return read.passing(self._session, self._filters.allowed(filters))

    def has_key(self, key: str) -> bool:
        return read.knows(self._session, key)

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        return read.values_of(self._session, key, limit)

    def tags(self) -> Mapping[str, int]:
        return read.tags(self._session)


class EmbeddedStatus:
    """Counts, manifest, failures and integrity of the tables."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts: dict[str, Counts] = {}

    def counts(self, model: str) -> Counts:
        if model not in self._counts:
            self._counts[model] = read.counts(self._session, model)
        return self._counts[model]

    def manifest(self) -> Mapping[str, str]:
        return dict(self._session.all("SELECT key, value FROM manifest"))

    def failures(self) -> Sequence[Failure]:
        return read.failures(self._session)

    def remarks(self) -> list[tuple[DocumentId, str]]:
        return read.remarks(self._session)

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:
        return checksums.damaged_passages(self._session, ids)

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        rows: Mapping[DocumentId, int] = read.column(self._session, "row", documents)
        damaged = set(checksums.damaged_documents(self._session, list(rows.values())))
        return {id for id, row in rows.items() if row in damaged}


class EmbeddedLinks:
    """Links between documents."""

    def __init__(self, session: Session, derived: Derived) -> None:
        self._session = session
        self._cache = derived.kept

    def last_changed(self) -> int:
        return int(self._session.value("SELECT linked FROM state"))

    def outgoing(self, document: DocumentId) -> list[ResolvedLink]:
        return graph.links_from(self._session, document)

    def incoming(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        return graph.links_to(self._session, document, limit)

    def unresolved(self) -> list[ResolvedLink]:
        return graph.unresolved(self._session)

    def resolve(self, keys: Sequence[str], collection: str) -> DocumentId | None:
        return graph.resolve(self._session, keys, collection)

    def neighbours(
        self, documents: Sequence[DocumentId], limit: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        query = edges.neighbours if self._has_edges else nearby.neighbours
        return query(self._session, documents, limit)

    def degrees(self, documents: Sequence[DocumentId], limit: int) -> Mapping[DocumentId, int]:
        return self._cache.degrees(self._session, documents, limit)

    def edges(self) -> Iterable[tuple[DocumentId, DocumentId]]:
        query = edges.pairs if self._has_edges else nearby.pairs
        return query(self._session)

    def orphans(self) -> list[DocumentId]:
        query = edges.orphans if self._has_edges else nearby.orphans
        return query(self._session)

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        known = self._cache.facts(self._session, set(documents))
        return {id: facts.community for id, facts in known.items() if facts.community is not None}

    @property
    def _has_edges(self) -> bool:
        """True if the edge table is up to date in this snapshot."""
        return edges.right(self._session)


class LastSearch(NamedTuple):
    """The last keyword search: several retrievers of one query repeat it, some with a lower limit."""

    key: tuple[object, ...]
    limit: int
    found: list[ScoredChunk]


class EmbeddedLexical:
    """Keyword search in the lexical index."""

    def __init__(self, derived: Derived, filters: FilterCache) -> None:
        self._derived = derived
        self._filters = filters
        self._last = LastSearch((), 0, [])

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        rows = self._filters.allowed(filters)
        if not terms or limit <= 0 or (rows and rows.nothing):
            return []
        key = (*terms, *boosts.items(), filters)
        last = self._last  # another thread may replace it meanwhile
        if last.key != key or last.limit < limit:
            found = self._derived.best(terms, boosts, rows, limit)
            last = self._last = LastSearch(key, limit, found)
        return last.found[:limit]

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        return self.search(terms, {CODE: 1.0}, filters, limit)

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        return self._derived.covered(terms, chunks) if terms and chunks else {}

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        return self._derived.known(terms)


class EmbeddedVectors:
    """Vector search by cosine similarity."""

    def __init__(self, session: Session, derived: Derived, filters: FilterCache) -> None:
        self._session = session
        self._derived = derived
        self._filters = filters

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        rows = self._filters.allowed(filters)
        if limit <= 0 or (rows and rows.nothing):
            return []
        return self._derived.nearest(vector, model, rows, limit)

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        rows = self._filters.allowed(filters)
        return {} if rows and rows.nothing else self._derived.leading(vector, model, rows)

    def get(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        return self._derived.vectors(model, chunks)

    def pending(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        return stored.unembedded(self._session, model, limit, first)

    def models(self) -> Mapping[str, int]:
        return dict(self._session.all("SELECT name, embedded FROM models WHERE embedded > 0"))


class EmbeddedVocabulary:
    """Terms with document frequencies and vectors."""

    def __init__(self, session: Session, derived: Derived) -> None:
        self._session = session
        self._derived = derived

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        return vocabulary.counts(self._session, terms)

    def terms_with_prefix(
        self, prefix: str, min_length: int, max_length: int, limit: int
    ) -> Mapping[str, int]:
        return vocabulary.like(self._session, prefix, min_length, max_length, limit)

    def nearest_terms(self, vector: Vector, model: str, limit: int) -> list[ScoredTerm]:
        held = self._derived.concepts(model) if limit > 0 else None
        return held.nearest(vector, limit) if held else []

    def term_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        held = self._derived.concepts(model)
        return held.vectors(terms) if held else {}

    def mean_vector(self, model: str) -> Vector | None:
        held = self._derived.concepts(model)
        return held.centre if held and held.terms else None

    def terms_without_vector(self, model: str, limit: int) -> list[str]:
        return vocabulary.unembedded(self._session, model, limit)
