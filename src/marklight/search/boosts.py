"""Boost hits: recent documents, documents in the link community of the best hits, and documents of the current collection.

Scores are probabilities in every fusion, so that a boost has the same effect in each: it multiplies them by its factor.
`python -m benchmarks.boosts` compares this with other formulas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from marklight.answer import Hit, Hits, best_first
from marklight.lazy import dataclass
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query
from marklight.settings import Within

DAY_SECONDS = 86_400
FACTORS = ((7, 1.2), (30, 1.1))
"""Maximal age in days and factor, most recent first. Hand-set; the development sets have no dates to measure it."""


LEADING_HITS = 3
"""Best hits whose communities count. Hand-set; not measured."""
HELD = 0.9
"""Score up to which a factor holds exactly; above, scores are compressed linearly, so that none exceeds 1 and different ones stay
different. With documents declared recent at random, those that answer twice as often as others, nDCG@10 is that of the plain
product (anthropic-docs .884, cranfield .582); it is .882 and .580 if a boost multiplies odds, and .880 and .572 without one."""


def boost(hits: Hits, factors: Mapping[DocumentId, float], by: str) -> Hits:
    """Multiply the scores of documents by their factors, best first.

    Nothing changes where all factors are equal: scores are probabilities, and a folder that was copied
    yesterday makes no passage more likely.
    """
    if all(factor == 1.0 for factor in factors.values()):
        return hits
    by_hit = [factors.get(hit.chunk.document, 1.0) for hit in hits]
    if len(set(by_hit)) < 2:
        return hits
    return best_first(
        hit if factor == 1.0 else _boosted(hit, factor, by)
        for hit, factor in zip(hits, by_hit, strict=True)
    )


def _boosted(hit: Hit, factor: float, by: str) -> Hit:
    score = boosted_score(hit.score, factor)
    if score == hit.score:
        return hit
    if score == hit.score * factor:
        return hit.rescored(score, by, "before × factor", before=hit.score, factor=factor)
    formula = "1 - (1 - before) × (1 - held) / (1 - held / factor)"
    return hit.rescored(score, by, formula, before=hit.score, factor=factor, held=HELD)


def boosted_score(score: float, factor: float) -> float:
    """Return the score times a factor; a product above `HELD` is compressed to stay within 1."""
    if score * factor <= HELD or factor <= 1:
        return score * factor
    return 1 - (1 - score) * (1 - HELD) / (1 - HELD / factor)


@dataclass(frozen=True, slots=True)
class Recency:
    """Multiply the scores of documents dated within the last week by 1.2, within the last month by 1.1."""

    strength: Annotated[float, Within(0, 10)] = 1.0
    """Strength of the boost; 0.5 halves it, 0 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not self.strength:
            return hits
        dates = tools.snapshot.documents.dates({hit.chunk.document for hit in hits})
        factors = {id: self._factor(tools.now - date) for id, date in dates.items()}
        return boost(hits, factors, by="recency")

    def _factor(self, age_seconds: float) -> float:
        """Return the factor for an age; a date in the future counts as new."""
        for days, factor in FACTORS:
            if age_seconds <= days * DAY_SECONDS:
                return 1.0 + self.strength * (factor - 1.0)
        return 1.0


@dataclass(frozen=True, slots=True)
class Community:
    """Boost documents in the same community (group of documents that link to each other) as the best results, by 1.1.

    A community with a single document among the hits is not boosted.
    """

    boost: Annotated[float, Within(1, 10)] = 1.1
    """Factor; 1 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if self.boost == 1:
            return hits
        communities = tools.snapshot.links.communities({hit.chunk.document for hit in hits})
        sizes = Counter(communities.values())
        leading = {hit.chunk.document for hit in hits[:LEADING_HITS]}
        boosted = {
            community
            for id, community in communities.items()
            if id in leading and sizes[community] > 1
        }
        factors = {id: self.boost for id, community in communities.items() if community in boosted}
        return boost(hits, factors, by="community")


@dataclass(frozen=True, slots=True)
class CurrentCollection:
    """Multiply the scores of documents in the current collection by 1.2."""

    boost: Annotated[float, Within(0, 10)] = 1.2
    """Factor; 1 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.current_collection:
            return hits
        current = {
            hit.chunk.document for hit in hits if hit.chunk.collection == query.current_collection
        }
        return boost(hits, dict.fromkeys(current, self.boost), by="current_collection")
