"""Leave out what is no longer on the disk, whatever the index still knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hit, Hits, Query
from marklight.model import DocumentId
from marklight.ports import Tools


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Keeps hits whose file exists; what spoke for the others speaks for none of these."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        # All of them, whatever is asked for: a later stage may lift any to the front.
        documents = {hit.chunk.document for hit in hits}
        gone = {document for document in documents if not tools.exists(document)}
        if not gone:
            return hits
        best: dict[DocumentId, float] = {}
        for hit in hits:
            if (id := hit.chunk.document) in gone:
                best[id] = max(best.get(id, 0.0), hit.score)
        return tuple(
            _without(hit, sum(best.values())) for hit in hits if hit.chunk.document not in gone
        )


def _without(hit: Hit, lost: float) -> Hit:
    """That there is an answer at all was also said of what is gone: so much is left of it."""
    left = (
        why._replace(value=max(0.0, why.value - lost)) if why.stage == "answer" else why
        for why in hit.why
    )
    return Hit(hit.chunk, hit.score, tuple(left))
