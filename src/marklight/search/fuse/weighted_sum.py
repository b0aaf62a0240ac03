"""Fuse lists by a weighted sum of normalized scores: keyword scores by their maximum, cosines unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits, Query, best_first
from marklight.ports import Tools
from marklight.search.score_normalization import (
    check_weights,
    inputs_by_passage,
    merge_lists,
    normalized_scores,
    normalized_weights,
    retriever_weights,
    sum_formula,
    weighted_sums,
)
from marklight.settings import Within


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
