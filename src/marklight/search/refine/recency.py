"""Lift what is new: a document's own date counts, else the time of its file."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.lift import lift
from marklight.settings import demand_within

_DAY_SECONDS = 86_400
_FACTORS = ((7, 1.2), (30, 1.1))
"""Days, and what a document of the last so many counts times."""


@dataclass(frozen=True, slots=True)
class Recency:
    """Documents of the last week times 1.2, of the last month times 1.1.

    A high score is lifted less, so that none reaches 1: what it lacks of that is divided by as much.
    """

    strength: float = 1.0
    """How much of that is added: 0.5 makes it times 1.1 and 1.05, 0 switches it off."""

    def __post_init__(self) -> None:
        demand_within("search.recency", self, strength=(0, 10))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not self.strength:
            return hits
        moments = tools.snapshot.documents.dates({hit.chunk.document for hit in hits})
        factors = {id: self._factor(tools.now - moment) for id, moment in moments.items()}
        return lift(hits, factors, by="recency")

    def _factor(self, age_seconds: float) -> float:
        """A date in the future is as new as can be."""
        for days, factor in _FACTORS:
            if age_seconds <= days * _DAY_SECONDS:
                return 1.0 + self.strength * (factor - 1.0)
        return 1.0
