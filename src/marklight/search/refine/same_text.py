"""Show each text once: of passages with the very same words the best one stays."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hit, Hits, Query
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class SameText:
    """Exact duplicates, but for white space, by their content."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        first: dict[str, Hit] = {}
        for hit in hits:
            first.setdefault(" ".join(hit.chunk.text.split()), hit)
        return tuple(first.values())
