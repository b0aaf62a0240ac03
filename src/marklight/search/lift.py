"""Some documents above others, without a score above 1 and without making equals of any."""

from __future__ import annotations

from collections.abc import Mapping

from marklight.answer import Hits, best_first
from marklight.model import DocumentId


def lift(hits: Hits, factors: Mapping[DocumentId, float], by: str) -> Hits:
    """Scores of these documents times their factors, best first and none above 1.

    Were those above 1 cut off there, all of them would be equals and their ids would decide. So all
    from 1 on share the room above the best of the others, in their order, and the first gets 1.
    """
    if all(factor == 1.0 for factor in factors.values()):
        return best_first(hits)
    raw = [(hit, hit.score * factors.get(hit.chunk.document, 1.0)) for hit in hits]
    top = max((score for _, score in raw), default=1.0)
    floor = max((score for _, score in raw if score < 1.0), default=0.0)

    def bounded(score: float) -> float:
        if score < 1.0 or top <= 1.0:
            return score
        return min(1.0, floor + (1.0 - floor) * (score - floor) / (top - floor))

    return best_first(
        hit if bounded(score) == hit.score else hit.rescored(bounded(score), by)
        for hit, score in raw
    )
