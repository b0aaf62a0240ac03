"""Drop hits whose file no longer exists, though the index still has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marklight.answer import Hit, Hits
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Keep hits whose file exists, and subtract the probabilities of the others from the answer probability."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        # All hits, whatever the limit: a later stage may move any of them to the front.
        documents = {hit.chunk.document for hit in hits}
        missing = {document for document in documents if not tools.exists(document)}
        if not missing:
            return hits
        best: dict[DocumentId, float] = {}
        for hit in hits:
            if (id := hit.chunk.document) in missing:
                best[id] = max(best.get(id, 0.0), hit.score)
        lost = sum(best.values())
        return tuple(_reduced(hit, lost) for hit in hits if hit.chunk.document not in missing)


def _reduced(hit: Hit, lost: float) -> Hit:
    if hit.answer_probability is None:
        return hit
    return replace(hit, answer_probability=max(0.0, hit.answer_probability - lost))
