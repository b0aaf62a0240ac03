"""Merge exact duplicates: of passages with the same text the best one is kept."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.duplicates import equal_pairs, merge_pairs


@dataclass(frozen=True, slots=True)
class ExactDuplicates:
    """Merge passages whose texts differ in white space only; the best one is shown, the others are its `similar`.

    Documents with different titles, or with different query terms, are never merged.
    """

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.all:
            return hits
        return merge_pairs(query, hits, equal_pairs([hit.chunk.text for hit in hits]))
