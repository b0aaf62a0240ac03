"""Show each text once: of passages with the very same words the best one stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from marklight.answer import Hit, Hits, Query
from marklight.ports import Tools

_WORDS = 12
"""Words by which texts are told apart before they are compared whole."""


@dataclass(frozen=True, slots=True)
class SameText:
    """Exact duplicates, but for white space, by their content."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        starts = [tuple(hit.chunk.text.split(None, _WORDS)[:_WORDS]) for hit in hits]
        shared = Counter(starts)
        first: dict[object, Hit] = {}
        for hit, start in zip(hits, starts, strict=True):
            # Most begin like no other, and need not be looked at further.
            alone = shared[start] == 1
            first.setdefault(start if alone else " ".join(hit.chunk.text.split()), hit)
        return tuple(first.values())
