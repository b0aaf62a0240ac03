"""Classify a query as factual, navigational or exploratory, and weight the retriever that suits it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated

from marklight.ports import Tools
from marklight.query import Query
from marklight.settings import ABOVE_ZERO, Within
from marklight.text import navigational_words

MAX_FACTOR = 100
"""Bound of the settings. Hand-set; not measured."""

_FACTUAL = re.compile(r"[a-z][A-Z]|\w_\w|`[^`]+`|\bv\d|\b\d+\.\d+|\"[^\"]+\"")
"""Identifiers, code, versions, decimal numbers and quoted phrases."""
_RETRIEVERS = {"factual": "keyword", "exploratory": "semantic"}
"""Retrievers that suit a kind of query; a navigational one suits both."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Classify the query as factual, navigational or exploratory (first match wins) and give the matching search more weight.

    A fusion multiplies its weights by these factors and rescales them to their old sum.
    """

    factual: Annotated[float, Within(ABOVE_ZERO, MAX_FACTOR)] = 1.5  # hand-set; not measured
    """Multiplies the weight of keyword search for identifiers, versions, code and quoted phrases."""
    exploratory: Annotated[float, Within(ABOVE_ZERO, MAX_FACTOR)] = 1.3  # hand-set; not measured
    """Multiplies the weight of semantic search for every other query."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        kind = "factual" if query.filters.phrases else query_kind(query.text)
        weights = {_RETRIEVERS[kind]: getattr(self, kind)} if kind in _RETRIEVERS else {}
        return replace(query, kind=kind, weights=weights)


def query_kind(text: str) -> str:
    """Return the kind of a query by its surface form."""
    if _FACTUAL.search(text):
        return "factual"
    if _navigational_pattern().search(text):
        return "navigational"
    return "exploratory"


@cache
def _navigational_pattern() -> re.Pattern[str]:
    words = "|".join(f"{word}s?" for word in navigational_words())
    return re.compile(rf"\b(?:{words})\b|\[\[[^\[\]\n]{{1,300}}\]\]", re.IGNORECASE)
