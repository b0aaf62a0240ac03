"""Leave out what is no longer on the disk, whatever the index still knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.front import thinned


@dataclass(frozen=True, slots=True)
class Alive:
    """Keeps hits whose file exists."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        return thinned(hits, query.limit, lambda some: _there(some, tools))


def _there(hits: Hits, tools: Tools) -> Hits:
    documents = {hit.chunk.document for hit in hits}
    alive = {document for document in documents if tools.exists(document)}
    return tuple(hit for hit in hits if hit.chunk.document in alive)
