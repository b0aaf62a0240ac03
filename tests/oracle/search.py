"""In-memory keyword and vector search and vocabulary: every passage is scored, then filtered and sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marklight.lexical import (
    CODE,
    K1,
    WHOLE,
    B,
    coverage,
    distinct_terms,
    document_terms,
    idf,
    passage_terms,
    term_weight,
)
from marklight.model import DocumentId
from marklight.ports import (
    MIN_VOCABULARY,
    VOCABULARY_SIZE,
    Pending,
    ScoredChunk,
    ScoredTerm,
    TermCoverage,
)
from marklight.query import Filters
from marklight.text.analyzer import vocabulary_terms
from marklight.vector_math import check_dimension, unit_rows
from tests.oracle.state import State
from tests.oracle.tables import MemoryDocuments, best

if TYPE_CHECKING:
    from marklight.model import Vector


@dataclass(frozen=True, slots=True)
class MemoryLexical:
    """BM25 over the terms of every passage."""

    state: State

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        fields = self._fields()
        scores = dict.fromkeys(fields, 0.0)
        for name, boost in boosts.items():
            average = sum(len(own[name]) for own in fields.values()) / max(1, len(fields))
            frequencies = {id: Counter(own[name]) for id, own in fields.items()}
            for term in terms:
                containing = [id for id in fields if frequencies[id][term]]
                weight = idf(len(fields), len(containing))
                for id in containing:
                    frequency, length = frequencies[id][term], stored_length(len(fields[id][name]))
                    damping = frequency + K1 * (1 - B + B * length / average)
                    scores[id] += boost * weight * (K1 + 1) * frequency / damping
        positive = {id: score for id, score in scores.items() if score > 0}
        return best(self.state, positive, filters, limit)

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        return self.search(terms, {CODE: 1.0}, filters, limit)

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        fields, wanted = self._fields(), distinct_terms(terms)
        weights = {
            term: term_weight(len(fields), sum(term in own[WHOLE] for own in fields.values()))
            for term in wanted
        }
        shares = {}
        for id in chunks:
            own = fields.get(id, {})
            held = [term for term in wanted if term in own.get(WHOLE, ())]
            if held:
                in_title = [term for term in held if term in own["title"]]
                shares[id] = coverage(weights, held, in_title)
        return shares

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        every = {term for own in self._fields().values() for term in own[WHOLE]}
        return every.intersection(terms)

    def _fields(self) -> dict[str, Mapping[str, Sequence[str]]]:
        """Return the terms of every passage by field."""
        fields: dict[str, Mapping[str, Sequence[str]]] = {}
        for entry in self.state.entries.values():
            shared = document_terms(entry.document)
            fields.update({chunk.id: passage_terms(shared, chunk) for chunk in entry.chunks})
        return fields


def stored_length(length: int) -> int:
    """Return a field's length as tantivy stores it in one byte, like Lucene: exact up to 40, then 4 significant bits above 24."""
    above = length - 24
    step = max(0, above.bit_length() - 4) if above > 0 else 0
    return 24 + (above >> step << step) if step else length


@dataclass(frozen=True, slots=True)
class MemoryVectors:
    """Cosine similarity with the vector of every passage."""

    state: State

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        return best(self.state, self._scores(vector, model), filters, limit)

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        scores = self._scores(vector, model)
        matching = dict(best(self.state, scores, filters, len(scores)))
        chunks = MemoryDocuments(self.state).chunks(list(matching))
        leading: dict[DocumentId, ScoredChunk] = {}
        for chunk in sorted(chunks, key=lambda chunk: chunk.ordinal):
            first = leading.get(chunk.document)
            if first is None or matching[chunk.id] > first.score:
                leading[chunk.document] = ScoredChunk(chunk.id, matching[chunk.id])
        return leading

    def get(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        known = self.state.vectors.get(model, {})
        own = MemoryDocuments(self.state).chunks(chunks)
        return {chunk.id: unit_rows(known[chunk.digest]) for chunk in own if chunk.digest in known}

    def missing(self, model: str, digests: Sequence[str]) -> list[str]:
        known = self.state.vectors.get(model, {})
        return [digest for digest in digests if digest not in known]

    def pending(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        known = self.state.vectors.get(model, {})
        waiting: dict[str, Pending] = {}
        for chunk in (*MemoryDocuments(self.state).chunks(first), *self.state.chunks()):
            if chunk.digest and chunk.digest not in known:
                waiting.setdefault(chunk.digest, Pending(chunk.digest, chunk))
        return list(waiting.values())[: max(0, limit)]

    def _scores(self, vector: Vector, model: str) -> dict[str, float]:
        known, query = self.state.vectors.get(model, {}), unit_rows(vector)
        for row in known.values():
            check_dimension(query, len(row), model)
        return {
            chunk.id: float(unit_rows(known[chunk.digest]) @ query)
            for chunk in self.state.chunks()
            if chunk.digest in known
        }


@dataclass(frozen=True, slots=True)
class MemoryVocabulary:
    """Terms of the library, counted afresh for every call."""

    state: State

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        counts = _document_frequencies(self.state)
        return {term: counts[term] for term in terms if term in counts}

    def terms_with_prefix(
        self, prefix: str, min_length: int, max_length: int, limit: int
    ) -> Mapping[str, int]:
        fitting = {
            term: count
            for term, count in _document_frequencies(self.state).items()
            if term.startswith(prefix) and min_length <= len(term) <= max_length
        }
        return {term: fitting[term] for term in _most_frequent(fitting)[: max(0, limit)]}

    def nearest_terms(self, vector: Vector, model: str, limit: int) -> list[ScoredTerm]:
        query, scored = unit_rows(vector), []
        for term, row in self.term_vectors(model, vocabulary(self.state)).items():
            check_dimension(query, len(row), model)
            scored.append(ScoredTerm(term, float(row @ query)))
        return sorted(scored, key=lambda term: (-term.score, term.term))[: max(0, limit)]

    def term_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        known, living = self.state.concepts.get(model, {}), set(vocabulary(self.state))
        return {term: unit_rows(known[term]) for term in terms if term in known and term in living}

    def mean_vector(self, model: str) -> Vector | None:
        known = self.term_vectors(model, vocabulary(self.state))
        if not known:
            return None
        mean: Vector = np.mean([*known.values()], axis=0, dtype=np.float32)
        return mean

    def terms_without_vector(self, model: str, limit: int) -> list[str]:
        known = self.state.concepts.get(model, {})
        return [term for term in vocabulary(self.state) if term not in known][: max(0, limit)]


def vocabulary(state: State) -> list[str]:
    """Return the terms in most documents, ties in alphabetical order: as many as passages, within limits."""
    count = min(VOCABULARY_SIZE, max(MIN_VOCABULARY, sum(1 for _ in state.chunks())))
    return _most_frequent(_document_frequencies(state))[:count]


def _document_frequencies(state: State) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for document in state.documents():
        counts.update(vocabulary_terms(document.text))
    return counts


def _most_frequent(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda term: (-counts[term], term))
