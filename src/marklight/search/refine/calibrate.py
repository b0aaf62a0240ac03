"""Turn the sum of ranks into a probability by a plain curve."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from marklight.answer import Hit, Hits, Query, best_first
from marklight.ports import Tools
from marklight.settings import ABOVE_ZERO, demand_within


@dataclass(frozen=True, slots=True)
class Calibrate:
    """The sigmoid 1 / (1 + exp(-150 (r - 0.035))) over the sum r of rank fusion; off unless asked for.

    First in one list is 1/61 and gives 0.06, first in two gives 0.42, first in three 0.89.
    """

    slope: float = 150.0
    """How steep the curve is."""
    middle: float = 0.035
    """The sum of ranks that is as likely as not."""

    def __post_init__(self) -> None:
        demand_within("search.calibrate", self, slope=(ABOVE_ZERO, 10_000))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        sums = {hit.chunk.id: sum_of_ranks(hit) for hit in hits}
        if None in sums.values():
            tools.notify('calibrate needs search.fuse = "reciprocal"; scores are as they were')
            return hits
        return best_first(
            hit.rescored(self._likelihood(sums[hit.chunk.id] or 0.0), by="calibrate")
            for hit in hits
        )

    def _likelihood(self, sum: float) -> float:
        return 1.0 / (1.0 + exp(min(700.0, -self.slope * (sum - self.middle))))


def sum_of_ranks(hit: Hit) -> float | None:
    """What rank fusion gave this hit; None when another fusion did."""
    return next((why.value for why in hit.why if why.stage == "reciprocal"), None)
