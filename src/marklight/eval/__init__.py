"""Evaluate search quality on judged queries: index a dataset, run it, compare with other settings, ablate stages, format the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from marklight.errors import UsageError
from marklight.eval.collection import (
    Collection,
    open_collection,
    resolve_answers,
    unindexed_answers,
)
from marklight.eval.dataset import Dataset, off_topic_queries, read_dataset, sample
from marklight.eval.metrics import BINS, reliability
from marklight.eval.run import TOP, Comparison, Outcome, Run, compare, run_queries
from marklight.formatting import columns, one_line
from marklight.lazy import dataclass
from marklight.library.configuration import stage_name
from marklight.operations import ModeName
from marklight.ports import Progress, no_progress
from marklight.query import Mode
from marklight.search import pipeline
from marklight.search.pipeline import Pipeline
from marklight.settings import Settings

MAX_OFF_TOPIC = 200
"""Queries of another dataset that are run: enough to distinguish 5 % from 10 %."""


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
        listed = changes(library.pipeline, library.settings, mode) if with_ablation else ()
        for name, assignment in listed:
            without = run(collection.with_settings([assignment]), f"Running queries {name}")
            ablation.append(compare(name, (assignment,), baseline, without))
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


def changes(baseline: Pipeline, settings: Settings, mode: str) -> Iterator[tuple[str, str]]:
    """Yield the ablations, each with the setting that makes it: an active stage left out, an inactive one added, another fusion."""
    retrievers = [
        name for name in baseline.retrieve if name in pipeline.RETRIEVERS_BY_MODE[Mode(mode)]
    ]
    # Without its only retriever a search has no results, which needs no measuring.
    removable = retrievers if len(retrievers) > 1 else []
    for name in (*baseline.rewrite, *removable, *baseline.refine):
        skipped = ",".join((*settings["search.skip"], name))
        yield f"without {name}", f"search.skip={skipped}"
    for name in pipeline.OFF:
        if name not in (*settings["search.use"], *settings["search.skip"]):
            used = ",".join((*settings["search.use"], name))
            yield f"with {name}", f"search.use={used}"
    if len(retrievers) > 1:
        for fusion in map(stage_name, pipeline.FUSE):
            if fusion != settings["search.fuse"]:
                yield f"fuse by {fusion}", f"search.fuse={fusion}"


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


LABELS = {
    "ndcg@10": ("nDCG@10", "how high the answers rank, better ones first; 1 is the best order"),
    "ndcg@5": ("nDCG@5", ""),
    "mrr@10": ("MRR@10", "mean of 1 / rank of the first answer"),
    "success@1": ("success@1", "share of queries whose first result is an answer"),
    "recall@10": ("recall@10", "share of all answers in the top ten"),
    "recall@100": ("recall@100", ""),
    "recall@500_tokens": ("recall, 500 tokens", "share of all answers in that much text"),
    "recall@1000_tokens": ("recall, 1,000 tokens", ""),
    "recall@2000_tokens": ("recall, 2,000 tokens", ""),
    "answered": ("answered", "share of queries that got results"),
    "false_answers": ("false answers", "share of off-topic queries that got results; 0 is best"),
    "lost": ("lost", "share of answers in the top ten not shown for low confidence; 0 is best"),
    "ece": ("calibration error", "how far scores are from being probabilities; 0 is best"),
}
"""Label and explanation of each metric."""
ABLATION_METRICS = ("ndcg@10", "recall@100", "answered", "false_answers", "ece")
MAX_LISTED = 10
"""Failed queries of each kind in the text; JSON has all. Hand-set; not measured."""
SIGNIFICANT = 0.05
"""p below which a difference is marked: the usual level."""
LEGEND = "* p < 0.05: chance alone gives such a difference less than once in twenty times"
MIN_DIFFERENCE = 0.0005
"""Smallest difference that three decimals show."""
MAX_QUERY, MAX_EXPECTED, MAX_FIRST = 90, 90, 60
"""Characters of a failed query, its answers and its first result that are shown. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of an evaluation."""

    dataset: str
    documents: int
    chunks: int
    mode: str
    run: Run
    settings: Settings
    comparison: Comparison | None = None
    ablation: Sequence[Comparison] = ()
    notices: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation for JSON."""
        run = self.run
        return {
            "dataset": self.dataset,
            "documents": self.documents,
            "chunks": self.chunks,
            "queries": len(run.outcomes),
            "off_topic": len(run.false_answers),
            "mode": self.mode,
            "metrics": _rounded(run.metrics),
            "latency_ms": {name: round(ms, 2) for name, ms in run.latency_ms.items()},
            "reliability": [
                {
                    "from": index / BINS,
                    "to": (index + 1) / BINS,
                    "count": bin.count,
                    "score": round(bin.score, 4),
                    "relevant": round(bin.relevant, 4),
                }
                for index, bin in enumerate(reliability(run.results))
            ],
            "missed": [
                {**_failed_row(outcome), "first": next(iter(outcome.ids), None)}
                for outcome in run.outcomes
                if outcome.missed
            ],
            "held_back": [
                {**_failed_row(outcome), "score": round(outcome.best, 4)}
                for outcome in run.false_abstentions
            ],
            **({"compare": _comparison_row(self.comparison)} if self.comparison else {}),
            **({"ablation": list(map(_comparison_row, self.ablation))} if self.ablation else {}),
            "settings": {
                key: value
                for key, value in sorted(self.settings.values.items())
                if key not in ("engine", "collections")
            },
            "notices": list(self.notices),
        }

    def to_text(self) -> str:
        """Return the evaluation as tables."""
        model = self.settings["model.name"]
        search = self.mode if model == "none" else f"{self.mode}, {model}"
        outcomes = self.run.outcomes
        parts = [
            f"{one_line(self.dataset)}: {len(outcomes):,} queries,"
            f" {self.documents:,} documents, {self.chunks:,} passages ({search})",
            self._comparison_table() if self.comparison else self._table(),
        ]
        if self.ablation:
            parts.append(self._ablation_table())
        if missed := [outcome for outcome in outcomes if outcome.missed]:
            title = f"No answer in the top {TOP} for {len(missed)} of {len(outcomes)} queries"
            first = [outcome.ids[0][:MAX_FIRST] if outcome.ids else "nothing" for outcome in missed]
            parts.append(_failed_list(title, missed, [f"first: {id}" for id in first]))
        if hidden := self.run.false_abstentions:
            title = f"Answer found but not shown for low confidence: {len(hidden)} of {len(outcomes)} queries"
            parts.append(_failed_list(title, hidden, [f"score {each.best:.2f}" for each in hidden]))
        return "\n\n".join(parts)

    def _table(self) -> str:
        values = self.run.metrics
        rows = [
            [label, f"{values[name]:.3f}", meaning] for name, (label, meaning) in LABELS.items()
        ]
        latency = self.run.latency_ms
        times = f"{latency['p50']:.0f} / {latency['p95']:.0f} ms"
        return columns([*rows, ["time, p50 / p95", times, "of one search"]], left=(0, 2))

    def _comparison_table(self) -> str:
        assert self.comparison
        other = self.comparison
        values = self.run.metrics
        rows = [
            [
                label,
                f"{values[name]:.3f}",
                f"{other.metrics[name]:.3f}",
                f"{other.difference[name]:+.3f}",
                _p(other.p.get(name)),
            ]
            for name, (label, _) in LABELS.items()
        ]
        heading = ["", "baseline", "changed", "difference", "p  "]
        return f"{columns([heading, *rows], left=(0,))}\nchanged: {one_line(other.name)}\n{LEGEND}"

    def _ablation_table(self) -> str:
        heading = ["", *(LABELS[name][0] for name in ABLATION_METRICS), "p of nDCG@10  "]
        baseline = ["baseline", *(f"{self.run.metrics[name]:.3f}" for name in ABLATION_METRICS), ""]
        rows: list[list[str]] = []
        same: list[str] = []
        for row in self.ablation:
            values = [row.difference[name] for name in ABLATION_METRICS]
            if any(abs(value) >= MIN_DIFFERENCE for value in values):
                cells = (f"{value:+.3f}" for value in values)
                rows.append([row.name, *cells, _p(row.p["ndcg@10"])])
            else:
                same.append(row.name)
        notes = ["differences from the baseline; a stage helps if nDCG@10 falls without it", LEGEND]
        if same:
            notes.append(f"no difference: {', '.join(same)}")
        return "\n".join([columns([heading, baseline, *rows], left=(0,)), *notes])


def _p(p: float | None) -> str:
    if p is None:
        return ""
    shown = "<0.001" if p < MIN_DIFFERENCE else f"{p:.3f}"
    return f"{shown} *" if p < SIGNIFICANT else f"{shown}  "


def _failed_list(title: str, failed: Sequence[Outcome], details: Sequence[str]) -> str:
    lines = [title + (", such as" if len(failed) > MAX_LISTED else ":")]
    for outcome, detail in list(zip(failed, details, strict=True))[:MAX_LISTED]:
        text, expected = outcome.query.text, ", ".join(outcome.query.answers)
        lines.append(one_line(f"  {text[:MAX_QUERY]!r}: {expected[:MAX_EXPECTED]} ({detail})"))
    return "\n".join(lines)


def _failed_row(outcome: Outcome) -> dict[str, Any]:
    query = outcome.query
    return {"id": query.id, "text": query.text, "expected": list(query.answers)}


def _comparison_row(comparison: Comparison) -> dict[str, Any]:
    return {
        "change": comparison.name,
        "set": list(comparison.assignments),
        "metrics": _rounded(comparison.metrics),
        "difference": _rounded(comparison.difference),
        "p": _rounded(comparison.p),
    }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
