"""What learned weights make of a set's questions: which results are shown, how true their scores are, what is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from benchmarks._cases import FEATURES, Case
from benchmarks._fitting import Numbers, best_documents, vector
from marklight.eval.metrics import calibration_error
from marklight.search.features import POOL_SIZE, QueryFeatures
from marklight.search.probability import FusionWeights

SHOWN = 10
COVERAGE = FEATURES.index("coverage")
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7)
SORTS = ("found", "off topic", "words", "strange words", "found, small", "off topic, small")


def shown_rows(
    case: Case, weights: Mapping[str, float], temperature: float
) -> list[tuple[int, float, float]]:
    """Rows that a user sees, with their share among the rivals and how far these reach down."""
    rows, sums, seen = ranked(case, weights)
    whole, gap = np.log(np.sum(np.exp((seen - seen[0]) / temperature))), float(seen[0] - seen[-1])
    shares = (sums - seen[0]) / temperature - whole
    return [(row, share, gap) for row, share in zip(rows, shares.tolist(), strict=True)]


def answer_features(case: Case, weights: FusionWeights) -> dict[str, float]:
    """Features of the answer probability, with the coverage of the best passage and what exceeds unrelated queries."""
    first = int(np.argmax(case.rows @ vector(weights.features)))
    query = QueryFeatures(*case.query.tolist())
    return weights.answer_features(query, float(case.rows[first, COVERAGE]), case.level)


_RANKED: dict[object, tuple[list[int], Numbers, Numbers]] = {}
"""Rankings of cases by weights, as many temperatures are tried with each."""


def ranked(case: Case, weights: Mapping[str, float]) -> tuple[list[int], Numbers, Numbers]:
    """Rows that a user sees, their sums, and the sums of all rivals, best first."""
    key = (id(case), *weights.items())
    if key not in _RANKED:
        sums: Numbers = case.rows @ vector(weights)
        rivals = best_documents(case, sums)
        rows = [row for row in rivals if case.kept[row]][:SHOWN]
        _RANKED[key] = rows, sums[rows], sums[rivals[:POOL_SIZE]]
    return _RANKED[key]


def is_found(case: Case, weights: Mapping[str, float]) -> bool:
    """Whether an answer is among the first."""
    return any(case.grades[row] > 0 for row, *_ in shown_rows(case, weights, 1.0))


class Checked(NamedTuple):
    """What came of one set."""

    shown: list[tuple[float, bool]]
    """Scores of what is shown for its questions, and whether that was relevant."""
    there: dict[str, list[float]]
    """How likely an answer seemed: to questions whose answer is among the first, to others off topic, to
    single words that are there and to those that are not; to the former two in small libraries too."""


def checked(weights: FusionWeights, some: Sequence[Case]) -> Checked:
    found = Checked([], {sort: [] for sort in SORTS})
    for case in some:
        query = QueryFeatures(*case.query.tolist())
        there = weights.answer_curve(query)(answer_features(case, weights))
        if sort := _sort(case, weights.features):
            found.there[sort].append(there)
        if not case.ideal or not case.judged:
            continue
        for row, share, gap in shown_rows(case, weights.features, weights.temperature):
            score = there * weights.relevance({**query._asdict(), "log_share": share, "gap": gap})
            found.shown.append((score, bool(case.right[row])))
    return found


def _sort(case: Case, weights: Mapping[str, float]) -> str | None:
    """None for a question that has an answer which is not among the first, or of which nobody knows."""
    if case.unsure:
        return None
    if case.word:
        return "words" if case.ideal else "strange words"
    if case.ideal and not is_found(case, weights):
        return None
    sort = "found" if case.ideal else "off topic"
    return sort if case.judged else f"{sort}, small"


def figures(one: Checked) -> dict[str, Any]:
    """Calibration error of what is shown; for each threshold what is lost and what is let through."""
    return {
        "ece": calibration_error(one.shown),
        "mean score": fmean(score for score, _ in one.shown),
        "relevant": fmean(relevant for _, relevant in one.shown),
        "thresholds": {
            str(threshold): {
                "lost": _below(one.there["found"], threshold),
                "false_answers": _above(one.there["off topic"], threshold),
                "small, lost": _below(one.there["found, small"], threshold),
                "small, false_answers": _above(one.there["off topic, small"], threshold),
                "words lost": _below(one.there["words"], threshold),
                "strange words answered": _above(one.there["strange words"], threshold),
            }
            for threshold in THRESHOLDS
        },
    }


def _below(values: Sequence[float], threshold: float) -> float:
    return fmean(value < threshold for value in values) if values else 0.0


def _above(values: Sequence[float], threshold: float) -> float:
    return fmean(value >= threshold for value in values) if values else 0.0
