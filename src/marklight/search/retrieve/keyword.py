"""Retrieve passages by their terms: BM25 with field weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from marklight.answer import Hits, Query
from marklight.ports import BOILERPLATE, FIELD_BOOSTS, Tools
from marklight.search.retrieve import MAX_CANDIDATES, MAX_PER_RESULT
from marklight.settings import Within
from marklight.text import query_terms

QUOTED_BOOSTS = {**FIELD_BOOSTS, BOILERPLATE: 1.0}
"""Fields and weights where the query has a quoted phrase: boilerplate is found by quoting it."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """BM25 over title, headings, frontmatter and body, each with its own weight."""

    candidates_per_result: Annotated[int, Within(1, MAX_PER_RESULT)] = 2  # hand-set; not measured
    """Number of candidates to fetch per requested result."""
    min_candidates: Annotated[int, Within(1, MAX_CANDIDATES)] = 50
    """Minimum number of candidates to fetch, so that the lists to fuse overlap."""

    def __call__(self, query: Query, tools: Tools) -> Hits:
        terms = query_terms(*query.spellings, languages=query.languages)
        if not terms:
            return ()
        limit = query.candidate_count(self.candidates_per_result, self.min_candidates)
        boosts = QUOTED_BOOSTS if query.filters.has_phrases else FIELD_BOOSTS
        candidates = tools.snapshot.lexical.search(terms, boosts, query.filters, limit)
        return tools.hits(candidates, by="keyword")
