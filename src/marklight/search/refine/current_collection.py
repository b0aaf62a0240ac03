"""Lift what stands in the collection that the asker stands in, without hiding the others."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.lift import lift
from marklight.settings import demand_within


@dataclass(frozen=True, slots=True)
class CurrentCollection:
    """Scores of the asker's own collection times the boost.

    A high score is lifted less, so that none reaches 1: what it lacks of that is divided by as much.
    """

    boost: float = 1.2
    """1 switches it off."""

    def __post_init__(self) -> None:
        demand_within("search.current_collection", self, boost=(0, 10))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.current_collection:
            return hits
        own = {
            hit.chunk.document for hit in hits if hit.chunk.collection == query.current_collection
        }
        return lift(hits, dict.fromkeys(own, self.boost), by="current_collection")
