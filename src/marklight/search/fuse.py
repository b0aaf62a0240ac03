"""Fusion stages: merge the candidates of several retrievers into one ranked list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from marklight.answer import Hits, best_first
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.probability import score_candidates
from marklight.search.score_normalization import (
    RETRIEVERS,
    check_weights,
    inputs_by_passage,
    merge_lists,
    normalized_scores,
    normalized_weights,
    retriever_weights,
    sum_formula,
    weighted_sums,
    with_missing_cosines,
)
from marklight.settings import ABOVE_ZERO, Within


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """0.4 × (keyword score / highest keyword score) + 0.6 × cosine, plus link and code scores if there are any.

    Unlike ranks, scores preserve how far apart results are; over the eight development
    sets the nDCG@10 is about that of rank fusion all the same (.734 and .738). The weights of the lists with
    candidates are scaled to a sum of 1, so that a library without vectors is scored on the same scale.
    """

    keyword: Annotated[float, Within(0, 1)] = 0.4
    """Weight of the keyword score, divided by the best one."""
    semantic: Annotated[float, Within(0, 1)] = 0.6
    """Weight of the cosine."""
    graph: Annotated[float, Within(0, 1)] = 0.2
    """Weight of the link score, which is a share of the best keyword score."""
    code: Annotated[float, Within(0, 1)] = 0.2
    """Weight of the score in code, divided by the best one."""

    def __post_init__(self) -> None:
        check_weights("search.weighted_sum", retriever_weights(self))

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        scores = normalized_scores(lists)
        own = retriever_weights(self)
        weights = normalized_weights(
            {name: own[name] for name in scores}, query.weights, query.factors, total=1.0
        )
        sums, inputs = weighted_sums(scores, weights), inputs_by_passage(scores)
        return best_first(
            hit.rescored(
                min(1.0, sums[id]),
                "weighted_sum",
                f"min(1, {sum_formula(inputs[id], weights)})",
                **inputs[id],
            )
            for id, hit in merge_lists(lists.values()).items()
        )


MAX_WEIGHT = 1e6
"""Keeps sums finite."""


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """Sum of weight / (k + rank) over the lists with candidates, divided by the highest possible sum."""

    k: Annotated[float, Within(0, 1_000_000)] = 60.0
    """Smoothing constant; higher values reduce the advantage of top ranks."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights by retriever; 1 where none is given."""

    def __post_init__(self) -> None:
        for name in self.weights:
            if name not in RETRIEVERS:
                raise SettingsError(
                    f"Unknown retriever in search.reciprocal.weights: {name!r}",
                    f"Known: {', '.join(RETRIEVERS)}",
                )
        if not all(0 < weight < MAX_WEIGHT for weight in self.weights.values()):
            raise SettingsError("search.reciprocal.weights must be positive")

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        candidates = {name: hits for name, hits in lists.items() if hits}
        own = {name: self.weights.get(name, 1.0) for name in candidates}
        total = sum(own.values())
        weights = normalized_weights(own, query.weights, query.factors, total=total)
        sums: dict[str, float] = {}
        terms: dict[str, list[str]] = {}
        for name, hits in candidates.items():
            for rank, hit in enumerate(hits, 1):
                id = hit.chunk.id
                sums[id] = sums.get(id, 0.0) + weights[name] / (self.k + rank)
                terms.setdefault(id, []).append(f"{weights[name]:.6g} / ({self.k:.6g} + {rank})")
        highest = total / (self.k + 1)
        return best_first(
            replace(hit, rank_sum=sums[id]).rescored(
                min(1.0, sums[id] / highest),
                "reciprocal",
                f"min(1, ({' + '.join(terms[id])}) / highest)",
                highest=highest,
            )
            for id, hit in merge_lists(candidates.values()).items()
        )


MIN_SHARE = 0.25
"""Share of the best score that the worst hit keeps, so that in a small library the third of three is not
dropped for being far behind the first. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class ScoreAware:
    """A weighted sum with weights × max(floor, variance / 0.1), scaled back to their sum.

    Cosines are stretched before they are added to other scores: a model places all of them close together
    (.69 to .86 on the Kubernetes pages), so that unstretched the keyword scores decide alone. Over the eight
    development sets, on which it was also chosen, the pipeline has an nDCG@10 of .754 with it and of .734 with
    the plain weighted sum. The best hit keeps its unstretched score; the others follow below it.
    """

    keyword: Annotated[float, Within(0, 1)] = 0.4
    """Weight of the keyword score, divided by the best one."""
    semantic: Annotated[float, Within(0, 1)] = 0.6
    """Weight of the stretched cosine."""
    graph: Annotated[float, Within(0, 1)] = 0.2
    """Weight of the link score, which is a share of the best keyword score."""
    code: Annotated[float, Within(0, 1)] = 0.2
    """Weight of the score in code, divided by the best one."""
    span: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.15
    """A cosine this far below the best counts as 0, if other lists have candidates."""
    floor: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.1
    """Minimum factor on a list's weight, used if all its scores are equal."""
    variance: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.1
    """Variance of scores at which a list has its full weight; above it, more."""
    compared: Annotated[int, Within(2, 1000)] = 10
    """Number of top scores used to compute the variance."""

    def __post_init__(self) -> None:
        check_weights("search.score_aware", retriever_weights(self))

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        lists = with_missing_cosines(lists, query, tools)
        plain = normalized_scores(lists)
        scores = dict(plain)
        if stretch := "semantic" in plain and len(plain) > 1:
            scores["semantic"] = _stretched(plain["semantic"], self.span)
        own = retriever_weights(self)
        weights = normalized_weights(
            {name: own[name] for name in plain},
            query.weights,
            query.factors,
            {name: self._discrimination(name, by_id) for name, by_id in scores.items()},
            total=1.0,
        )
        sums, inputs = weighted_sums(scores, weights), inputs_by_passage(scores)
        rescaling: dict[str, float] = {}
        if stretch:
            rescaling = {
                "best": max(weighted_sums(plain, weights).values()),
                "highest": max(sums.values()) or 1.0,
            }
        return best_first(
            hit.rescored(
                min(1.0, _rescaled(sums[id], **rescaling)),
                "score_aware",
                _formula(sum_formula(inputs[id], weights), stretch),
                **inputs[id],
                **rescaling,
            )
            for id, hit in merge_lists(lists.values()).items()
        )

    def _discrimination(self, name: str, scores: Mapping[str, float]) -> float:
        """Return the factor on the weight of a list: the higher, the more its scores vary."""
        best = sorted(scores.values(), reverse=True)[: self.compared]
        if name != "semantic":
            # A passage without any of the terms scores 0: the only one that has them stands out.
            best += [0.0] * (self.compared - len(best))
        return max(self.floor, _variance(best) / self.variance)


def _variance(values: Sequence[float]) -> float:
    # Not `statistics.pvariance`, which is many times slower.
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def _stretched(cosines: Mapping[str, float], span: float) -> dict[str, float]:
    """Map the best cosine to 1 and those a span or more below it to 0."""
    best = max(cosines.values())
    return {id: max(0.0, 1 - (best - cosine) / span) for id, cosine in cosines.items()}


def _rescaled(sum: float, best: float = 0.0, highest: float = 0.0) -> float:
    """Map the highest sum to the best unstretched score, and 0 to a share of that."""
    return best * (MIN_SHARE + (1 - MIN_SHARE) * sum / highest) if highest else sum


def _formula(terms: str, stretch: bool) -> str:
    if not stretch:
        return f"min(1, {terms})"
    return f"min(1, best × ({MIN_SHARE} + {1 - MIN_SHARE} × ({terms}) / highest))"


@dataclass(frozen=True, slots=True)
class Learned:
    """Weighted features rank passages; a softmax and logistic curves turn the sums into probabilities.

    The score is the probability that the library contains an answer, times the probability that this
    passage is relevant if it does. It is calibrated: of results with 0.8, about eight of ten are relevant.
    """

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        candidates = score_candidates(lists, query, tools)
        return candidates.ranked(query.factors) if candidates else ()
