"""Find passages of documents one link away from those that hold the question's words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2

from marklight.answer import Filters, Hits, Query
from marklight.model import DocumentId
from marklight.ports import FIELD_BOOSTS, ScoredChunk, Tools
from marklight.search.retrieve import candidates, demand_depth
from marklight.settings import demand_within
from marklight.text import query_terms

_WIKILINK = re.compile(r"\[\[([^\[\]|#^\n]{1,300})[^\[\]\n]*\]\]")
_LONGEST_NAME = 200
_PASSAGES = 5
"""Passages fetched for each document, so that most have one among the best of all."""
_HUB = 8
"""Documents each way that are counted: a page with more is damped no further."""
_MOST_LOOKED_AT = 1_000
"""Seeds, and neighbours of each, that settings may ask for: a million documents at one hop."""

Scores = Mapping[DocumentId, float]


@dataclass(frozen=True, slots=True)
class Graph:
    """Neighbours of the documents that the words find, at half their score; hubs are damped.

    By 1 / log2(2 + links), where links to one document count once: each doubling takes about as much
    from a page. 1 / links would leave nothing of a good overview, and no damping would let the start
    page answer everything.
    """

    depth: int = 1
    """Candidates for each result asked for, each of another document."""
    least: int = 5
    """Candidates fetched at the least, where there are so many neighbours."""
    seeds: int = 5
    """Best passages by words whose documents' neighbours are looked at."""
    hops: int = 1
    """How many links away; each halves the score again."""
    most: int = 16
    """Neighbours looked at of each document, each way."""

    def __post_init__(self) -> None:
        demand_depth(self.depth, self.least)
        looked = (1, _MOST_LOOKED_AT)
        demand_within("search.graph", self, seeds=looked, most=looked, hops=(1, 3))

    def __call__(self, query: Query, tools: Tools) -> Hits:
        limit = candidates(query, self.depth, self.least)
        scores = self._seeds(query, tools)
        known, found = set(scores), dict[DocumentId, float]()
        for _ in range(self.hops):
            scores = self._step(scores, known, tools)
            known |= set(scores)
            found.update(scores)
        best = _passing(_best(found), query.filters, tools)[:limit]
        hits = [ScoredChunk(id, found[document]) for document, id in _passages(best, query, tools)]
        return tools.hits(sorted(hits, key=lambda each: (-each.score, each.chunk_id)), by="graph")

    def _seeds(self, query: Query, tools: Tools) -> Scores:
        """Documents of the best hits by words, from 0 to 1, and those that the question names."""
        words = query_terms(*query.spellings)
        hits = (
            tools.snapshot.lexical.search(words, FIELD_BOOSTS, query.filters, self.seeds)
            if words
            else []
        )
        owners = tools.snapshot.documents.owners([hit.chunk_id for hit in hits])
        seeds: dict[DocumentId, float] = {}
        for chunk, score in hits:  # best first
            seeds.setdefault(owners[chunk], score / hits[0].score)
        return {**seeds, **dict.fromkeys(_named(query, tools), 1.0)}

    def _step(self, scores: Scores, known: set[DocumentId], tools: Tools) -> Scores:
        """Documents one link further, each by the best that leads to it."""
        near: dict[DocumentId, float] = {}
        for document, neighbours in tools.snapshot.links.neighbours(
            list(scores), self.most
        ).items():
            for each in neighbours:
                if each not in known:
                    near[each] = max(near.get(each, 0.0), 0.5 * scores[document])
        looked = _best(near)[: 2 * self.most]  # what scores less would have to be damped far less
        links = tools.snapshot.links.degrees(looked, _HUB)
        return {each: near[each] / log2(2 + links[each]) for each in looked}


def _named(query: Query, tools: Tools) -> list[DocumentId]:
    """Documents that the question calls by name: `[[Target]]`, or with all of its words."""
    names = _WIKILINK.findall(query.text)
    if len(query.text) <= _LONGEST_NAME:
        names.append(query.text)
    keys = (unicodedata.normalize("NFC", name).strip().strip("/").lower() for name in names)
    found = (tools.snapshot.links.resolve([key], query.current_collection) for key in keys if key)
    return [document for document in found if document is not None]


def _best(scores: Scores) -> list[DocumentId]:
    return sorted(scores, key=lambda each: (-scores[each], each))


def _passing(documents: list[DocumentId], filters: Filters, tools: Tools) -> list[DocumentId]:
    if not filters or not documents:
        return documents
    among = _among(filters, documents)
    passing = (
        set(tools.snapshot.metadata.matching_documents(among, len(documents))) if among else set()
    )
    return [each for each in documents if each in passing]


def _among(filters: Filters, documents: Iterable[DocumentId]) -> Filters | None:
    """The same filters for some documents only; None where no document is left."""
    both = tuple(each for each in documents if each in filters.documents or not filters.documents)
    return replace(filters, documents=both) if both else None


def _passages(
    documents: Sequence[DocumentId], query: Query, tools: Tools
) -> Iterable[tuple[DocumentId, str]]:
    """The passage of each that answers best; its first where neither words nor meaning tell."""
    if not documents:
        return []
    filters = replace(query.filters, documents=tuple(documents))
    if tools.embedder is not None:
        vector = tools.embedder.embed_query(query.text)
        leading = tools.snapshot.vectors.best_per_document(
            vector, tools.embedder.fingerprint, filters
        )
        found = {document: each.chunk_id for document, each in leading.items()}
    else:
        found = _by_words(documents, replace(query, filters=filters), tools)
    if not filters.restrict_passages:
        for document in documents:
            if document not in found:
                found.update(
                    (document, chunk.id)
                    for chunk in tools.snapshot.documents.chunks_of(document)[:1]
                )
    return found.items()


def _by_words(documents: Sequence[DocumentId], query: Query, tools: Tools) -> dict[DocumentId, str]:
    """The best passages, few enough that most documents have one among them."""
    words = query_terms(*query.spellings)
    limit = _PASSAGES * len(documents)
    best = tools.snapshot.lexical.search(words, FIELD_BOOSTS, query.filters, limit)
    owners = tools.snapshot.documents.owners([each.chunk_id for each in best])
    return {owners[each.chunk_id]: each.chunk_id for each in reversed(best)}
