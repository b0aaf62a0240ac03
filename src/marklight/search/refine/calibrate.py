"""Turn the sum of reciprocal rank fusion into a probability by a fixed logistic curve; off by default (see `search/calibration.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Annotated

from marklight.answer import Hits, best_first
from marklight.ports import Tools
from marklight.query import Query
from marklight.settings import ABOVE_ZERO, Within

MAX_EXPONENT = 700.0
"""exp() overflows above 709."""


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Convert the rank fusion sum r to a probability, 1 / (1 + exp(-150 (r - 0.035))). Off by default; requires `search.fuse = "reciprocal"`.

    A passage ranked first in one list gets 0.06, in two 0.42, in three 0.89.
    """

    slope: Annotated[float, Within(ABOVE_ZERO, 10_000)] = 150.0
    """Steepness of the curve."""
    middle: float = 0.035
    """The sum of rank fusion with probability 0.5."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if any(hit.rank_sum is None for hit in hits):
            tools.notify(
                'The stage calibrate requires search.fuse = "reciprocal". Scores are unchanged'
            )
            return hits
        return best_first(
            hit.rescored(
                self._probability(rank_sum),
                "calibrate",
                "sigmoid(slope × (rank_sum - middle))",
                rank_sum=rank_sum,
                slope=self.slope,
                middle=self.middle,
            )
            for hit in hits
            for rank_sum in [hit.rank_sum or 0.0]
        )

    def _probability(self, rank_sum: float) -> float:
        return 1.0 / (1.0 + exp(min(MAX_EXPONENT, -self.slope * (rank_sum - self.middle))))
