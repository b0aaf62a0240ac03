"""Find passages that hold the question's words, rare words and strong fields first."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import FIELD_BOOSTS, Tools
from marklight.search.retrieve import candidates, demand_depth
from marklight.text import query_terms


@dataclass(frozen=True, slots=True)
class Keyword:
    """BM25 over title, headings, frontmatter and body, each with its own weight."""

    depth: int = 2
    """Candidates for each result asked for."""
    least: int = 20
    """Candidates fetched at the least, so that fusion sees where the lists meet."""

    def __post_init__(self) -> None:
        demand_depth(self.depth, self.least)

    def __call__(self, query: Query, tools: Tools) -> Hits:
        words = query_terms(*query.spellings)
        if not words:
            return ()
        limit = candidates(query, self.depth, self.least)
        found = tools.snapshot.lexical.search(words, FIELD_BOOSTS, query.filters, limit)
        return tools.hits(found, by="keyword")
