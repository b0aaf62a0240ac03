"""Limit the number of passages per document."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Annotated

from marklight.answer import Hit, Hits, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.duplicates import QueryTerms
from marklight.settings import Within

VISIBLE_HITS = 5
"""Hits that are seen with the default limit: with more, a replaced passage would often not be shown."""
RARE_SHARE = 0.1
"""Share of the hits that contain a rare term, at most: that a common one is missing says little. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class PerDocument:
    """Keep the best passages of each document, up to a limit.

    If only a few documents match (for example, a diary kept in one file), a document's lowest-ranked kept passage
    gives way to one that contains a rare query term missing from all kept passages.
    """

    max_passages: Annotated[int, Within(1)] = 2
    """Maximum number of passages per document."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        counts: Counter[DocumentId] = Counter()
        kept: list[Hit] = []
        rest: list[Hit] = []
        for hit in hits:
            counts[hit.chunk.document] += 1
            (kept if counts[hit.chunk.document] <= self.max_passages else rest).append(hit)
        if rest and self.max_passages > 1 and len(kept) <= VISIBLE_HITS:
            kept = with_rare_term(kept, rest, QueryTerms(query))
        return tuple(kept)


def with_rare_term(kept: list[Hit], rest: list[Hit], terms: QueryTerms) -> list[Hit]:
    """Replace the last passage of a document by one with a rare query term that all kept ones lack."""
    missing = terms.missing(kept)
    if not missing:
        return kept
    every = (*kept, *rest)
    frequency = Counter(chain.from_iterable(map(terms.possible_in, every)))

    def rarest_term(hit: Hit) -> float:
        return min((frequency[term] for term in terms.possible_in(hit) & missing), default=inf)

    candidate = min(rest, key=rarest_term)
    rarity = rarest_term(candidate)
    if rarity > max(1, len(every) * RARE_SHARE):
        return kept
    *_, last = (hit for hit in kept if hit.chunk.document == candidate.chunk.document)
    others = [hit for hit in kept if hit is not last]
    only_in_last = terms.possible_in(last) & terms.missing(others)
    if any(frequency[term] <= rarity for term in only_in_last):
        return kept
    if not terms.occur(missing, candidate):
        return kept
    return list(best_first([*others, candidate]))
