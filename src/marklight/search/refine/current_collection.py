"""Boost documents of the collection of the current folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.score_normalization import boost
from marklight.settings import Within


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
