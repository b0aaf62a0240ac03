"""Merge near duplicates: passages with a high Jaccard similarity of their character trigrams (shingles)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from marklight.answer import Hit, Hits, Query
from marklight.ports import Tools
from marklight.search.duplicates import merge_pairs, signatures
from marklight.settings import ABOVE_ZERO, Within
from marklight.text import normalize

ROUNDING_ERROR = 1e-6
"""A product of floats may be this much below the integer that it represents."""


def _compared_text(hit: Hit) -> str:
    return hit.chunk.own_text if not hit.chunk.is_boilerplate else hit.chunk.text


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Merge passages whose trigram sets have a Jaccard similarity of 0.7 or more.

    The best one is shown, the others are its `similar`. Documents with different titles, or with different query terms, are
    never merged.
    """

    overlap: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.7
    """Minimum Jaccard similarity of two near duplicates; 1 keeps all that differ."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if len(hits) < 2 or query.all:
            return hits
        return merge_pairs(query, hits, self._near_pairs(hits))

    def _near_pairs(self, hits: Hits) -> Iterator[tuple[int, int]]:
        """Yield the indexes of each hit and of the better ones that it is a near duplicate of."""
        import numpy as np

        texts = signatures([normalize(_compared_text(hit)) for hit in hits])
        # Two sets with similarity j differ in 1 - j of their union, which is at most the size of either
        # one / j: the signatures alone rule out nearly all pairs. The length of a text is an upper bound
        # of the size of its set, which is computed for few.
        longest = np.array([len(trigrams) for trigrams in texts.trigrams])
        differing = texts.differing
        near = differing <= self._max_difference(np.minimum(longest[:, None], longest))
        for worse, better in np.argwhere(np.tril(near, -1)).tolist():
            smaller = min(len(texts.unique_trigrams(worse)), len(texts.unique_trigrams(better)))
            if differing[worse, better] > self._max_difference(smaller):
                continue
            if texts.jaccard(worse, better) >= self.overlap:
                yield worse, better

    def _max_difference(self, size: Any) -> Any:
        """Return the most trigrams in which near duplicates differ, given the size of the smaller set."""
        return size * (1 / self.overlap - 1) + ROUNDING_ERROR
