"""Let no document crowd out the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from math import inf

from marklight.answer import Hit, Hits, Query, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.search.asked import Asked
from marklight.settings import demand_within

_SEEN = 5
"""Hits that are seen whatever is asked for: what comes further behind is often not even shown."""
_RARE = 0.1
"""Of the hits, those that a rare word stands in at most: that `get` is missing tells nothing."""


@dataclass(frozen=True, slots=True)
class PerDocument:
    """At most so many passages of one document, its best ones.

    Where so few documents answer that all is seen, as with a diary in one file, the last of these gives
    way to one with a rare word of the question that all of them lack.
    """

    most: int = 2
    """Passages of one document in one answer."""

    def __post_init__(self) -> None:
        demand_within("search.per_document", self, most=(1, inf))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        taken: Counter[DocumentId] = Counter()
        kept: list[Hit] = []
        beyond: list[Hit] = []
        for hit in hits:
            taken[hit.chunk.document] += 1
            (kept if taken[hit.chunk.document] <= self.most else beyond).append(hit)
        if beyond and self.most > 1 and len(kept) <= _SEEN:
            kept = with_rare_word(kept, beyond, Asked(query))
        return tuple(kept)


def with_rare_word(kept: list[Hit], beyond: list[Hit], asked: Asked) -> list[Hit]:
    """Hits of which the last of a document made way for one with a rare word that all lack."""
    lacking = asked.lacking(kept)
    if not lacking:
        return kept
    every = (*kept, *beyond)
    held_by = Counter(chain.from_iterable(map(asked.seeming, every)))

    def rarity(hit: Hit) -> float:
        return min((held_by[word] for word in asked.seeming(hit) & lacking), default=inf)

    rarest = min(beyond, key=rarity)
    few = rarity(rarest)
    if few > max(1, len(every) * _RARE):
        return kept
    *_, last = (hit for hit in kept if hit.chunk.document == rarest.chunk.document)
    others = [hit for hit in kept if hit is not last]
    own = asked.seeming(last) & asked.lacking(others)
    if any(held_by[word] <= few for word in own) or not asked.has(rarest, lacking):
        return kept
    return list(best_first([*others, rarest]))
