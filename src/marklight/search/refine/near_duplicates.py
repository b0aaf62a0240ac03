"""Show nearly the same text once: the best of those that share most of their characters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.asked import Asked
from marklight.search.likeness import sketch
from marklight.settings import ABOVE_ZERO, demand_within
from marklight.text import normalize

_ROUNDING = 1e-6
"""What a product may lack of the whole number that it stands for."""


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Passages whose sets of three characters overlap by 0.7 or more (Jaccard).

    The best one stays, and each that has a word of the question which all before it lack.
    """

    overlap: float = 0.7
    """Share of their runs of three characters that two passages have in common, of all that either has."""

    def __post_init__(self) -> None:
        demand_within("search.near_duplicates", self, overlap=(ABOVE_ZERO, 1))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if len(hits) < 2:
            return hits
        import numpy as np

        known = sketch([normalize(hit.chunk.text) for hit in hits])
        # Two sets that overlap by j differ in 1 - j of all that either holds, and that is at most
        # the size of either one / j: nearly all pairs are told apart by their sketches alone. No set
        # is larger than its text is long; how large it is need be known of few.
        longest = np.array([len(each) for each in known.runs])
        differing = known.differing
        near = differing <= self._most(np.minimum(longest[:, None], longest))
        asked, dropped = Asked(query), set[int]()
        for worse, better in np.argwhere(np.tril(near, -1)).tolist():
            if worse in dropped or better in dropped:
                continue
            smaller = min(len(known.runs_of(worse)), len(known.runs_of(better)))
            if differing[worse, better] > self._most(smaller):
                continue
            if known.jaccard(worse, better) < self.overlap:
                continue
            others = (hits[at] for at in range(worse) if at not in dropped)
            if not asked.adds(hits[worse], to=chain((hits[better],), others)):
                dropped.add(worse)
        return tuple(hit for at, hit in enumerate(hits) if at not in dropped)

    def _most(self, size: Any) -> Any:
        """Runs in which two sets may differ, the smaller of which has so many."""
        return size * (1 / self.overlap - 1) + _ROUNDING
