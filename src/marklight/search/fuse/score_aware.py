"""Fuse lists by their scores, and trust a list less the flatter it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marklight.answer import Hits, Query, best_first
from marklight.ports import Tools
from marklight.search.shares import (
    completed,
    demand_weights,
    merged,
    on_one_scale,
    shares,
    summed,
    weights_of,
)
from marklight.settings import ABOVE_ZERO, demand_within

LEAST = 0.25
"""Part of the best score that the worst hit has, so that in a small library the third of three is
not left out for being far behind the first."""


@dataclass(frozen=True, slots=True)
class ScoreAware:
    """A weighted sum with weights times max(floor, variance / 0.1), brought back to their old sum.

    Before cosines meet another list they are stretched: a model puts all of them close together (.69
    to .86 on the Kubernetes pages), so that as they are the words decide alone. Over the eight
    development sets, on which it was also chosen, the whole pipeline has an nDCG@10 of .754 with it and
    of .734 with the plain weighted sum. The best hit has the score that it would have without that;
    the others stand below it.
    """

    keyword: float = 0.4
    """Weight of the keyword score, divided by the best one."""
    semantic: float = 0.6
    """Weight of the cosine, stretched."""
    graph: float = 0.2
    """Weight of what links lead to, whose score is a part of the best keyword score."""
    code: float = 0.2
    """Weight of the score in code, divided by the best one."""
    span: float = 0.15
    """A cosine this much below the best one counts nothing beside other lists."""
    floor: float = 0.1
    """What is left of the weight of a list whose scores are all the same."""
    variance: float = 0.1
    """From this variance of its scores on, a list has its whole weight and more."""
    compared: int = 10
    """How many of the best scores of a list are looked at: further down every list is flat."""

    def __post_init__(self) -> None:
        demand_weights("search.score_aware", weights_of(self))
        whole = (ABOVE_ZERO, 1)
        demand_within(
            "search.score_aware", self, span=whole, floor=whole, variance=whole, compared=(2, 1000)
        )

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        lists = completed(lists, query, tools)
        plain = on_one_scale(lists)
        fused = dict(plain)
        if stretched := "semantic" in plain and len(plain) > 1:
            fused["semantic"] = _stretched(plain["semantic"], self.span)
        own = weights_of(self)
        share = shares(
            {name: own[name] for name in plain},
            query.weights,
            {name: self._clearness(name, each) for name, each in fused.items()},
            total=1.0,
        )
        sums = summed(fused, share)
        if stretched:
            sums = _brought_back(sums, max(summed(plain, share).values()))
        return best_first(
            hit.rescored(min(1.0, sums[id]), by="score_aware")
            for id, hit in merged(lists.values()).items()
        )

    def _clearness(self, name: str, scores: Mapping[str, float]) -> float:
        best = sorted(scores.values(), reverse=True)[: self.compared]
        if name != "semantic":
            # What holds none of the words scores 0: the only passage that does stands out.
            best += [0.0] * (self.compared - len(best))
        return max(self.floor, _variance(best) / self.variance)


def _variance(values: Sequence[float]) -> float:
    # By hand: `statistics` loads decimals and fractions, which every command would wait for.
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def _stretched(cosines: Mapping[str, float], span: float) -> dict[str, float]:
    """1 for the best, 0 for what is a span or more below it."""
    best = max(cosines.values())
    return {id: max(0.0, 1 - (best - each) / span) for id, each in cosines.items()}


def _brought_back(sums: Mapping[str, float], best: float) -> dict[str, float]:
    """The same order, from the score that the best has without stretching down to a part of it."""
    most = max(sums.values()) or 1.0
    return {id: best * (LEAST + (1 - LEAST) * each / most) for id, each in sums.items()}
