"""Ranking metrics (nDCG, MRR, recall, success), calibration error, and the paired randomisation test.

A ranking lists ids, best first, each once; grades are the judgements above 0. Definitions and rounding
are those of trec_eval; a test compares them. Higher is better except for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log2

from marklight.eval.dataset import SEED
from marklight.lazy import dataclass

Ranking = Sequence[str]
Grades = Mapping[str, int]

BINS = 10
"""Bins of the calibration error: the usual number (Guo et al., ICML 2017)."""
ROUNDS = 20_000
"""Random permutations of the significance test: a p of 0.05 is then off by at most 0.003 in 19 of 20 cases,
2·√(.05·.95/20,000)."""
_BATCH = 1_000
"""Permutations computed at once, which bounds memory. Hand-set; not measured."""
_EPSILON = 1e-12
"""Sums of the same numbers in another order differ by less."""


def ndcg(ranking: Ranking, grades: Grades, depth: int) -> float:
    """Return the normalised discounted cumulative gain (Järvelin and Kekäläinen, TOIS 2002): Σ grade / log2(rank + 1) divided by its maximum."""
    best = _gain(sorted(grades.values(), reverse=True)[:depth])
    return _gain([grades.get(name, 0) for name in ranking[:depth]]) / best if best else 0.0


def reciprocal_rank(ranking: Ranking, grades: Grades, depth: int) -> float:
    """Return 1 / rank of the first relevant result, 0 if there is none (Voorhees, TREC-8 1999)."""
    ranks = (rank for rank, name in enumerate(ranking[:depth], 1) if name in grades)
    return 1 / next(ranks, float("inf"))


def recall(ranking: Ranking, grades: Grades, depth: int | None = None) -> float:
    """Return the share of relevant documents in the top `depth` (van Rijsbergen, Information Retrieval, 1979)."""
    return len(set(ranking[:depth]) & set(grades)) / len(grades) if grades else 0.0


def success(ranking: Ranking, grades: Grades, depth: int) -> float:
    """Return 1 if a relevant document is in the top `depth`, else 0 (trec_eval: success)."""
    return float(any(name in grades for name in ranking[:depth]))


PER_QUERY: Mapping[str, Callable[[Ranking, Grades], float]] = {
    "ndcg@10": partial(ndcg, depth=10),
    "ndcg@5": partial(ndcg, depth=5),
    "mrr@10": partial(reciprocal_rank, depth=10),
    "success@1": partial(success, depth=1),
    "recall@10": partial(recall, depth=10),
    "recall@100": partial(recall, depth=100),
}
"""Metrics of one ranking; the value of a dataset is the mean over its queries."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of results by score: their number, mean score and share of relevant ones."""

    count: int
    score: float
    relevant: float


def reliability(results: Sequence[tuple[float, bool]], bins: int = BINS) -> list[Bin]:
    """Group results by score into bins of equal width, the last including 1 (Naeini et al., AAAI 2015)."""
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for score, relevant in results:
        members[min(bins - 1, max(0, int(score * bins)))].append((score, relevant))
    return [
        Bin(
            len(results),
            sum(score for score, _ in results) / len(results) if results else 0.0,
            sum(relevant for _, relevant in results) / len(results) if results else 0.0,
        )
        for results in members
    ]


def calibration_error(results: Sequence[tuple[float, bool]], bins: int = BINS) -> float:
    """Return the expected calibration error (Naeini et al., AAAI 2015): Σ over bins of share · |relevant − score|."""
    curve = reliability(results, bins)
    total = sum(bin.count for bin in curve)
    return sum(bin.count / total * abs(bin.relevant - bin.score) for bin in curve if bin.count)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by the nearest-rank method."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of the paired randomisation test (Smucker, Allan and Carterette, CIKM 2007).

    It is the share of sign permutations of the differences whose mean is at least as large. All are tried
    if they are few, else a repeatable random sample.
    """
    import numpy as np

    paired = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    differences = paired[np.abs(paired) > _EPSILON]  # a sign does not change the others
    if not len(differences):
        return 1.0
    observed = abs(differences.sum()) - _EPSILON
    if 2 ** len(differences) <= ROUNDS:
        signs = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        sums = np.abs((signs * 2 - 1) @ differences)
        return float(np.mean(sums >= observed))
    random = np.random.default_rng(SEED)
    as_large = 0
    for _ in range(ROUNDS // _BATCH):
        signs = random.integers(0, 2, (_BATCH, len(differences)), dtype=np.int8)
        as_large += int(np.sum(np.abs((signs * 2 - 1) @ differences) >= observed))
    # The observed permutation counts as well.
    return (as_large + 1) / (ROUNDS + 1)


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / log2(rank + 1) for rank, grade in enumerate(grades, 1))
