"""THE SEARCH PIPELINE: the search pipeline as data (rewrite, retrieve, fuse, refine), and the loop that runs and times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from time import perf_counter
from typing import TypeVar

from marklight.answer import Hit, Hits, Ranking, Step, best_first, unlikely
from marklight.errors import ModelServerError
from marklight.lazy import dataclass
from marklight.ports import Fuse, Refine, Retrieve, Rewrite, ScoredChunk, Tools
from marklight.query import Mode, Query
from marklight.search.boosts import Community, CurrentCollection, Recency
from marklight.search.context import Context, Linked, Parents
from marklight.search.duplicates import (
    VISIBLE_HITS,
    Diversity,
    ExactDuplicates,
    NearDuplicates,
    PerDocument,
    SemanticDuplicates,
)
from marklight.search.exact import ExactName, ExactTitle
from marklight.search.features import POOL_SIZE
from marklight.search.fuse import Calibrate, Learned, Reciprocal, Rerank, ScoreAware, WeightedSum
from marklight.search.operators import (
    Operators,
    describe_filters,
    no_match_reason,
    passing_documents,
)
from marklight.search.probability import (
    Confidence,
    ExistingFiles,
    answer_probability,
    has_calibrated_scores,
    score_candidates,
    with_probabilities,
)
from marklight.search.retrieve import Code, Expand, Keyword, Semantic
from marklight.search.spelling import Spelling
from marklight.search.unrelated import medians, unrelated_queries
from marklight.text.analyzer import MAX_QUERY_WORDS

REWRITE: tuple[type[Rewrite], ...] = (Operators, Spelling, Expand)
RETRIEVE: tuple[type[Retrieve], ...] = (Semantic, Keyword, Code)
FUSE: tuple[type[Fuse], ...] = (WeightedSum, Reciprocal, ScoreAware, Learned)
REFINE: tuple[type[Refine], ...] = (
    *(ExistingFiles, Calibrate),
    *(CurrentCollection, Recency, Community, ExactTitle, ExactName, Confidence),
    *(ExactDuplicates, NearDuplicates, SemanticDuplicates, Diversity, PerDocument),
    *(Rerank, Linked, Parents, Context),
)

OFF = ("calibrate", "diversity")
"""Stages that run only if `search.use` names them; all others run unless `search.skip` does."""

RETRIEVERS_BY_MODE = {
    Mode.HYBRID: ("semantic", "keyword"),
    Mode.SEMANTIC: ("semantic",),
    Mode.KEYWORD: ("keyword",),
    Mode.CODE: ("code",),
}

PRESETS: Mapping[str, Mapping[str, float]] = {
    "api": {"keyword": 1.5},
    "notes": {},
    "papers": {"keyword": 1.5},
}
"""Factors on the weights of retrievers for kinds of documents. nDCG@10 with 1.5 for keywords against 1: Kubernetes +.005,
Vaswani +.010, SciFact +.004, Cranfield -.006; personal notes do best with 1."""

STATS = {
    "original_count": "fuse",
    "after_threshold": "confidence",
    "after_same_text": "exact_duplicates",
    "after_near_text": "near_duplicates",
    "after_same_meaning": "semantic_duplicates",
    "after_doc_limit": "per_document",
}
"""Keys of `stats`, each with the stage after which hits are counted; one that did not run has the count of the stage before."""

WITHOUT_TEXT = ("existing_files", "parents", "context")
"""Stages that refine the documents that pass the filters, where a query has no text."""

CANDIDATES_PER_RESULT = 4
"""Candidates that each retriever fetches per requested result. With 2, 5 of 67 queries about FastAPI's manual get fewer than ten
results, because of long pages; with 4, one does."""

TOO_LONG = f"Only the first {MAX_QUERY_WORDS} words of the query are searched"
GONE = "All matches were in files that have since been deleted"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages in force, by name; a value that can be compared and printed."""

    rewrite: Mapping[str, Rewrite]
    retrieve: Mapping[str, Retrieve]
    fuse: Fuse
    refine: Mapping[str, Refine]
    factors: Mapping[str, float] = field(default_factory=dict)
    """The user's factors on the weights of retrievers, by retriever."""

    def __call__(self, query: Query, tools: Tools, depth: int = 1) -> Ranking:
        """Search; `depth` multiplies the number of candidates. If a model server fails, keyword search alone answers."""
        try:
            return self._search(query, tools, depth)
        except ModelServerError as error:
            if query.mode is Mode.SEMANTIC:
                raise
            tools.notify(f"Answered by keyword search alone: {error}")
            return self._search(query, replace(tools, embedder=None), depth)

    def _search(self, query: Query, tools: Tools, depth: int) -> Ranking:
        steps: list[Step] = []
        count = depth * self.candidate_count(query)
        tools = replace(tools, shown=self._shown(query, tools))
        if len(query.raw_text) > len(query.text):
            tools.notify(TOO_LONG)
        for name, rewrite in self.rewrite.items():
            if query.text:
                query = timed(steps, name, rewrite, query, tools=tools)
        hits = self._fused(steps, query, count, tools)
        if query.dated_reading:
            hits = best_readings(hits, self._dated(query.dated_reading, count, tools))
        last = hits
        calibrated = bool(query.text) and has_calibrated_scores(hits, query, tools)
        for name, refine in self.refine.items():
            if not query.text and name not in WITHOUT_TEXT:
                continue
            last, hits = hits or last, timed(steps, name, refine, query, hits, tools=tools)
        reason, below = (None, False) if hits else empty_reason(query, steps, last, tools)
        return Ranking(
            query=query,
            hits=tools.read(hits[: query.limit]),
            nearest=self._nearest(steps, query, last, tools),
            abstained=reason,
            below_threshold=below,
            stats=stats(steps),
            steps=steps,
            calibrated=calibrated,
        )

    def _shown(self, query: Query, tools: Tools) -> int | None:
        """Return the number of results if no stage after the duplicates can show hits further down, else None."""
        if "diversity" in self.refine or tools.reranker:
            return None
        if query.parents or query.context or query.expand_context:
            return None
        return max(query.limit, VISIBLE_HITS)

    def unrelated_level(self, tools: Tools) -> dict[str, float]:
        """Run fixed queries about other things, and return the median of their features."""
        rows: list[Mapping[str, float]] = []
        for text in unrelated_queries():
            tools.check_cancelled()
            query = Query(text)
            for rewrite in self.rewrite.values():
                query = rewrite(query, tools)
            pool = tools.pool(self._lists([], query, tools))
            candidates = score_candidates(pool, query, tools)
            if candidates:
                rows.append(candidates.probabilities.answer_features)
        return medians(rows)

    @staticmethod
    def candidate_count(query: Query) -> int:
        """Return the number of candidates that each retriever fetches."""
        return max(POOL_SIZE, CANDIDATES_PER_RESULT * query.limit)

    def _fused(self, steps: list[Step], query: Query, count: int, tools: Tools) -> Hits:
        """Return the candidates of all retrievers, fused; without text, the documents that pass the filters."""
        if not query.text:
            return timed(steps, "fuse", passing_documents, query, count, tools=tools)
        pool = tools.pool(self._lists(steps, query, tools, count))
        hits = timed(steps, "fuse", self.fuse, pool, query, self.factors, tools=tools)
        if any(hit.answer_probability is None for hit in hits):
            hits = timed(steps, "probability", with_probabilities, hits, pool, query, tools=tools)
        return hits

    def _lists(
        self, steps: list[Step], query: Query, tools: Tools, count: int | None = None
    ) -> dict[str, Sequence[ScoredChunk]]:
        """Return the candidates of each retriever of the query's mode."""
        limit = count or self.candidate_count(query)
        return {
            name: timed(steps, name, self.retrieve[name], query, limit, tools=tools)
            for name in self.retrieve
            if name in RETRIEVERS_BY_MODE[query.mode]
        }

    def _dated(self, query: Query, count: int, tools: Tools) -> Hits:
        """Return the candidates of the reading of a query in which its dates are a condition on documents."""
        for name, rewrite in self.rewrite.items():
            if name != "operators" and query.text:
                query = rewrite(query, tools)
        return self._fused([], query, count, tools)

    def _nearest(self, steps: list[Step], query: Query, last: Hits, tools: Tools) -> Hits:
        """Return the closest passages where `confidence` dropped all of them, after the stages that follow it."""
        if not any(step.stage == "confidence" and step.count == 0 for step in steps):
            return ()
        if any(step.stage == "existing_files" and step.count == 0 for step in steps):
            return ()
        names = list(self.refine)
        for name in names[names.index("confidence") + 1 :]:
            last = self.refine[name](query, last, tools)
        return tools.read(last[: query.limit])


def best_readings(one: Hits, two: Hits) -> Hits:
    """Merge the candidates of two readings of a query; a passage of both keeps its higher score."""
    best: dict[str, Hit] = {}
    for hit in best_first((*one, *two)):
        best.setdefault(hit.chunk.id, hit)
    return tuple(best.values())


Value = TypeVar("Value")


def timed(
    steps: list[Step], name: str, stage: Callable[..., Value], *arguments: object, tools: Tools
) -> Value:
    """Run a stage and record its duration and the number of hits it returned."""
    tools.check_cancelled()
    start = perf_counter()
    result = stage(*arguments, tools)
    count = len(result) if isinstance(result, (list, tuple)) else 0
    steps.append(Step(name, count, (perf_counter() - start) * 1000))
    return result


def stats(steps: list[Step]) -> dict[str, int]:
    """Return the number of hits after each stage that drops some."""
    counts = {step.stage: step.count for step in steps}
    values: dict[str, int] = {}
    last = 0
    for key, stage in STATS.items():
        last = values[key] = counts.get(stage, last)
    values["clusters_merged"] = values["after_same_text"] - values["after_same_meaning"]
    return values


def empty_reason(query: Query, steps: list[Step], last: Hits, tools: Tools) -> tuple[str, bool]:
    """Return why there are no results, and True if the default threshold left out candidates.

    `last` are the hits before the stage that dropped all of them.
    """
    if not last:
        return no_match_reason(query, tools.snapshot), False
    if any(step.stage == "existing_files" and step.count == 0 for step in steps):
        return GONE, False
    if (threshold := query.min_confidence) is not None:
        best = max(hit.score for hit in last)
        return (
            f"The best result scores {best:.2f}, below the minimum of {threshold}. Lower it to see more",
            False,
        )
    probability = max(answer_probability(hit) for hit in last)
    filters = f" with these filters: {describe_filters(query.filters)}" if query.filters else ""
    return f"{unlikely(probability)}{filters}", True
