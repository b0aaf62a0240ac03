"""Lift what belongs to the best hits by its links."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.search.lift import lift


@dataclass(frozen=True, slots=True)
class Community:
    """Documents in the community of the best hits times 1.1, none above 1.

    A document that stands alone among the hits is not lifted: belonging takes two.
    """

    boost: float = 1.1
    """1 switches it off."""
    best: int = 3
    """Hits, from the first, whose communities count."""

    def __post_init__(self) -> None:
        if not 1 <= self.boost <= 10:
            raise SettingsError(f"search.community.boost must be 1 to 10, but is {self.boost}")
        if self.best < 1:
            raise SettingsError(f"search.community.best must be at least 1, but is {self.best}")

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if self.boost == 1:
            return hits
        known = tools.reader.communities({hit.chunk.document for hit in hits})
        members = Counter(known.values())
        leading = {hit.chunk.document for hit in hits[: self.best]}
        lifting = {group for id, group in known.items() if id in leading and members[group] > 1}
        factors = {id: self.boost for id, group in known.items() if group in lifting}
        return lift(hits, factors, by="community")
