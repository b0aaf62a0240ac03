"""Show what says the same in other words once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.asked import Asked
from marklight.settings import ABOVE_ZERO, demand_within


@dataclass(frozen=True, slots=True)
class SemanticDuplicates:
    """Passages whose vectors are nearer than this: the best one stays, and each that has a word of
    the question which all before it lack.

    0.85 is no measure of sameness with the default model: two passages of one chapter
    reach it easily. On 150 questions about the Kubernetes pages it cost .026 nDCG@10 (.719 against
    .745 without the stage) and 5 of 100 answers among the first ten; 0.95 costs .001 and none.
    """

    cosine: float = 0.95
    """From which nearness on two passages say the same; 1 keeps all."""

    def __post_init__(self) -> None:
        demand_within("search.semantic_duplicates", self, cosine=(ABOVE_ZERO, 1))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if tools.embedder is None or self.cosine == 1:
            return hits
        known = tools.snapshot.vectors.get(
            tools.embedder.fingerprint, [hit.chunk.id for hit in hits]
        )
        if len(known) < 2:
            return hits
        import numpy as np

        placed = [hit for hit in hits if hit.chunk.id in known]
        vectors = np.stack([known[hit.chunk.id] for hit in placed])
        near = np.tril(np.vecdot(vectors[:, None], vectors) >= self.cosine, -1)
        asked, dropped = Asked(query), set[int]()
        for worse, better in np.argwhere(near).tolist():
            if worse in dropped or better in dropped:
                continue
            others = (placed[at] for at in range(worse) if at not in dropped)
            if not asked.adds(placed[worse], to=chain((placed[better],), others)):
                dropped.add(worse)
        gone = {placed[at].chunk.id for at in dropped}
        return tuple(hit for hit in hits if hit.chunk.id not in gone)
