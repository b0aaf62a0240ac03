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
    """Multiply the scores of documents in the communities of the best hits by 1.1.

    High scores are raised less, so that none reaches 1: their distance to 1 is divided by the factor. A
    community with a single document among the hits is not boosted.
    """

    boost: Annotated[float, Within(1, 10)] = 1.1
    """Factor; 1 switches it off."""
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
