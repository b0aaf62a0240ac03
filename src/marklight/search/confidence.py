"""Drop hits whose file no longer exists, improbable hits, and all hits where the answer probability is low (abstention)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from marklight.answer import Hit, Hits
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.features import filters_cover_query
from marklight.settings import Within
from marklight.text import ENGLISH


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


UNCALIBRATED = (
    "Scores are not calibrated for the language of this query, so unlikely results are shown too"
)
MOST = 0.5
"""Term coverage above which a passage has most of the query. For 14 broad queries about generated notes, 80 instead of 40
right documents are among ten results with it (`python -m benchmarks.everyday vault`)."""

TAIL = 0.005
"""Results that score lower are dropped; where the best score is less than twice this, those below half the best score. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Return nothing where the answer probability is low, else all hits above a small score.

    Passages with most of the query's terms are kept whatever their score: a page with the name of a person as its title
    leaves little probability to the other notes that mention that person.

    With the threshold, on sets that the weights were not learned from, 11 of 100 queries without an answer
    get results, most of them with low scores, and 1 of 1,000 with an answer gets none (docs/quality.md). Results are
    always returned for a query with a quoted phrase or with filters only.
    """

    threshold: Annotated[float, Within(0, 1)] = 0.3
    """If the answer probability is lower, no results are returned. `--min-confidence` replaces this check with a minimum score per result."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.min_confidence is not None:
            return tuple(hit for hit in hits if hit.score >= query.min_confidence)
        # A quoted phrase is a condition: passages that contain it are wanted at any distance in meaning.
        if query.filters.phrases or filters_cover_query(query):
            return hits
        if all(answer_probability(hit) < self.threshold for hit in hits):
            if not hits or _is_calibrated(query, tools):
                return ()
            tools.notify(UNCALIBRATED)
        lowest = min(TAIL, max(hit.score for hit in hits) / 2)
        return tuple(hit for hit in hits if hit.score >= lowest or hit.coverage > MOST)


def _is_calibrated(query: Query, tools: Tools) -> bool:
    """Return false for a query in another language than English that documents or the model know, or than all documents.

    Probabilities were learned from English queries. With their threshold half of 360 queries in six languages about
    English pages got no results, while the right page was among the best ten for 85 % (benchmarks/languages.py).
    """
    language = query.languages[0]
    if language == ENGLISH and tools.multilingual is None:
        return True
    of_documents = tools.snapshot.metadata.languages()
    if language == ENGLISH:
        return not of_documents or ENGLISH in of_documents
    is_known = tools.embedder is not None and language in tools.embedder.languages
    return not (is_known or language in of_documents)


def answer_probability(hit: Hit) -> float:
    """Return the probability of an answer, which is at least the hit's own score."""
    return max(hit.score, hit.answer_probability or hit.score)
