"""Find passages whose meaning is near the question's, whatever words they use."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.retrieve import demand_depth


@dataclass(frozen=True, slots=True)
class Semantic:
    """Cosine between the question's vector and every passage's, exact."""

    depth: int = 2
    """Candidates for each result asked for."""
    least: int = 50
    """Candidates fetched at the least, so that fusion sees where the lists meet."""

    def __post_init__(self) -> None:
        demand_depth(self.depth, self.least)

    def __call__(self, query: Query, tools: Tools) -> Hits:
        embedder = tools.embedder
        if embedder is None:
            return ()
        limit = max(self.least, self.depth * query.limit)
        vector = embedder.embed_query(query.text)
        found = tools.reader.semantic(vector, embedder.fingerprint, query.filters, limit)
        return tools.hits(found, by="semantic")
