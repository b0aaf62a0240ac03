"""Fuse lists by their scores, and trust a list less the flatter it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marklight.answer import Hits, Query, best_first, together
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class ScoreAware:
    """Weights times max(floor, variance / 0.1), brought back to their old sum."""

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        return best_first(
            hit.rescored(min(1.0, max(0.0, hit.score)), by="score_aware")
            for hit in together(lists.values()).values()
        )
