"""Fuse lists by their scores, and trust a list less the flatter it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import pvariance

from marklight.answer import Hits, Query, best_first, together
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.search.shares import demand_weights, on_one_scale, shares, summed, weights_of


@dataclass(frozen=True, slots=True)
class ScoreAware:
    """The weighted sum with weights times max(floor, variance / 0.1), brought back to their sum."""

    keyword: float = 0.4
    """Weight of the keyword score, divided by the best one."""
    semantic: float = 0.6
    """Weight of the cosine."""
    graph: float = 0.2
    """Weight of what links lead to, divided by the best one."""
    code: float = 0.2
    """Weight of the score in code, divided by the best one."""
    floor: float = 0.1
    """What is left of the weight of a list whose scores are all the same."""
    variance: float = 0.1
    """From this variance of its scores on, a list has its whole weight and more."""

    def __post_init__(self) -> None:
        demand_weights("search.score_aware", weights_of(self))
        if not 0 < self.floor <= 1:
            raise SettingsError(
                f"search.score_aware.floor must be above 0 and at most 1, but is {self.floor}"
            )
        if not 0 < self.variance <= 1:
            raise SettingsError(
                f"search.score_aware.variance must be above 0 and at most 1, but is {self.variance}"
            )

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        scores = {name: on_one_scale(name, hits) for name, hits in lists.items() if hits}
        own = weights_of(self)
        clear = {
            name: max(self.floor, pvariance(each.values()) / self.variance)
            for name, each in scores.items()
        }
        share = shares({name: own[name] for name in scores}, query.weights, clear, total=1.0)
        sums = summed(scores, share)
        return best_first(
            hit.rescored(min(1.0, sums[id]), by="score_aware")
            for id, hit in together(lists.values()).items()
        )
