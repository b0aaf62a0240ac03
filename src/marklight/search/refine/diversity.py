"""Prefer hits that say something else than those before them: maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter
from typing import TYPE_CHECKING

from marklight.answer import Hit, Hits, Query, best_first
from marklight.ports import Tools
from marklight.search.likeness import sketch
from marklight.settings import demand_within
from marklight.text import normalize

if TYPE_CHECKING:
    from marklight.model import Matrix


@dataclass(frozen=True, slots=True)
class Diversity:
    """0.7 x score - 0.3 x likeness to the nearest hit already chosen; off unless asked for.

    A hit that a worse one is put before gets a score just below that one's.
    """

    relevance: float = 0.7
    """How much a hit's own score counts: 1 changes nothing, 0 asks for differences only."""

    def __post_init__(self) -> None:
        demand_within("search.diversity", self, relevance=(0, 1))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if len(hits) < 3:
            return hits
        import numpy as np

        alike = likeness(hits, tools)
        worth = self.relevance * np.array([hit.score for hit in hits])
        nearest = np.full(len(hits), -1.0)
        chosen: list[Hit] = []
        at, below = 0, inf
        for _ in hits:
            hit = hits[at]
            score = min(hit.score, below)
            chosen.append(hit if score == hit.score else hit.rescored(score, by="diversity"))
            below = max(min(0.0, score), nextafter(score, -inf))
            worth[at] = -inf
            nearest = np.maximum(nearest, alike[at])
            at = int(np.argmax(worth - (1 - self.relevance) * nearest))
        return best_first(chosen)


def likeness(hits: Hits, tools: Tools) -> Matrix:
    """Of each pair: the cosine of their vectors, or how many characters they share where one has none."""
    import numpy as np

    model = tools.embedder.fingerprint if tools.embedder else ""
    known = tools.snapshot.vectors.get(model, [hit.chunk.id for hit in hits]) if model else {}
    have = [at for at, hit in enumerate(hits) if hit.chunk.id in known]
    alike: Matrix = np.zeros((len(hits), len(hits)), np.float32)
    if len(have) < len(hits):
        texts = sketch([normalize(hit.chunk.text) for hit in hits])
        alike = texts.shared / (texts.set[:, None] + texts.set - texts.shared)
    if have:
        vectors = np.stack([known[hits[at].chunk.id] for at in have])
        alike[np.ix_(have, have)] = np.vecdot(vectors[:, None], vectors)
    return alike
