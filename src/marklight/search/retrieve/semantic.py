"""Find passages whose meaning is near the question's, whatever words they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marklight.answer import Hits, Query
from marklight.ports import Embedder, Tools
from marklight.search.retrieve import candidates, demand_depth
from marklight.settings import demand_within
from marklight.text import query_terms

if TYPE_CHECKING:
    from marklight.model import Vector


@dataclass(frozen=True, slots=True)
class Semantic:
    """Cosine between the question's vector and every passage's; of very many, with the likely ones.

    A hypothesis is a passage that the asker would like to find, so it is embedded as one.
    """

    depth: int = 2
    """Candidates for each result asked for."""
    least: int = 20
    """Candidates fetched at the least, so that fusion sees where the lists meet."""
    expansion: float = 0.3
    """Weight of the words that were added, all together, where each word of the question has 1."""

    def __post_init__(self) -> None:
        demand_depth(self.depth, self.least)
        demand_within("search.semantic", self, expansion=(0, 1))

    def __call__(self, query: Query, tools: Tools) -> Hits:
        embedder = tools.embedder
        if embedder is None:
            return ()
        limit = candidates(query, self.depth, self.least)
        vector = self._aim(query, embedder, tools)
        found = tools.snapshot.vectors.search(vector, embedder.fingerprint, query.filters, limit)
        return tools.hits(found, by="semantic")

    def _aim(self, query: Query, embedder: Embedder, tools: Tools) -> Vector:
        """What is searched for: engines compare directions, so a sum need not have length one."""
        vector: Vector
        if query.hypothesis:
            vector = embedder.embed_passages([query.hypothesis])[0]
            return vector
        vector = embedder.embed_query(query.text)
        if not query.expanded_with or not self.expansion:
            return vector
        added = tools.snapshot.vocabulary.term_vectors(
            embedder.fingerprint, list(query.expanded_with)
        )
        # The longer a question is the better it says itself what it means: the same weight for
        # any length costs twice as much of nDCG@10 on the Kubernetes pages (.779, .777, .773).
        share = self.expansion / max(1, len(query_terms(query.text)))
        for each in added.values():
            vector = vector + share / len(added) * each
        return vector
