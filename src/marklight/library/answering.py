"""One question through the stages: with the models that it needs, or by words alone where a server is silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from marklight.answer import Answer, Mode, Query
from marklight.errors import ModelServerError
from marklight.library.concurrency import PARALLEL_PASSAGES
from marklight.library.model_selection import EMBEDDING_MODES, RUN_INDEX, choose_embedder
from marklight.library.parts import Parts
from marklight.model import DocumentId
from marklight.ports import Embedder, Reranker, Snapshot, Tools, with_time_limit
from marklight.search.pipeline import Pipeline

DEEPER, DEEPEST = 4, 16
"""How many times as many candidates a further look takes, and the last one."""
MANY_HITS = 20
"""Where a list has fewer candidates, there were no more."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query, the stages that answer it, and the models that these work with."""

    query: Query
    pipeline: Pipeline
    embedder: Embedder | None
    reranker: Reranker | None
    going_on: Callable[[], None]
    began: float

    @property
    def took_ms(self) -> float:
        """Since it was asked."""
        return (time.perf_counter() - self.began) * 1000

    def sent(self, library: Parts) -> list[str]:
        """Which servers get texts for this, where nobody was told before."""
        return library.models.first_use_notices(
            embedding=self.embedder is not None, reranking=self.reranker is not None
        )


def prepare(
    library: Parts, query: Query, pipeline: Pipeline, going_on: Callable[[], None]
) -> Question:
    """The models are looked for before any work is done, so that a missing one is told at once."""
    began = time.perf_counter()
    reranker = library.models.reranker_for(query, pipeline)
    embedder = library.models.embedder if query.mode in EMBEDDING_MODES else None
    return Question(query, pipeline, embedder, reranker, going_on, began)


def answer(
    library: Parts,
    question: Question,
    snapshot: Snapshot,
    *,
    alone: bool,
    exists: Callable[[DocumentId], bool] = lambda _: True,
    rest: str = RUN_INDEX,
) -> Answer:
    """What this commit of the index says; `alone` is whether no other search is at work."""
    query, pipeline = question.query, question.pipeline
    counts = snapshot.status.counts(library.models.fingerprint()[0])
    embedder, said = choose_embedder(
        query, snapshot, question.embedder, library.models.embedder_named, rest
    )
    tools = Tools(
        snapshot,
        with_time_limit(embedder, library.settings["model.query_seconds"]),
        question.reranker,
        exists=exists,
        now=time.time(),
        notify=said.append,
        check_cancelled=question.going_on,
    )
    if alone and counts.chunks >= PARALLEL_PASSAGES:
        tools = replace(tools, run_parallel=library.threads.run_parallel)
    try:
        found = _enough(pipeline, query, tools)
    except ModelServerError as error:
        if query.mode is Mode.SEMANTIC:
            raise
        said.append(f"answered by words alone: {error}")
        found = _enough(pipeline, query, replace(tools, embedder=None))
    # A deeper look says the same again.
    return replace(found, index=counts, notices=list(dict.fromkeys(said)))


def _enough(pipeline: Pipeline, query: Query, tools: Tools) -> Answer:
    """After a deeper look, where copies and what is gone took the places of what else there is."""
    found = pipeline(query, tools)
    while _crowded(found) and query.depth_factor < DEEPEST:
        query = replace(query, depth_factor=DEEPER * query.depth_factor)
        deeper = pipeline(query, tools)
        if deeper.stats["original_count"] == found.stats["original_count"]:
            break  # there was nothing else
        found = deeper
    return found


def _crowded(found: Answer) -> bool:
    """Whether fewer are left than asked for, since most candidates were copies or are gone.

    Where some were too unlikely, what comes behind them is so too.
    """
    left = {step.stage: step.count for step in found.steps}
    every = left["fuse"]
    there = left.get("existing_files", every)
    if len(found.hits) >= found.query.limit or every < MANY_HITS:
        return False
    if left.get("confidence", there) < there:
        return False
    return 2 * found.stats["after_same_meaning"] < every
