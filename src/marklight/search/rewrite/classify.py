"""Tell what sort of question it is, so that the retriever that suits it best counts most."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from marklight.answer import Query
from marklight.ports import Tools
from marklight.settings import ABOVE_ZERO, demand_within

_FACTUAL = re.compile(r"[a-z][A-Z]|\w_\w|`[^`]+`|\bv\d|\b\d+\.\d+|\"[^\"]+\"")
_NAVIGATIONAL = re.compile(
    r"\b(?:sections?|chapters?|guides?|tutorials?|docs?|documentation)\b|\[\[[^\[\]\n]{1,300}\]\]",
    re.IGNORECASE,
)

_SUITS = {"factual": "keyword", "navigational": "graph", "exploratory": "semantic"}


@dataclass(frozen=True, slots=True)
class Classify:
    """Factual, navigational or exploratory; the first that fits, in this order.

    A fusion multiplies its weights by these and brings them back to their old sum.
    """

    factual: float = 1.5
    """How much more keyword search counts for names, versions, code and quoted phrases."""
    navigational: float = 1.5
    """How much more links count where the question names a guide, a section, a `[[page]]`."""
    exploratory: float = 1.3
    """How much more search by meaning counts for every other question."""

    def __post_init__(self) -> None:
        more = (ABOVE_ZERO, 100)
        demand_within("search.classify", self, factual=more, navigational=more, exploratory=more)

    def __call__(self, query: Query, tools: Tools) -> Query:
        kind = "factual" if query.filters.phrases else kind_of(query.text)
        return replace(query, kind=kind, weights={_SUITS[kind]: getattr(self, kind)})


def kind_of(text: str) -> str:
    """Names and quoted phrases are factual, places in documents navigational, all else exploratory."""
    if _FACTUAL.search(text):
        return "factual"
    if _NAVIGATIONAL.search(text):
        return "navigational"
    return "exploratory"
