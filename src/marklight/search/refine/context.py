"""Show more of the document around each hit."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class Context:
    """Neighbours on both sides, or the whole section, as the asker wants."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        return hits
