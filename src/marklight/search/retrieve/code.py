"""Find passages whose code blocks hold the names in the question, whole or in their parts."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.retrieve import candidates, demand_depth
from marklight.text import code_terms


@dataclass(frozen=True, slots=True)
class Code:
    """BM25 over the words of code, where `getUserById` meets `get_user_by_id`."""

    depth: int = 2
    """Candidates for each result asked for."""
    least: int = 30
    """Candidates fetched at the least."""

    def __post_init__(self) -> None:
        demand_depth(self.depth, self.least)

    def __call__(self, query: Query, tools: Tools) -> Hits:
        names = code_terms(query.text)
        if not names:
            return ()
        limit = candidates(query, self.depth, self.least)
        found = tools.snapshot.lexical.search_code(names, query.filters, limit)
        return tools.hits(found, by="code")
