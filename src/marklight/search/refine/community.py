"""Boost documents in the link community of the best hits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.score_normalization import boost
from marklight.settings import Within


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
