"""Leave out what is too unlikely: fewer or no results rather than noise."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.answer import Hit, Hits, Query
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.search.filters import filters_cover_query
from marklight.settings import demand_within

_SEVERAL = 3
"""Documents that answer a broad question, where so many do. Of the 400 commonest words of
FastAPI's pages 32 were else answered from one or two, as a page that is named so leaves others no likelihood."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Nothing where an answer is unlikely, else all hits that are likely at all.

    What holds the question as it is typed is shown from up to three documents, however unlikely the others are.

    With the threshold, on sets that the scores were not learned from, 3 of 100 questions that nothing
    answers are answered, and 1 of 100 that something answers is not (docs/quality.md). A caller's own
    `--min-confidence` is asked of every hit. Who asks for a phrase in quotes, or for nothing but a tag
    or another field, is answered by whatever has it.
    """

    threshold: float = 0.3
    """Where an answer is less likely than this nothing is said; `--min-confidence` is for one search."""
    tail: float = 0.005
    """Lower scores are left out; where many share an answer and all are lower, those below half of the best."""

    def __post_init__(self) -> None:
        demand_within("search.confidence", self, threshold=(0, 1), tail=(0, 1))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.min_confidence is not None:
            return tuple(hit for hit in hits if hit.score >= query.min_confidence)
        # Who quotes a phrase beside other words wants what holds it, however far its meaning is.
        if query.filters.phrases or filters_cover_query(query):
            return hits
        if all(answered(hit) < self.threshold for hit in hits):
            return ()
        least = min(self.tail, max(hit.score for hit in hits) / 2)
        kept: list[Hit] = []
        documents: set[DocumentId] = set()
        for hit in hits:
            new = len(documents) < _SEVERAL and hit.chunk.document not in documents
            if hit.score >= least or (new and literal(hit)):
                kept.append(hit)
                documents.add(hit.chunk.document)
        return tuple(kept)


def answered(hit: Hit) -> float:
    """How likely it is that there is an answer at all; at least as likely as that this is one."""
    return max([hit.score, *(why.value for why in hit.why if why.stage == "answer")])


def literal(hit: Hit) -> bool:
    """Whether it holds the question as it is typed."""
    return any(why.stage == "literal" for why in hit.why)
