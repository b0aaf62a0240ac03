"""Retrieve passages of documents linked with those that keyword search finds (spreading activation)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Annotated

from marklight.answer import Filters, Hits, Query
from marklight.model import DocumentId
from marklight.ports import FIELD_BOOSTS, ScoredChunk, Tools
from marklight.search.retrieve import MAX_CANDIDATES, MAX_PER_RESULT
from marklight.settings import Within
from marklight.text import query_terms

HOP_DECAY = 0.5
"""Factor on the score for each link followed. Hand-set; not measured."""
MAX_DEGREE = 8
"""Links in each direction that are counted; a document with more is damped no further. Hand-set; not measured."""
PASSAGES_PER_DOCUMENT = 5
"""Passages fetched for each document without a model, so that most documents have one. Hand-set; not measured."""
MAX_TITLE = 200
"""Characters of a query that may be a document's name. Hand-set; not measured."""
MAX_FETCHED = 1_000
"""Bound of the settings for seeds, and for neighbours of each: a million documents at one hop."""

_WIKILINK = re.compile(r"\[\[([^\[\]|#^\n]{1,300})[^\[\]\n]*\]\]")

Scores = Mapping[DocumentId, float]


@dataclass(frozen=True, slots=True)
class Graph:
    """Also find documents linked with the keyword results, at half their score; documents with many links count less.

    The damping is 1 / log2(2 + links), where several links to one document count once. 1 / links would
    eliminate good overview pages, and without damping the start page would match every query.
    """

    candidates_per_result: Annotated[int, Within(1, MAX_PER_RESULT)] = 1  # hand-set; not measured
    """Number of candidates to fetch per requested result, each from another document."""
    min_candidates: Annotated[int, Within(1, MAX_CANDIDATES)] = 5  # hand-set; not measured
    """Minimum number of candidates to fetch, if there are as many neighbours."""
    seeds: Annotated[int, Within(1, MAX_FETCHED)] = 5  # hand-set; not measured
    """Best passages by keyword search whose documents' links are followed."""
    hops: Annotated[int, Within(1, 3)] = 1  # hand-set; not measured
    """Links to follow from a seed; each halves the score."""
    max_neighbours: Annotated[int, Within(1, MAX_FETCHED)] = 16  # hand-set; not measured
    """Neighbours to read of each document, in each direction."""

    def __call__(self, query: Query, tools: Tools) -> Hits:
        limit = query.candidate_count(self.candidates_per_result, self.min_candidates)
        frontier = self._seeds(query, tools)
        visited, scores = set(frontier), dict[DocumentId, float]()
        for _ in range(self.hops):
            frontier = self._step(frontier, visited, tools)
            visited |= set(frontier)
            scores.update(frontier)
        best = _passing(_by_score(scores), query.filters, tools)[:limit]
        hits = [ScoredChunk(id, scores[document]) for document, id in _passages(best, query, tools)]
        return tools.hits(sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id)), by="graph")

    def _seeds(self, query: Query, tools: Tools) -> Scores:
        """Return the documents of the best keyword hits, scored 0 to 1, and those that the query names."""
        terms = query_terms(*query.spellings, languages=query.languages)
        hits = (
            tools.snapshot.lexical.search(terms, FIELD_BOOSTS, query.filters, self.seeds)
            if terms
            else []
        )
        owners = tools.snapshot.documents.owners([hit.chunk_id for hit in hits])
        seeds: dict[DocumentId, float] = {}
        for id, score in hits:  # best first
            seeds.setdefault(owners[id], score / hits[0].score)
        return {**seeds, **dict.fromkeys(_named(query, tools), 1.0)}

    def _step(self, scores: Scores, visited: set[DocumentId], tools: Tools) -> Scores:
        """Return the documents one link further, each scored by the best that links to it."""
        reached: dict[DocumentId, float] = {}
        neighbours_of = tools.snapshot.links.neighbours(list(scores), self.max_neighbours)
        for document, neighbours in neighbours_of.items():
            for other in neighbours:
                if other not in visited:
                    reached[other] = max(reached.get(other, 0.0), HOP_DECAY * scores[document])
        # Twice as many as needed: what scores less would have to be damped far less to be among the best.
        best = _by_score(reached)[: 2 * self.max_neighbours]
        degrees = tools.snapshot.links.degrees(best, MAX_DEGREE)
        return {other: reached[other] / log2(2 + degrees[other]) for other in best}


def _named(query: Query, tools: Tools) -> list[DocumentId]:
    """Return the documents that the query names: `[[Target]]`, or as a whole."""
    names = _WIKILINK.findall(query.text)
    if len(query.text) <= MAX_TITLE:
        names.append(query.text)
    keys = (unicodedata.normalize("NFC", name).strip().strip("/").lower() for name in names)
    resolved = (
        tools.snapshot.links.resolve([key], query.current_collection) for key in keys if key
    )
    return [document for document in resolved if document is not None]


def _by_score(scores: Scores) -> list[DocumentId]:
    return sorted(scores, key=lambda document: (-scores[document], document))


def _passing(documents: list[DocumentId], filters: Filters, tools: Tools) -> list[DocumentId]:
    if not filters or not documents:
        return documents
    restricted = _restricted(filters, documents)
    passing = (
        set(tools.snapshot.metadata.matching_documents(restricted, len(documents)))
        if restricted
        else set()
    )
    return [document for document in documents if document in passing]


def _restricted(filters: Filters, documents: Iterable[DocumentId]) -> Filters | None:
    """Restrict filters to these documents; return None if no document is left."""
    both = tuple(
        document for document in documents if document in filters.documents or not filters.documents
    )
    return replace(filters, documents=both) if both else None


def _passages(
    documents: Sequence[DocumentId], query: Query, tools: Tools
) -> Iterable[tuple[DocumentId, str]]:
    """Return the best passage of each document; its first if neither terms nor vectors rank it."""
    if not documents:
        return []
    filters = replace(query.filters, documents=tuple(documents))
    if tools.embedder is not None:
        vector = tools.embedder.embed_query(query.text)
        nearest = tools.snapshot.vectors.best_per_document(
            vector, tools.embedder.fingerprint, filters
        )
        best = {document: passage.chunk_id for document, passage in nearest.items()}
    else:
        best = _best_by_terms(documents, replace(query, filters=filters), tools)
    if not filters.restrict_passages:
        for document in documents:
            if document not in best:
                chunks = tools.snapshot.documents.chunks_of(document)
                best.update((document, chunk.id) for chunk in chunks[:1])
    return best.items()


def _best_by_terms(
    documents: Sequence[DocumentId], query: Query, tools: Tools
) -> dict[DocumentId, str]:
    terms = query_terms(*query.spellings, languages=query.languages)
    limit = PASSAGES_PER_DOCUMENT * len(documents)
    best = tools.snapshot.lexical.search(terms, FIELD_BOOSTS, query.filters, limit)
    owners = tools.snapshot.documents.owners([passage.chunk_id for passage in best])
    return {owners[passage.chunk_id]: passage.chunk_id for passage in reversed(best)}
