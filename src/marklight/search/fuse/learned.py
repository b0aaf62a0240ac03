"""Fuse lists with a linear model over features and calibrated probabilities; weights learned from judged queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.probability import score_candidates


@dataclass(frozen=True, slots=True)
class Learned:
    """Weighted features rank passages; a softmax and logistic curves turn the sums into probabilities.

    The score is the probability that the library contains an answer, times the probability that this
    passage is relevant if it does. It is calibrated: of results with 0.8, about eight of ten are relevant.
    """

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        candidates = score_candidates(lists, query, tools)
        return candidates.ranked(query.factors) if candidates else ()
