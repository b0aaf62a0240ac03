"""Add documents that are one link away from the best hits, as a labelled group beside the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from marklight.answer import Hits, LinkedDocument
from marklight.model import Chunk, DocumentId
from marklight.ports import Tools
from marklight.query import Mode, Query
from marklight.settings import Within

MAX_NEIGHBOURS = 64
"""Linked documents of one result that are compared with the query, in each direction: bounds the time for an index page.
Hand-set; not measured."""
FOLLOWED = 3
"""Best documents whose links are followed. Hand-set; not measured."""
MAX_DOCUMENTS = 20
"""Bound of the setting. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Linked:
    """Add documents linked with the best results, in either direction, that are no results themselves; ranking and scores stay.

    They need not share a word with the query: of the linked documents, those with the passage nearest to the query by
    cosine similarity are chosen. Only where the first result is more likely wrong than right.
    """

    max_documents: Annotated[int, Within(0, MAX_DOCUMENTS)] = 3
    """Number of documents to add; 0 turns it off."""
    below: Annotated[float, Within(0, 1)] = 0.5
    """Score of the first result below which documents are added; 1 adds them to nearly every answer."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not self.max_documents or not hits or hits[0].score >= self.below:
            return hits
        if query.mode is Mode.CODE or query.filters.documents:
            return hits
        shown = list(dict.fromkeys(hit.chunk.document for hit in hits[: query.limit]))
        neighbours = tools.snapshot.links.neighbours(shown[:FOLLOWED], MAX_NEIGHBOURS)
        links = Counter(
            other for others in neighbours.values() for other in others if other not in shown
        )
        existing = [document for document in links if tools.exists(document)]
        passages = _nearest(existing, links, query, tools, self.max_documents)
        linked: dict[DocumentId, list[LinkedDocument]] = {}
        for chunk in passages:
            source = next(one for one in shown if chunk.document in neighbours.get(one, ()))
            one = LinkedDocument(chunk.document, chunk.title, chunk.anchor, chunk.lines)
            linked.setdefault(source, []).append(one)
        # Only the first passage of a document has them.
        return tuple(replace(hit, linked=tuple(linked.pop(hit.chunk.document, ()))) for hit in hits)


def _nearest(
    documents: list[DocumentId],
    links: Mapping[DocumentId, int],
    query: Query,
    tools: Tools,
    limit: int,
) -> list[Chunk]:
    """Return the nearest passage of each of the best documents; without vectors, the first passage of the best linked ones."""
    if not documents:
        return []
    filters = replace(query.filters, documents=tuple(documents))
    reader = tools.snapshot.documents
    if tools.embedder is not None:
        vector = tools.embedder.embed_query(query.text)
        nearest = tools.snapshot.vectors.best_per_document(
            vector, tools.embedder.fingerprint, filters
        )
        best = sorted(nearest.values(), key=lambda one: (-one.score, one.chunk_id))[:limit]
        return list(reader.chunks([one.chunk_id for one in best]))
    if filters.restrict_passages:
        return []
    passing = tools.snapshot.metadata.matching_documents(filters, len(documents))
    ordered = sorted(passing, key=lambda document: (-links[document], document))[:limit]
    return [chunk for document in ordered for chunk in reader.chunks_around(document, 0, 0)[:1]]
