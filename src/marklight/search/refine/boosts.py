"""Boost hits: recent documents, documents in the link community of the best hits, and documents of the current collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.score_normalization import boost
from marklight.settings import Within

DAY_SECONDS = 86_400
FACTORS = ((7, 1.2), (30, 1.1))
"""Maximal age in days and factor, most recent first. Hand-set; the development sets have no dates to measure it."""


@dataclass(frozen=True, slots=True)
class Recency:
    """Multiply the scores of documents dated within the last week by 1.2, within the last month by 1.1.

    Scores stay below 1: high scores are raised less.
    """

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

    Scores stay below 1: high scores are raised less. A
    community with a single document among the hits is not boosted.
    """

    boost: Annotated[float, Within(1, 10)] = 1.1
    """Factor; 1 turns it off."""
    best: Annotated[int, Within(1)] = 3
    """Number of best hits whose communities count."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if self.boost == 1:
            return hits
        communities = tools.snapshot.links.communities({hit.chunk.document for hit in hits})
        sizes = Counter(communities.values())
        leading = {hit.chunk.document for hit in hits[: self.best]}
        boosted = {
            community
            for id, community in communities.items()
            if id in leading and sizes[community] > 1
        }
        factors = {id: self.boost for id, community in communities.items() if community in boosted}
        return boost(hits, factors, by="community")


@dataclass(frozen=True, slots=True)
class CurrentCollection:
    """Multiply the scores of documents in the current collection by 1.2.

    Scores stay below 1: high scores are raised less.
    """

    boost: Annotated[float, Within(0, 10)] = 1.2
    """Factor; 1 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.current_collection:
            return hits
        own = {
            hit.chunk.document for hit in hits if hit.chunk.collection == query.current_collection
        }
        return boost(hits, dict.fromkeys(own, self.boost), by="current_collection")
