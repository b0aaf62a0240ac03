"""Fuse lists by rank: reciprocal rank fusion, RRF (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from marklight.answer import Hits, Query, best_first
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.search.score_normalization import RETRIEVERS, merge_lists, normalized_weights
from marklight.settings import Within

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
