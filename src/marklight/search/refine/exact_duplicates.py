"""Drop exact duplicates: of passages with the same text the best one is kept."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.duplicates import distinct


@dataclass(frozen=True, slots=True)
class ExactDuplicates:
    """Keep one of the passages whose texts differ in white space only."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        return tuple(hits[index] for index in distinct([hit.chunk.text for hit in hits]))
