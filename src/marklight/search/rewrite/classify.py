"""Tell what sort of question it is, so that the retriever that suits it best counts most."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from marklight.answer import Query
from marklight.ports import Tools

_FACTUAL = re.compile(
    r"[a-z][A-Z]|\w_\w|`[^`]+`|\bv?\d+\.\d+|\"[^\"]+\"",
)
_NAVIGATIONAL = re.compile(
    r"\b(?:sections?|chapters?|guides?|tutorials?|docs?|documentation)\b|\[\[[^\]]+\]\]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Classify:
    """Factual, navigational or exploratory; the first that fits, in this order."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        return replace(query, kind=kind_of(query.text))


def kind_of(text: str) -> str:
    """Names and quoted phrases are factual, places in documents navigational, all else exploratory."""
    if _FACTUAL.search(text):
        return "factual"
    if _NAVIGATIONAL.search(text):
        return "navigational"
    return "exploratory"
