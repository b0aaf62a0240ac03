"""Take filters out of the question: phrases in quotes, -without, tag:x, path:docs/**, after:2026-01."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Query
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class Operators:
    """Everything that is not such a word is plain text, whatever signs it holds."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        return query
