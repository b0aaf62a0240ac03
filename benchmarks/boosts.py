"""Compare formulas by which a boost changes scores: order of the results, and calibration.

The sets have no dates, so some documents are declared recent at random: those that answer a query as often as others (the
boost is noise), or `ratio` times as often (the boost is informative, and its factor right if it equals the ratio). Every
formula gets the same ones. Reported are nDCG@10, the expected calibration error, and the Brier score (mean squared error of the
probabilities) over the first ten results.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from benchmarks._measure import save, set_path
from marklight.eval.collection import open_collection
from marklight.eval.dataset import read_dataset
from marklight.eval.metrics import calibration_error, ndcg
from marklight.operations import ModeName

SETS = ("fastapi-anchors", "anthropic-docs", "cranfield")
SKIPPED = ("current_collection", "recency", "community", "confidence")
CANDIDATES, SHOWN, TRIALS = 20, 10, 20
FACTOR, RECENT = 1.2, 0.15
HELD = 0.9
RATIOS = (1.0, 1.2, 2.0)

Scores = Sequence[float]
Formula = Callable[[Scores, Scores], list[float]]


def product(scores: Scores, factors: Scores) -> list[float]:
    """Multiply, at most 1."""
    return [min(1.0, score * factor) for score, factor in zip(scores, factors, strict=True)]


def below_one(scores: Scores, factors: Scores) -> list[float]:
    """Multiply low scores, divide the distance of high ones to 1."""
    return [
        min(score * factor, 1 - (1 - score) / factor)
        for score, factor in zip(scores, factors, strict=True)
    ]


def odds(scores: Scores, factors: Scores) -> list[float]:
    """Multiply the odds of each result by itself."""
    return [
        score * factor / (1 + (factor - 1) * score)
        for score, factor in zip(scores, factors, strict=True)
    ]


def held(scores: Scores, factors: Scores) -> list[float]:
    """Multiply; from 0.9 on, compress linearly, so that 1 stays 1."""
    return [
        score * factor
        if score * factor <= HELD
        else 1 - (1 - score) * (1 - HELD) / (1 - HELD / factor)
        for score, factor in zip(scores, factors, strict=True)
    ]


def normalized(scores: Scores, factors: Scores) -> list[float]:
    """Multiply, and normalize over all results and the case that there is no answer (Bayes' theorem)."""
    total = 1 + sum((factor - 1) * score for score, factor in zip(scores, factors, strict=True))
    return [score * factor / total for score, factor in zip(scores, factors, strict=True)]


FORMULAS: dict[str, Formula] = {
    "none": lambda scores, _: list(scores),
    "product": product,
    "below one": below_one,
    "held": held,
    "odds": odds,
    "normalized": normalized,
}


def rankings(name: str, mode: ModeName) -> Iterator[list[tuple[float, str, bool]]]:
    """Yield the results of each query with an answer: score, document, and true if it is an answer."""
    dataset = read_dataset(set_path(name))
    with open_collection(dataset, mode) as collection:
        for query in dataset.queries:
            answer = collection.library.search(
                query.text,
                mode=mode,
                limit=CANDIDATES,
                refresh=False,
                settings={"search": {"skip": list(SKIPPED)}},
            )
            right = set(query.answers)
            ids = [(hit.score, collection.id_of(hit)) for hit in answer.hits]
            found = [
                (score, id, id in right)
                for score, id in ids
                if id not in set(query.sources) - right
            ]
            if found and right:
                yield found


def measure(lists: Sequence[list[tuple[float, str, bool]]], ratio: float) -> dict[str, Any]:
    gains: dict[str, list[float]] = {name: [] for name in FORMULAS}
    judged: dict[str, list[tuple[float, bool]]] = {name: [] for name in FORMULAS}
    chance = random.Random(1)
    for _ in range(TRIALS):
        for found in lists:
            recent = {
                path: chance.random() < RECENT * (ratio if right else 1) for _, path, right in found
            }
            factors = [FACTOR if recent[path] else 1.0 for _, path, _ in found]
            scores = [score for score, _, _ in found]
            for name, formula in FORMULAS.items():
                new = formula(scores, factors) if len(set(factors)) > 1 else list(scores)
                order = sorted(range(len(new)), key=lambda at: (-new[at], at))
                ranking = list(dict.fromkeys(found[at][1] for at in order))
                grades = {path: 1 for _, path, right in found if right}
                if grades:
                    gains[name].append(ndcg(ranking, grades, SHOWN))
                judged[name] += [(new[at], found[at][2]) for at in order[:SHOWN]]
    return {
        name: {
            "ndcg@10": round(sum(gains[name]) / len(gains[name]), 4),
            "ece": round(calibration_error(judged[name]), 4),
            "brier": round(
                sum((score - right) ** 2 for score, right in judged[name]) / len(judged[name]), 5
            ),
        }
        for name in FORMULAS
    }


def main() -> None:
    mode, *names = sys.argv[1:] or ["hybrid"]
    results: dict[str, Any] = {"mode": mode, "factor": FACTOR, "sets": {}}
    for name in names or SETS:
        lists = list(rankings(name, cast(ModeName, mode)))
        results["sets"][name] = {"queries": len(lists)}
        for ratio in RATIOS:
            rows = measure(lists, ratio)
            results["sets"][name][f"ratio {ratio:g}"] = rows
            for formula, row in rows.items():
                print(f"{name:<20} ratio {ratio:<4g} {formula:<11}", *row.values(), sep="  ")
    save("boosts", results)


if __name__ == "__main__":
    main()
