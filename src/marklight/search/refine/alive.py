"""Leave out what is no longer on the disk, whatever the index still knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hits, Query
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class Alive:
    """Keeps hits whose file exists."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        # All of them, whatever is asked for: a later stage may lift any to the front.
        documents = {hit.chunk.document for hit in hits}
        alive = {document for document in documents if tools.exists(document)}
        return tuple(hit for hit in hits if hit.chunk.document in alive)
