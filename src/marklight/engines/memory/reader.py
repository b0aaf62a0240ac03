"""One state, read by plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marklight.answer import Filters, Level
from marklight.engines.facts import TAG, fact_key, facts, moment, seconds
from marklight.engines.fields import CODE
from marklight.engines.memory import concepts, graph, ranking
from marklight.engines.memory.state import State
from marklight.levels import entry_levels
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
    from marklight.model import Vector


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """One state, read by plain loops."""

    state: State

    @property
    def generation(self) -> int:
        return self.state.generation

    def counts(self, model: str) -> Counts:
        return Counts(
            documents=len(self.state.entries),
            chunks=sum(1 for _ in self.state.chunks()),
            embedded=self.models().get(model, 0),
            failed=len(self.state.failed),
            generation=self.state.generation,
            model=model,
        )

    def manifest(self) -> Mapping[str, str]:
        return dict(self.state.notes)

    def models(self) -> Mapping[str, int]:
        used = {
            model: sum(chunk.digest in known for chunk in self.state.chunks())
            for model, known in self.state.vectors.items()
        }
        return {model: count for model, count in used.items() if count}

    def files(self, spans: Sequence[Span] | None = None) -> Mapping[DocumentId, Indexed]:
        documents = (entry.document for entry in self.state.entries.values())
        return {
            each.id: Indexed(each.file, each.digest, each.recipe)
            for each in documents
            if spans is None or any(span.holds(each.id) for span in spans)
        }

    def indexed(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, Indexed]:
        files = self.files()
        return {id: files[id] for id in documents if id in files}

    def modified(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        files = self.files()
        return {id: files[id].file.mtime_ns for id in documents if id in files}

    def moments(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        asked, entries = list(documents), self.state.entries
        known = {id: entries[id].document for id in asked if id in entries}
        return {id: seconds(moment(each.date, each.file.mtime_ns)) for id, each in known.items()}

    def listed(self, filters: Filters, limit: int) -> list[DocumentId]:
        passing = {
            chunk.document
            for chunk in self.state.chunks()
            if ranking.passes(self.state, chunk, filters)
        }
        return sorted(passing)[: max(0, limit)]

    def passing(self, filters: Filters) -> int:
        return sum(ranking.passes(self.state, each, filters) for each in self.state.chunks())

    def knows(self, key: str) -> bool:
        documents = (entry.document for entry in self.state.entries.values())
        return any(known == fact_key(key) for each in documents for known, _ in facts(each))

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        documents = (entry.document for entry in self.state.entries.values())
        said = (value for each in documents for own, value in facts(each) if own == fact_key(key))
        commonest = sorted(Counter(said).items(), key=lambda each: (-each[1], each[0]))
        return dict(commonest[: max(0, limit)])

    def tags(self) -> Mapping[str, int]:
        documents = (entry.document for entry in self.state.entries.values())
        return Counter(value for each in documents for key, value in facts(each) if key == TAG)

    def find(self, path: str) -> list[DocumentId]:
        return sorted(id for id in self.state.entries if id.path == path)

    def failures(self) -> Sequence[Failure]:
        return [self.state.failed[id] for id in sorted(self.state.failed)]

    def remarks(self) -> list[tuple[DocumentId, str]]:
        return [
            (id, said)
            for id in sorted(self.state.entries)
            for said in self.state.entries[id].document.remarks
        ]

    def damaged_passages(self, ids: Sequence[str]) -> set[DocumentId]:  # noqa: ARG002
        return set()

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:  # noqa: ARG002
        return set()

    def document(self, id: DocumentId) -> Document | None:
        entry = self.state.entries.get(id)
        return entry.document if entry else None

    def text_of(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        document = self.document(id)
        return (document.text, document.outline) if document else None

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        known = {chunk.id: chunk for chunk in self.state.chunks()}
        return [known[id] for id in ids if id in known]

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        return {chunk.id: chunk.document for chunk in self.chunks(chunks)}

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        entry = self.state.entries.get(document)
        return sorted(entry.chunks, key=lambda chunk: chunk.ordinal) if entry else []

    def beside(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        return [each for each in self.chunks_of(document) if abs(each.ordinal - ordinal) <= count]

    def levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        owners = [self.state.entries[id] for id in set(self.owners(ids).values())]
        known = {
            chunk.id: levels
            for entry in owners
            for chunk, levels in zip(entry.chunks, entry_levels(entry), strict=True)
        }
        return {id: known[id] for id in ids if id in known}

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        for entry in self.state.entries.values():
            for section in entry.sections:
                if section.id == id:
                    return entry.document.id, section
        return None

    @property
    def linked(self) -> int:
        return self.state.linked

    def links_from(self, document: DocumentId) -> list[ResolvedLink]:
        return [link for link in graph.links(self.state) if link.source == document]

    def links_to(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        return [link for link in graph.links(self.state) if link.target == document][:limit]

    def neighbours(
        self, documents: Sequence[DocumentId], most: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        ends = {id: graph.ends(self.state, id, most) for id in documents}
        return {id: sorted({*out, *back}) for id, (out, back) in ends.items()}

    def degrees(self, documents: Sequence[DocumentId], most: int) -> Mapping[DocumentId, int]:
        ends = {id: graph.ends(self.state, id, most) for id in documents}
        return {id: len(out) + len(back) for id, (out, back) in ends.items()}

    def edges(self) -> list[tuple[DocumentId, DocumentId]]:
        return graph.edges(self.state)

    def orphans(self) -> list[DocumentId]:
        tied = {id for pair in graph.edges(self.state) for id in pair}
        return sorted(self.state.entries.keys() - tied)

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        known = self.state.communities
        return {id: known[id] for id in documents if id in known}

    def unresolved(self) -> list[ResolvedLink]:
        return [link for link in graph.links(self.state) if link.target is None]

    def resolve(self, keys: Sequence[str], collection: str) -> DocumentId | None:
        return graph.resolve(self.state, keys, collection)

    def keyword(
        self, words: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[Scored]:
        return ranking.bm25(self.state, words, boosts, filters, limit)

    def code(self, tokens: Sequence[str], filters: Filters, limit: int) -> list[Scored]:
        return ranking.bm25(self.state, tokens, {CODE: 1.0}, filters, limit)

    def covered(self, words: Sequence[str], chunks: Sequence[str]) -> Mapping[str, Covered]:
        return ranking.covered(self.state, words, chunks)

    def known(self, words: Sequence[str]) -> set[str]:
        return ranking.known(self.state, words)

    def semantic(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[Scored]:
        return ranking.semantic(self.state, vector, model, filters, limit)

    def leading(self, vector: Vector, model: str, filters: Filters) -> Mapping[DocumentId, Scored]:
        scores = dict(self.semantic(vector, model, filters, self.counts(model).chunks))
        best: dict[DocumentId, Scored] = {}
        for chunk in sorted(self.chunks(list(scores)), key=lambda each: each.ordinal):
            if chunk.document not in best or scores[chunk.id] > best[chunk.document].score:
                best[chunk.document] = Scored(chunk.id, scores[chunk.id])
        return best

    def named(self, name: str, filters: Filters, limit: int) -> list[Scored]:
        return ranking.named(self.state, name, filters, limit)

    def vectors(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        known = self.state.vectors.get(model, {})
        return {each.id: known[each.digest] for each in self.chunks(chunks) if each.digest in known}

    def concepts(self, vector: Vector, model: str, limit: int) -> list[Concept]:
        return concepts.nearest(self.state, vector, model, limit)

    def concept_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        return concepts.vectors(self.state, model, terms)

    def concept_centre(self, model: str) -> Vector | None:
        return concepts.centre(self.state, model)

    def term_counts(self, terms: Sequence[str]) -> Mapping[str, int]:
        counted = concepts.counted(self.state)
        return {term: counted[term] for term in terms if term in counted}

    def terms_like(self, start: str, least: int, most: int, limit: int) -> Mapping[str, int]:
        return concepts.like(self.state, start, least, most, limit)

    def unembedded_concepts(self, model: str, limit: int) -> list[str]:
        return concepts.unembedded(self.state, model, limit)

    def unembedded(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        known = self.state.vectors.get(model, {})
        waiting: dict[str, Pending] = {}
        for chunk in (*self.chunks(first), *self.state.chunks()):
            if chunk.digest not in known:
                waiting.setdefault(chunk.digest, Pending(chunk.digest, chunk))
        return list(waiting.values())[: max(0, limit)]
