"""Leave out what is too unlikely: fewer or no results rather than noise."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.settings import demand_within


@dataclass(frozen=True, slots=True)
class Confidence:
    """Keeps hits whose score is at least the threshold; the caller's own threshold comes first."""

    threshold: float = 0.3
    """Lower scores are left out; `--min-confidence` sets it for one search."""

    def __post_init__(self) -> None:
        demand_within("search.confidence", self, threshold=(0, 1))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        least = self.threshold if query.min_confidence is None else query.min_confidence
        return tuple(hit for hit in hits if hit.score >= least)
