"""Retrieve passages by the identifiers in their code blocks, whole or split (BM25)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.retrieve import MAX_CANDIDATES, MAX_PER_RESULT
from marklight.settings import Within
from marklight.text import code_terms


@dataclass(frozen=True, slots=True)
class Code:
    """BM25 over the terms of code, where `getUserById` matches `get_user_by_id`."""

    candidates_per_result: Annotated[int, Within(1, MAX_PER_RESULT)] = 2  # hand-set; not measured
    """Number of candidates to fetch per requested result."""
    min_candidates: Annotated[int, Within(1, MAX_CANDIDATES)] = 30  # hand-set; not measured
    """Minimum number of candidates to fetch."""

    def __call__(self, query: Query, tools: Tools) -> Hits:
        terms = code_terms(query.text)
        if not terms:
            return ()
        limit = query.candidate_count(self.candidates_per_result, self.min_candidates)
        candidates = tools.snapshot.lexical.search_code(terms, query.filters, limit)
        return tools.hits(candidates, by="code")
