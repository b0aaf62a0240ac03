"""Evaluate search quality on judged queries: index a dataset, run it, compare with other settings, and ablate stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from marklight.errors import UsageError
from marklight.eval.collection import (
    Collection,
    open_collection,
    resolve_answers,
    unindexed_answers,
)
from marklight.eval.dataset import Dataset, off_topic_queries, read_dataset, sample
from marklight.eval.report import Evaluation
from marklight.eval.run import Comparison, Run, compare, run_queries
from marklight.library.configuration import stage_name
from marklight.operations import ModeName
from marklight.ports import Progress, no_progress
from marklight.query import Mode
from marklight.search import pipeline
from marklight.search.pipeline import Pipeline
from marklight.settings import Settings

MAX_OFF_TOPIC = 200
"""Queries of another dataset that are run: enough to distinguish 5 % from 10 %."""


class Change(NamedTuple):
    """A change of the pipeline: its name, and the setting that makes it."""

    name: str
    assignment: str


def evaluate(
    path: Path,
    *,
    mode: ModeName = "hybrid",
    assignments: Sequence[str] = (),
    compared: Sequence[str] = (),
    with_ablation: bool = False,
    sample_size: int | None = None,
    off_topic: Path | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate a dataset; mistakes in it are reported before any work."""
    if sample_size is not None and sample_size < 1:
        raise UsageError(f"The sample must have at least 1 query, not {sample_size}")
    dataset = read_dataset(path).sampled(sample_size)
    off_topic_texts = _off_topic(dataset, off_topic)
    with ExitStack() as stack:
        collection = stack.enter_context(open_collection(dataset, mode, assignments, progress))
        places = resolve_answers(collection, dataset)

        def run(which: Collection, phase: str) -> Run:
            return run_queries(which, dataset, places, off_topic_texts, mode, progress, phase)

        library = collection.library
        other: Collection | None = None
        if compared and all(setting.lstrip().startswith("search.") for setting in compared):
            other = collection.with_settings(compared)
        elif compared:
            both = (*assignments, *compared)
            other = stack.enter_context(open_collection(dataset, mode, both, progress))
        baseline = run(collection, "Running queries")
        comparison: Comparison | None = None
        if other is not None:
            second = run(other, "Running queries with the change")
            comparison = compare(" ".join(compared), tuple(compared), baseline, second)
        ablation: list[Comparison] = []
        for change in changes(library.pipeline, library.settings, mode) if with_ablation else ():
            changed = collection.with_settings([change.assignment])
            without = run(changed, f"Running queries {change.name}")
            ablation.append(compare(change.name, (change.assignment,), baseline, without))
        status = library.status()
        return Evaluation(
            dataset=dataset.name,
            documents=status["documents"],
            chunks=status["chunks"],
            mode=mode,
            run=baseline,
            settings=library.settings,
            comparison=comparison,
            ablation=ablation,
            notices=(*dataset.notices, *_notices(collection, dataset), *baseline.notices),
        )


def changes(baseline: Pipeline, settings: Settings, mode: str) -> Iterator[Change]:
    """Yield the ablations: each active stage left out, each inactive one added, each other fusion."""
    retrievers = [
        name for name in baseline.retrieve if name in pipeline.RETRIEVERS_BY_MODE[Mode(mode)]
    ]
    # Without its only retriever a search has no results, which needs no measuring.
    removable = retrievers if len(retrievers) > 1 else []
    for name in (*baseline.rewrite, *removable, *baseline.refine):
        skipped = ",".join((*settings["search.skip"], name))
        yield Change(f"without {name}", f"search.skip={skipped}")
    for name in pipeline.OFF:
        if name not in (*settings["search.use"], *settings["search.skip"]):
            used = ",".join((*settings["search.use"], name))
            yield Change(f"with {name}", f"search.use={used}")
    if len(retrievers) > 1:
        for fusion in map(stage_name, pipeline.FUSE):
            if fusion != settings["search.fuse"]:
                yield Change(f"fuse by {fusion}", f"search.fuse={fusion}")


def _off_topic(dataset: Dataset, other: Path | None) -> Sequence[str]:
    """Return the queries of another dataset, else the dataset's own off-topic queries, else the built-in ones."""
    if other is None:
        return dataset.off_topic or off_topic_queries()
    asked = {query.text for query in dataset.queries}
    texts = [query.text for query in read_dataset(other).queries if query.text not in asked]
    if not texts:
        raise UsageError(
            f"All queries of {other} are in this dataset too", "Give a dataset on another subject"
        )
    return sample(texts, MAX_OFF_TOPIC)


def _notices(collection: Collection, dataset: Dataset) -> Iterator[str]:
    yield from collection.notices
    if failed := collection.library.status()["failed"]:
        first = failed[0]
        yield f"documents that could not be read: {len(failed)}, such as {first['path']}, which {first['reason']}"
    if missing := unindexed_answers(collection, dataset):
        yield f"answers that are not in the index: {len(missing)}, such as {missing[0]}"
