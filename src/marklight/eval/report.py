"""What an evaluation found: a table for people, a dictionary for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from marklight.escaping import one_line
from marklight.eval import metrics
from marklight.eval.ablate import Comparison
from marklight.eval.quality import SHOWN, Outcome, Quality
from marklight.settings import Settings

WORDS = {
    "ndcg@10": (
        "nDCG@10",
        "how high the answers stand, the better ones first; 1 is the best order",
    ),
    "ndcg@5": ("nDCG@5", ""),
    "mrr@10": ("MRR@10", "mean of 1 / rank of the first answer"),
    "success@1": ("success@1", "the first result is an answer"),
    "recall@10": ("recall@10", "share of all answers among the first ten"),
    "recall@100": ("recall@100", ""),
    "recall@500_tokens": ("recall, 500 tokens", "share of all answers in so much text"),
    "recall@1000_tokens": ("recall, 1,000 tokens", ""),
    "recall@2000_tokens": ("recall, 2,000 tokens", ""),
    "answered": ("answered", "share of the questions for which something was likely enough"),
    "false_answers": (
        "false answers",
        "share of off-topic questions that were answered; 0 is best",
    ),
    "lost": ("lost", "answers among the first ten that were held back as unlikely; 0 is best"),
    "ece": ("calibration error", "how far scores are from being probabilities; 0 is best"),
}
"""Each measure as a person reads it, and what it says."""
IN_ABLATION = ("ndcg@10", "recall@100", "answered", "false_answers", "ece")
MOST_NAMED = 10
"""Questions of each kind that failed; JSON has all of them."""
CHANCE = 0.05
"""Below this a difference is marked."""
MARKED = "* chance alone gives such a difference less than once in twenty times"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that was measured."""

    dataset: str
    documents: int
    chunks: int
    mode: str
    quality: Quality
    settings: Settings
    comparison: Comparison | None = None
    ablation: Sequence[Comparison] = ()
    notices: Sequence[str] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON holds it."""
        quality = self.quality
        return {
            "dataset": self.dataset,
            "documents": self.documents,
            "chunks": self.chunks,
            "queries": len(quality.outcomes),
            "off_topic": len(quality.false_answers),
            "mode": self.mode,
            "metrics": _rounded(quality.metrics),
            "latency_ms": {name: round(ms, 2) for name, ms in quality.latency_ms.items()},
            "reliability": [
                {
                    "from": index / metrics.BINS,
                    "to": (index + 1) / metrics.BINS,
                    "count": each.count,
                    "score": round(each.score, 4),
                    "relevant": round(each.relevant, 4),
                }
                for index, each in enumerate(metrics.reliability(quality.results))
            ],
            "missed": [_missed(one) for one in quality.outcomes if one.missed],
            "held_back": [_held_back(one) for one in quality.held_back],
            **({"compare": _compared(self.comparison)} if self.comparison else {}),
            **({"ablation": [_compared(one) for one in self.ablation]} if self.ablation else {}),
            "settings": {
                key: value
                for key, value in sorted(self.settings.values.items())
                if key not in ("engine", "collections")
            },
            "notices": list(self.notices),
        }

    def to_text(self) -> str:
        """The evaluation as a person reads it."""
        model = self.settings["model.name"]
        by = self.mode if model == "none" else f"{self.mode}, {model}"
        parts = [
            f"{one_line(self.dataset)}: {len(self.quality.outcomes):,} questions,"
            f" {self.documents:,} documents, {self.chunks:,} passages ({by})",
            self._compared_table() if self.comparison else self._table(),
        ]
        if self.ablation:
            parts.append(self._ablation_table())
        count = len(self.quality.outcomes)
        if missed := [one for one in self.quality.outcomes if one.missed]:
            said = f"not among the first {SHOWN} for {len(missed)} of {count} questions"
            parts.append(_named(said, missed, _first))
        if held_back := self.quality.held_back:
            said = f"found and held back as unlikely for {len(held_back)} of {count} questions"
            parts.append(_named(said, held_back, lambda one: f"score {one.best:.2f}"))
        return "\n\n".join(parts)

    def _table(self) -> str:
        values = self.quality.metrics
        rows = [[label, f"{values[name]:.3f}", said] for name, (label, said) in WORDS.items()]
        latency = self.quality.latency_ms
        times = f"{latency['p50']:.0f} / {latency['p95']:.0f} ms"
        return _columns([*rows, ["time, p50 / p95", times, "of one search"]], words=2)

    def _compared_table(self) -> str:
        assert self.comparison
        other = self.comparison
        values = self.quality.metrics
        rows = [
            [
                label,
                f"{values[name]:.3f}",
                f"{other.metrics[name]:.3f}",
                f"{other.difference[name]:+.3f}",
                _chance(other.p.get(name)),
            ]
            for name, (label, _) in WORDS.items()
        ]
        heading = ["", "as it is", "changed", "difference", "p  "]
        return f"{_columns([heading, *rows])}\nchanged: {one_line(other.name)}\n{MARKED}"

    def _ablation_table(self) -> str:
        heading = ["", *(WORDS[name][0] for name in IN_ABLATION), "p of nDCG@10  "]
        whole = ["all", *(f"{self.quality.metrics[name]:.3f}" for name in IN_ABLATION), ""]
        telling = [one for one in self.ablation if any(map(_seen, _differences(one)))]
        rows = [
            [one.name, *(f"{each:+.3f}" for each in _differences(one)), _chance(one.p["ndcg@10"])]
            for one in telling
        ]
        same = [one.name for one in self.ablation if one not in telling]
        said = ["differences to all; a stage helps where nDCG@10 falls without it", MARKED]
        if same:
            said.append(f"no difference {', '.join(same)}")
        return "\n".join([_columns([heading, whole, *rows]), *said])


def _differences(one: Comparison) -> list[float]:
    return [one.difference[name] for name in IN_ABLATION]


def _seen(difference: float) -> bool:
    """Whether three places show it."""
    return abs(difference) >= 0.0005


def _columns(rows: Sequence[Sequence[str]], words: int | None = None) -> str:
    """Rows with aligned columns: names to the left, numbers to the right, words to the left."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    left = (0, words)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _chance(p: float | None) -> str:
    if p is None:
        return ""
    shown = "<0.001" if p < 0.0005 else f"{p:.3f}"
    return f"{shown} *" if p < CHANCE else f"{shown}  "


def _named(said: str, failed: Sequence[Outcome], why: Callable[[Outcome], str]) -> str:
    """Questions that came to nothing, as many as a person looks through."""
    lines = [said + (", such as" if len(failed) > MOST_NAMED else ":")]
    for one in failed[:MOST_NAMED]:
        expected = ", ".join(one.question.answers)
        lines.append(one_line(f"  {one.question.text[:90]!r}: {expected[:90]} ({why(one)})"))
    return "\n".join(lines)


def _first(one: Outcome) -> str:
    return f"first: {one.names[0][:60] if one.names else 'nothing'}"


def _failed(one: Outcome) -> dict[str, Any]:
    question = one.question
    return {"id": question.id, "text": question.text, "expected": list(question.answers)}


def _missed(one: Outcome) -> dict[str, Any]:
    return {**_failed(one), "first": one.names[0] if one.names else None}


def _held_back(one: Outcome) -> dict[str, Any]:
    return {**_failed(one), "score": round(one.best, 4)}


def _compared(one: Comparison) -> dict[str, Any]:
    return {
        "change": one.name,
        "set": list(one.assignments),
        "metrics": _rounded(one.metrics),
        "difference": _rounded(one.difference),
        "p": _rounded(one.p),
    }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
