"""Format an evaluation: tables for people, a dictionary for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from marklight.eval import metrics
from marklight.eval.run import TOP, Comparison, Outcome, Run
from marklight.formatting import one_line
from marklight.lazy import dataclass
from marklight.settings import Settings

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
    notices: Sequence[str] = field(default=())

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
                    "from": index / metrics.BINS,
                    "to": (index + 1) / metrics.BINS,
                    "count": bin.count,
                    "score": round(bin.score, 4),
                    "relevant": round(bin.relevant, 4),
                }
                for index, bin in enumerate(metrics.reliability(run.results))
            ],
            "missed": [_missed_row(outcome) for outcome in run.outcomes if outcome.missed],
            "held_back": [_abstention_row(outcome) for outcome in run.false_abstentions],
            **({"compare": _comparison_row(self.comparison)} if self.comparison else {}),
            **(
                {"ablation": [_comparison_row(row) for row in self.ablation]}
                if self.ablation
                else {}
            ),
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
            parts.append(_failed_list(title, missed, _first_result))
        if hidden := self.run.false_abstentions:
            title = f"Answer found but not shown for low confidence: {len(hidden)} of {len(outcomes)} queries"
            parts.append(_failed_list(title, hidden, lambda outcome: f"score {outcome.best:.2f}"))
        return "\n\n".join(parts)

    def _table(self) -> str:
        values = self.run.metrics
        rows = [
            [label, f"{values[name]:.3f}", meaning] for name, (label, meaning) in LABELS.items()
        ]
        latency = self.run.latency_ms
        times = f"{latency['p50']:.0f} / {latency['p95']:.0f} ms"
        return _columns([*rows, ["time, p50 / p95", times, "of one search"]], text_column=2)

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
        return f"{_columns([heading, *rows])}\nchanged: {one_line(other.name)}\n{LEGEND}"

    def _ablation_table(self) -> str:
        heading = ["", *(LABELS[name][0] for name in ABLATION_METRICS), "p of nDCG@10  "]
        baseline = ["baseline", *(f"{self.run.metrics[name]:.3f}" for name in ABLATION_METRICS), ""]
        different = [
            row for row in self.ablation if any(map(_is_visible, _ablation_differences(row)))
        ]
        rows = [
            [
                row.name,
                *(f"{value:+.3f}" for value in _ablation_differences(row)),
                _p(row.p["ndcg@10"]),
            ]
            for row in different
        ]
        same = [row.name for row in self.ablation if row not in different]
        notes = ["differences from the baseline; a stage helps if nDCG@10 falls without it", LEGEND]
        if same:
            notes.append(f"no difference: {', '.join(same)}")
        return "\n".join([_columns([heading, baseline, *rows]), *notes])


def _ablation_differences(row: Comparison) -> list[float]:
    return [row.difference[name] for name in ABLATION_METRICS]


def _is_visible(difference: float) -> bool:
    return abs(difference) >= MIN_DIFFERENCE


def _columns(rows: Sequence[Sequence[str]], text_column: int | None = None) -> str:
    """Align columns: the first and the text column to the left, numbers to the right."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    left = (0, text_column)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _p(p: float | None) -> str:
    if p is None:
        return ""
    shown = "<0.001" if p < MIN_DIFFERENCE else f"{p:.3f}"
    return f"{shown} *" if p < SIGNIFICANT else f"{shown}  "


def _failed_list(title: str, failed: Sequence[Outcome], detail: Callable[[Outcome], str]) -> str:
    lines = [title + (", such as" if len(failed) > MAX_LISTED else ":")]
    for outcome in failed[:MAX_LISTED]:
        text, expected = outcome.query.text, ", ".join(outcome.query.answers)
        lines.append(
            one_line(f"  {text[:MAX_QUERY]!r}: {expected[:MAX_EXPECTED]} ({detail(outcome)})")
        )
    return "\n".join(lines)


def _first_result(outcome: Outcome) -> str:
    return f"first: {outcome.ids[0][:MAX_FIRST] if outcome.ids else 'nothing'}"


def _failed_row(outcome: Outcome) -> dict[str, Any]:
    query = outcome.query
    return {"id": query.id, "text": query.text, "expected": list(query.answers)}


def _missed_row(outcome: Outcome) -> dict[str, Any]:
    return {**_failed_row(outcome), "first": outcome.ids[0] if outcome.ids else None}


def _abstention_row(outcome: Outcome) -> dict[str, Any]:
    return {**_failed_row(outcome), "score": round(outcome.best, 4)}


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
