"""Boost recent documents by their own date, else by the modification time of their file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits, Query
from marklight.ports import Tools
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
