"""Diversify hits by maximal marginal relevance, MMR (Carbonell and Goldstein, SIGIR 1998)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter
from typing import TYPE_CHECKING, Annotated

from marklight.answer import Hit, Hits, best_first
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.duplicates import signatures
from marklight.settings import Within
from marklight.text import normalize

if TYPE_CHECKING:
    from marklight.model import Matrix


@dataclass(frozen=True, slots=True)
class Diversity:
    """Reorder results by 0.7 × score - 0.3 × similarity to the most similar result above (MMR). Off by default.

    A hit that is moved behind a lower score gets a score just below that one.
    """

    relevance: Annotated[float, Within(0, 1)] = 0.7
    """Weight of a hit's own score: 1 changes nothing, 0 uses dissimilarity only."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if len(hits) < 3:
            return hits
        import numpy as np

        similarity = pairwise_similarity(hits, tools)
        value = self.relevance * np.array([hit.score for hit in hits])
        closest = np.full(len(hits), -1.0)
        chosen: list[Hit] = []
        index, limit = 0, inf
        for _ in hits:
            hit = hits[index]
            score = min(hit.score, limit)
            if score != hit.score:
                hit = hit.rescored(
                    score, "diversity", "next_below(previous)", previous=chosen[-1].score
                )
            chosen.append(hit)
            limit = max(min(0.0, score), nextafter(score, -inf))
            value[index] = -inf
            closest = np.maximum(closest, similarity[index])
            index = int(np.argmax(value - (1 - self.relevance) * closest))
        return best_first(chosen)


def pairwise_similarity(hits: Hits, tools: Tools) -> Matrix:
    """Return the cosine of each pair's vectors, or the Jaccard similarity of trigrams where one has none."""
    import numpy as np

    model = tools.embedder.fingerprint if tools.embedder else ""
    by_id = tools.snapshot.vectors.get(model, [hit.chunk.id for hit in hits]) if model else {}
    embedded = [index for index, hit in enumerate(hits) if hit.chunk.id in by_id]
    similarity: Matrix = np.zeros((len(hits), len(hits)), np.float32)
    if len(embedded) < len(hits):
        similarity = signatures([normalize(hit.chunk.own_text) for hit in hits]).approximate_jaccard
    if embedded:
        vectors = np.stack([by_id[hits[index].chunk.id] for index in embedded])
        similarity[np.ix_(embedded, embedded)] = np.vecdot(vectors[:, None], vectors)
    return similarity
