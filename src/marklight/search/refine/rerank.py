"""Let a cross-encoder read the question together with each of the best hits."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class Rerank:
    """Scores of the best candidates by a model that sees both texts at once."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        return hits
