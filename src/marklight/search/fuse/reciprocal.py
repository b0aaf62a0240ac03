"""Fuse lists by rank alone: reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from marklight.answer import Hits, Query, Why, best_first
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.search.shares import RETRIEVERS, merged, shares
from marklight.settings import demand_within


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """Sum of weight / (k + rank) over the lists that found something, divided by the most it could be."""

    k: float = 60.0
    """How little the very first ranks stand out."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """By retriever; 1 where none is given."""

    def __post_init__(self) -> None:
        demand_within("search.reciprocal", self, k=(0, 1_000_000))
        for name in self.weights:
            if name not in RETRIEVERS:
                raise SettingsError(
                    f"search.reciprocal.weights names an unknown retriever {name!r}",
                    f"Known: {', '.join(RETRIEVERS)}",
                )
        if not all(0 < weight < 1e6 for weight in self.weights.values()):
            raise SettingsError("search.reciprocal.weights must be positive")

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        found = {name: hits for name, hits in lists.items() if hits}
        weights = {name: self.weights.get(name, 1.0) for name in found}
        whole = sum(weights.values())
        share = shares(weights, query.weights, total=whole)
        sums: dict[str, float] = {}
        for name, hits in found.items():
            for rank, hit in enumerate(hits, 1):
                sums[hit.chunk.id] = sums.get(hit.chunk.id, 0.0) + share[name] / (self.k + rank)
        most = whole / (self.k + 1)
        return best_first(
            replace(
                hit, score=min(1.0, sums[id] / most), why=(*hit.why, Why("reciprocal", sums[id]))
            )
            for id, hit in merged(found.values()).items()
        )
