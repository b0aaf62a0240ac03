"""Return whole sections in place of the passages found in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from marklight.answer import Hit, Hits, Query, best_first
from marklight.ports import Tools
from marklight.search.widen import Leaves, parent


@dataclass(frozen=True, slots=True)
class Parents:
    """Each section once, with the score of its best passage; only where the asker wants sections."""

    invents: ClassVar[bool] = True
    """What it returns is called by the section's id."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.parents:
            return hits
        leaves = Leaves(tools.snapshot)
        found: dict[str, Hit] = {}
        for hit in hits:
            section = parent(hit.chunk, leaves)
            found.setdefault(section.id, replace(hit, chunk=section))
        return best_first(found.values())
