"""Replace passages by the sections that contain them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from marklight.answer import Hit, Hits, Query, best_first
from marklight.ports import Tools
from marklight.search.context import OpenDocuments, parent_passage


@dataclass(frozen=True, slots=True)
class Parents:
    """Return each section once, with the score of its best passage; only with `--parents`."""

    adds_passages: ClassVar[bool] = True
    """Returns passages with the ids of sections."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.parents:
            return hits
        documents = OpenDocuments(tools.snapshot)
        sections: dict[str, Hit] = {}
        for hit in hits:
            section = parent_passage(hit.chunk, documents)
            sections.setdefault(section.id, replace(hit, chunk=section))
        return best_first(sections.values())
