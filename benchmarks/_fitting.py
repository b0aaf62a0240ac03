"""Fit fusion weights by grid search, and logistic regression by Newton's method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._cases import FEATURES, Case

if TYPE_CHECKING:
    from marklight.model import Vector

Numbers = np.ndarray[Any, Any]
RIDGE = 1e-3
"""L2 penalty: keeps weights finite where the cases are linearly separable. Hand-set; not measured."""
ANSWER_RIDGE = 1e-3
"""L2 penalty of the answer probability. Mean log loss of twenty left-out sets, with plain features: .094 with 1e-2, .076 with 1e-3 and with 1e-4."""


def best_documents(case: Case, sums: Vector) -> list[int]:
    """Return the rows of the best passage of each document, best first; of ties the first."""
    found: dict[int, int] = {}
    for row in np.argsort(-sums, kind="stable").tolist():
        found.setdefault(int(case.documents[row]), row)
    return list(found.values())


class Ranking:
    """The queries of one set as matrices, to rank them with many weights quickly."""

    def __init__(self, cases: Sequence[Case]) -> None:
        queries = [case for case in cases if case.ideal and case.judged]
        rows, firsts, places, grades, kept = [], [0], [], [], []
        for number, case in enumerate(queries):
            order = np.argsort(case.documents, kind="stable")
            rows.append(case.rows[order])
            documents, counts = np.unique(case.documents[order], return_counts=True)
            firsts += list(firsts[-1] + np.cumsum(counts))
            places += [(number, int(document)) for document in documents]
            own = {int(each): row for row, each in enumerate(case.documents)}
            grades += [case.grades[own[int(each)]] for each in documents]
            kept += [case.kept[own[int(each)]] for each in documents]
        self._rows, self._firsts = np.concatenate(rows), np.array(firsts[:-1])
        self._places = tuple(np.array(places).T)
        width = max(10, 1 + max(place for _, place in places))
        self._shape = (len(queries), width)
        self._grades = np.zeros(self._shape)
        self._grades[self._places] = grades
        self._kept = np.array(kept)
        self._discount = 1 / np.log2(np.arange(2, 12))
        ideal = [sorted(case.ideal, reverse=True)[:10] for case in queries]
        self._best = np.array([np.dot(each, self._discount[: len(each)]) for each in ideal])

    def __len__(self) -> int:
        return len(self._best)

    def ndcg(self, weights: Mapping[str, float]) -> float:
        """Return the mean nDCG@10; a document scores as its best passage."""
        best = np.maximum.reduceat(self._rows @ vector(weights), self._firsts)
        scores = np.full(self._shape, -np.inf)
        scores[self._places] = np.where(self._kept, best, -np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        found = np.isfinite(np.take_along_axis(scores, order, axis=1))
        gains = np.take_along_axis(self._grades, order, axis=1) * found
        return float((gains @ self._discount / self._best).mean())


def vector(weights: Mapping[str, float]) -> Vector:
    return np.array([weights.get(name, 0.0) for name in FEATURES])


class Trial:
    """Grid search: the measure of each set with each combination of weights."""

    def __init__(
        self,
        fixed: Mapping[str, float],
        axes: Mapping[str, Sequence[float]],
        measures: Mapping[str, Callable[[Mapping[str, float]], float]],
    ) -> None:
        self._names = tuple(axes)
        self._points = np.array(list(product(*axes.values())))
        self._sets = tuple(measures)
        self._gains = np.array(
            [
                [measure({**fixed, **self._named(point)}) for point in self._points]
                for measure in measures.values()
            ]
        )

    def _named(self, point: Numbers) -> dict[str, float]:
        return dict(zip(self._names, point.tolist(), strict=True))

    def best(self, names: Collection[str]) -> dict[str, float]:
        """Return the combination with the highest mean over these sets."""
        rows = [self._sets.index(name) for name in names]
        return self._named(self._points[self._gains[rows].mean(axis=0).argmax()])


def logistic(
    values: Numbers, labels: Numbers, counts: Numbers, penalty: float = RIDGE
) -> tuple[float, Numbers]:
    """Return bias and weights of the logistic regression, by Newton's method over standardized values."""
    values = values.reshape(len(labels), -1)
    middle, scale = values.mean(axis=0), values.std(axis=0) + 1e-9
    known = np.column_stack([np.ones(len(values)), (values - middle) / scale])
    counts = counts / counts.sum()
    slopes = np.zeros(known.shape[1])
    ridge = penalty * np.diag([0.0] + [1.0] * values.shape[1])
    for _ in range(50):
        likely = 1 / (1 + np.exp(-np.clip(known @ slopes, -30, 30)))
        gradient = known.T @ (counts * (likely - labels)) + ridge @ slopes
        curvature = (known * (counts * likely * (1 - likely))[:, None]).T @ known + ridge
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(slopes)), gradient)
        slopes = slopes - step
        if np.abs(step).max() < 1e-7:
            break
    own = slopes[1:] / scale
    return float(slopes[0] - own @ middle), own
