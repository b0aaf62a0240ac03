"""What is counted of a ranking: each measure with its definition, higher is better but for errors.

A ranking is the names of what was found, best first and each once; grades are the judgements above
0. Definitions and rounding are those of trec_eval, which a test holds them to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2

Ranking = Sequence[str]
Grades = Mapping[str, int]

BINS = 10
"""Of scores, for the calibration error: the usual number (Guo et al., ICML 2017)."""


def ndcg(ranking: Ranking, grades: Grades, depth: int) -> float:
    """Normalised discounted cumulative gain (Järvelin and Kekäläinen, TOIS 2002): Σ grade / log2(rank + 1), as a share of the best possible."""
    best = _gain(sorted(grades.values(), reverse=True)[:depth])
    return _gain([grades.get(name, 0) for name in ranking[:depth]]) / best if best else 0.0


def reciprocal_rank(ranking: Ranking, grades: Grades, depth: int) -> float:
    """1 / rank of the first that is relevant, 0 if none is (Voorhees, TREC-8 1999)."""
    ranks = (rank for rank, name in enumerate(ranking[:depth], 1) if name in grades)
    return 1 / next(ranks, float("inf"))


def recall(ranking: Ranking, grades: Grades, depth: int | None = None) -> float:
    """Share of what is relevant that is among the first (van Rijsbergen, Information Retrieval, 1979)."""
    return len(set(ranking[:depth]) & set(grades)) / len(grades) if grades else 0.0


def success(ranking: Ranking, grades: Grades, depth: int) -> float:
    """1 where something relevant is among the first, else 0 (trec_eval: success)."""
    return float(any(name in grades for name in ranking[:depth]))


BY_QUESTION: Mapping[str, Callable[[Ranking, Grades], float]] = {
    "ndcg@10": partial(ndcg, depth=10),
    "ndcg@5": partial(ndcg, depth=5),
    "mrr@10": partial(reciprocal_rank, depth=10),
    "success@1": partial(success, depth=1),
    "recall@10": partial(recall, depth=10),
    "recall@100": partial(recall, depth=100),
}
"""What one question's ranking tells; a dataset's value is the mean over its questions."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Results of about the same score: how many, their mean score, and the share that is relevant."""

    count: int
    score: float
    relevant: float


def reliability(results: Sequence[tuple[float, bool]], bins: int = BINS) -> list[Bin]:
    """Results by score, in bins of equal width; those of the last include 1 (Naeini et al., AAAI 2015)."""
    held: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for score, relevant in results:
        held[min(bins - 1, max(0, int(score * bins)))].append((score, relevant))
    return [
        Bin(
            len(each),
            sum(score for score, _ in each) / len(each) if each else 0.0,
            sum(relevant for _, relevant in each) / len(each) if each else 0.0,
        )
        for each in held
    ]


def calibration_error(results: Sequence[tuple[float, bool]], bins: int = BINS) -> float:
    """Expected calibration error (Naeini et al., AAAI 2015): Σ over bins of its share · |relevant − score|."""
    held = reliability(results, bins)
    total = sum(each.count for each in held)
    return sum(each.count / total * abs(each.relevant - each.score) for each in held if each.count)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed (nearest rank)."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / log2(rank + 1) for rank, grade in enumerate(grades, 1))
