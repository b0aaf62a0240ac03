"""Show each text once: of passages with the very same words the best one stays."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.likeness import distinct


@dataclass(frozen=True, slots=True)
class ExactDuplicates:
    """Exact duplicates, but for white space, by their content."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        return tuple(hits[at] for at in distinct([hit.chunk.text for hit in hits]))
