"""Lift what belongs to the best hits by its links."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.lift import lift
from marklight.settings import demand_within


@dataclass(frozen=True, slots=True)
class Community:
    """Documents in the community of the best hits times 1.1.

    A high score is lifted less, so that none reaches 1: what it lacks of that is divided by as much. A
    document that stands alone among the hits is not lifted: belonging takes two.
    """

    boost: float = 1.1
    """1 switches it off."""
    best: int = 3
    """Hits, from the first, whose communities count."""

    def __post_init__(self) -> None:
        demand_within("search.community", self, boost=(1, 10), best=(1, inf))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if self.boost == 1:
            return hits
        known = tools.snapshot.links.communities({hit.chunk.document for hit in hits})
        members = Counter(known.values())
        leading = {hit.chunk.document for hit in hits[: self.best]}
        lifting = {group for id, group in known.items() if id in leading and members[group] > 1}
        factors = {id: self.boost for id, group in known.items() if group in lifting}
        return lift(hits, factors, by="community")
