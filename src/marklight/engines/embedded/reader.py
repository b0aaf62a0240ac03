"""A view of one commit, and what can be asked of it."""

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
from marklight.engines.fields import CODE
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
from marklight.ports import Concept, Covered, Indexed, Pending, Scored, Span

if TYPE_CHECKING:
    from marklight.engines.embedded.derived import Derived
    from marklight.model import Vector


class Worded(NamedTuple):
    """The last answer by words: retrievers of a question ask for the same, some for less of it."""

    asked: tuple[object, ...]
    limit: int
    found: list[Scored]


class EmbeddedReader:
    """The tables as one transaction sees them, with words and vectors that are as old as it."""

    def __init__(self, session: Session, derived: Derived) -> None:
        self._session = session
        self._derived = derived
        self._guard = Lock()
        self._allowed: dict[Filters, Allowed | None] = {}
        self._last = Worded((), 0, [])
        self._counts: dict[str, Counts] = {}

    @property
    def generation(self) -> int:
        return int(self._derived.generation)

    def counts(self, model: str) -> Counts:
        if model not in self._counts:
            self._counts[model] = read.counts(self._session, model)
        return self._counts[model]

    def manifest(self) -> Mapping[str, str]:
        return dict(self._session.all("SELECT key, value FROM manifest"))

    def models(self) -> Mapping[str, int]:
        return dict(self._session.all("SELECT name, embedded FROM models WHERE embedded > 0"))

    def files(self, spans: Sequence[Span] | None = None) -> Mapping[DocumentId, Indexed]:
        if spans is None:
            return read.files(self._session)
        found = [read.files_within(self._session, span) for span in spans]
        return {id: each for some in found for id, each in some.items()}

    def indexed(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, Indexed]:
        return {id: each.indexed for id, each in self._facts(documents).items()}

    def modified(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        return {id: each.indexed.file.mtime_ns for id, each in self._facts(documents).items()}

    def moments(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        return {id: each.moment for id, each in self._facts(documents).items()}

    def listed(self, filters: Filters, limit: int) -> list[DocumentId]:
        return read.listed_documents(self._session, self._may(filters), limit)

    def passing(self, filters: Filters) -> int:
        return read.passing(self._session, self._may(filters))

    def knows(self, key: str) -> bool:
        return read.knows(self._session, key)

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        return read.values_of(self._session, key, limit)

    def tags(self) -> Mapping[str, int]:
        return read.tags(self._session)

    def find(self, path: str) -> list[DocumentId]:
        return read.find(self._session, path)

    def failures(self) -> Sequence[Failure]:
        return read.failures(self._session)

    def remarks(self) -> list[tuple[DocumentId, str]]:
        return read.remarks(self._session)

    def document(self, id: DocumentId) -> Document | None:
        return read.document(self._session, id)

    def text_of(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        return read.text_of(self._session, id)

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        known = self._derived.kept.of(self._session, ids)
        return [known[id].chunk for id in ids if id in known]

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        return self._derived.kept.owners(self._session, chunks)

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        return stored.chunks_of(self._session, document)

    def beside(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        return stored.beside(self._session, document, ordinal, count)

    def levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        known = self._derived.kept.of(self._session, ids)
        return {id: records.levels(each.levels) for id, each in known.items() if each.levels}

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        return stored.section(self._session, id)

    def damaged_passages(self, ids: Sequence[str]) -> set[DocumentId]:
        return checksums.damaged_passages(self._session, ids)

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        rows: Mapping[DocumentId, int] = read.column(self._session, "row", documents)
        damaged = set(checksums.damaged_documents(self._session, list(rows.values())))
        return {id for id, row in rows.items() if row in damaged}

    def links_from(self, document: DocumentId) -> list[ResolvedLink]:
        return graph.links_from(self._session, document)

    @property
    def linked(self) -> int:
        return int(self._session.value("SELECT linked FROM state"))

    def links_to(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        return graph.links_to(self._session, document, limit)

    def neighbours(
        self, documents: Sequence[DocumentId], most: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        ask = edges.neighbours if self._paired else nearby.neighbours
        return ask(self._session, documents, most)

    def degrees(self, documents: Sequence[DocumentId], most: int) -> Mapping[DocumentId, int]:
        return self._derived.kept.degrees(self._session, documents, most)

    def edges(self) -> Iterable[tuple[DocumentId, DocumentId]]:
        ask = edges.pairs if self._paired else nearby.pairs
        return ask(self._session)

    def orphans(self) -> list[DocumentId]:
        ask = edges.orphans if self._paired else nearby.orphans
        return ask(self._session)

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        known = self._facts(documents)
        return {id: each.community for id, each in known.items() if each.community is not None}

    def unresolved(self) -> list[ResolvedLink]:
        return graph.unresolved(self._session)

    def resolve(self, keys: Sequence[str], collection: str) -> DocumentId | None:
        return graph.resolve(self._session, keys, collection)

    def keyword(
        self, words: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[Scored]:
        may = self._may(filters)
        if not words or limit <= 0 or (may and may.nothing):
            return []
        asked = (*words, *boosts.items(), filters)
        last = self._last  # another thread may ask for something else meanwhile
        if last.asked != asked or last.limit < limit:
            last = self._last = Worded(asked, limit, self._derived.best(words, boosts, may, limit))
        return last.found[:limit]

    def code(self, tokens: Sequence[str], filters: Filters, limit: int) -> list[Scored]:
        return self.keyword(tokens, {CODE: 1.0}, filters, limit)

    def covered(self, words: Sequence[str], chunks: Sequence[str]) -> Mapping[str, Covered]:
        return self._derived.covered(words, chunks) if words and chunks else {}

    def known(self, words: Sequence[str]) -> set[str]:
        return self._derived.known(words)

    def semantic(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[Scored]:
        may = self._may(filters)
        if limit <= 0 or (may and may.nothing):
            return []
        return self._derived.nearest(vector, model, may, limit)

    def leading(self, vector: Vector, model: str, filters: Filters) -> Mapping[DocumentId, Scored]:
        may = self._may(filters)
        return {} if may and may.nothing else self._derived.leading(vector, model, may)

    def named(self, name: str, filters: Filters, limit: int) -> list[Scored]:
        return named(self._session, name, lambda: self._may(filters), limit)

    def vectors(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        return self._derived.vectors(model, chunks)

    def concepts(self, vector: Vector, model: str, limit: int) -> list[Concept]:
        held = self._derived.concepts(model) if limit > 0 else None
        return held.nearest(vector, limit) if held else []

    def concept_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        held = self._derived.concepts(model)
        return held.vectors(terms) if held else {}

    def concept_centre(self, model: str) -> Vector | None:
        held = self._derived.concepts(model)
        return held.centre if held and held.terms else None

    def term_counts(self, terms: Sequence[str]) -> Mapping[str, int]:
        return vocabulary.counts(self._session, terms)

    def terms_like(self, start: str, least: int, most: int, limit: int) -> Mapping[str, int]:
        return vocabulary.like(self._session, start, least, most, limit)

    def unembedded_concepts(self, model: str, limit: int) -> list[str]:
        return vocabulary.unembedded(self._session, model, limit)

    def unembedded(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        return stored.unembedded(self._session, model, limit, first)

    def _facts(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, read.Facts]:
        return self._derived.kept.facts(self._session, set(documents))

    @property
    def _paired(self) -> bool:
        """Whether what is kept of who links to whom is right for this view."""
        return edges.right(self._session)

    def _may(self, filters: Filters) -> Allowed | None:
        """What passes; found once, since all retrievers of a question ask with the same filters."""
        if not filters:
            return None
        with self._guard:
            if filters not in self._allowed:
                may = allowed(self._session, filters)
                self._allowed[filters] = worded(self._session, filters, may, self._derived.holding)
            return self._allowed[filters]
