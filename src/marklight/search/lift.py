"""Some documents above others, without a score that reaches 1 and without making equals of any."""

from __future__ import annotations

from collections.abc import Mapping

from marklight.answer import Hits, best_first
from marklight.model import DocumentId


def lift(hits: Hits, factors: Mapping[DocumentId, float], by: str) -> Hits:
    """Scores of these documents times their factors, best first.

    Where all are lifted alike none is: a score says how likely a hit is, and a folder that was copied
    yesterday makes nothing likelier.
    """
    if len({factors.get(hit.chunk.document, 1.0) for hit in hits}) < 2:
        return best_first(hits)
    lifted = [(hit, likelier(hit.score, factors.get(hit.chunk.document, 1.0))) for hit in hits]
    return best_first(
        hit if score == hit.score else hit.rescored(score, by) for hit, score in lifted
    )


def likelier(score: float, factor: float) -> float:
    """A score times a factor, or what it lacks of 1 divided by it, whichever lifts less."""
    return min(score * factor, 1 - (1 - score) / factor) if factor > 1 else score * factor
