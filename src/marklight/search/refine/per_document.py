"""Let no document crowd out the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from marklight.answer import Hit, Hits, Query
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.settings import demand_within


@dataclass(frozen=True, slots=True)
class PerDocument:
    """At most so many passages of one document, its best ones."""

    most: int = 2
    """Passages of one document in one answer."""

    def __post_init__(self) -> None:
        demand_within("search.per_document", self, most=(1, inf))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        taken: Counter[DocumentId] = Counter()
        kept: list[Hit] = []
        for hit in hits:
            taken[hit.chunk.document] += 1
            if taken[hit.chunk.document] <= self.most:
                kept.append(hit)
        return tuple(kept)
