"""One evaluation from end to end: a dataset and what is wanted of it, to a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from marklight.errors import UsageError
from marklight.eval.ablate import Change, Comparison, ablate, compare
from marklight.eval.collection import Collection, missing, open_collection, places
from marklight.eval.dataset import Dataset, some
from marklight.eval.quality import Quality, measure
from marklight.eval.reading import foreign_questions, read_dataset
from marklight.eval.report import Evaluation
from marklight.ports import Progress, silent

MOST_OFF_TOPIC = 200
"""Questions of another dataset that are asked: enough to tell 5 % from 10 %."""


def evaluate(
    path: Path,
    *,
    mode: str = "hybrid",
    assignments: Sequence[str] = (),
    compared: Sequence[str] = (),
    with_ablation: bool = False,
    sample: int | None = None,
    off_topic: Path | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """How good the answers to a dataset's questions are; a mistake in a dataset is told before any work."""
    if sample is not None and sample < 1:
        raise UsageError(f"a sample has at least 1 question, not {sample}")
    dataset = read_dataset(path).sampled(sample)
    foreign = _off_topic(dataset, off_topic)
    with ExitStack() as stack:
        collection = stack.enter_context(open_collection(dataset, mode, assignments, progress))
        wanted = places(collection, dataset)

        def measured(which: Collection, phase: str) -> Quality:
            return measure(which, dataset, wanted, foreign, mode, progress, phase)

        def changed(change: Change) -> Quality:
            return measured(collection.varied([change.assignment]), f"Asking {change.name}")

        library = collection.library
        other: Collection | None = None
        if compared and all(each.lstrip().startswith("search.") for each in compared):
            other = collection.varied(compared)
        elif compared:
            both = (*assignments, *compared)
            other = stack.enter_context(open_collection(dataset, mode, both, progress))
        whole = measured(collection, "Asking")
        comparison: Comparison | None = None
        if other is not None:
            second = measured(other, "Asking with the change")
            comparison = compare(" ".join(compared), tuple(compared), whole, second)
        ablation = (
            ablate(whole, library.pipeline, library.settings, mode, changed)
            if with_ablation
            else []
        )
        status = library.status()
        return Evaluation(
            dataset=dataset.name,
            documents=status["documents"],
            chunks=status["chunks"],
            mode=mode,
            quality=whole,
            settings=library.settings,
            comparison=comparison,
            ablation=ablation,
            notices=(*dataset.notices, *_notices(collection, dataset), *whole.notices),
        )


def _off_topic(dataset: Dataset, other: Path | None) -> Sequence[str]:
    """Another dataset's questions, else the dataset's own list, else ours."""
    if other is None:
        return dataset.off_topic or foreign_questions()
    asked = {question.text for question in dataset.questions}
    texts = [one.text for one in read_dataset(other).questions if one.text not in asked]
    if not texts:
        raise UsageError(
            f"{other} has no questions that this dataset does not have",
            "Name one that is about something else",
        )
    return some(texts, MOST_OFF_TOPIC)


def _notices(collection: Collection, dataset: Dataset) -> Iterator[str]:
    yield from collection.notices
    if failed := collection.library.status()["failed"]:
        first = failed[0]
        yield f"documents that could not be read: {len(failed)}, such as {first['path']}, which {first['reason']}"
    if absent := missing(collection, dataset):
        yield f"answers that are not in the index: {len(absent)}, such as {absent[0]}"
