"""Every measure is what its definition says, by arithmetic on the page and by trec_eval."""

from __future__ import annotations

from math import log2

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from marklight.eval.metrics import (
    BY_QUESTION,
    Bin,
    calibration_error,
    ndcg,
    percentile,
    recall,
    reciprocal_rank,
    reliability,
    success,
)

RANKING = ["a", "b", "c", "d"]
GRADES = {"b": 3, "d": 1, "z": 2}
NAMES = [f"d{number}" for number in range(130)]


def test_gain_is_the_grade_and_shrinks_with_the_logarithm_of_the_rank() -> None:
    found = 3 / log2(2 + 1) + 1 / log2(4 + 1)
    best = 3 / log2(1 + 1) + 2 / log2(2 + 1) + 1 / log2(3 + 1)
    assert ndcg(RANKING, GRADES, 10) == pytest.approx(found / best)
    assert ndcg(RANKING, GRADES, 2) == pytest.approx(
        (3 / log2(2 + 1)) / (3 / log2(1 + 1) + 2 / log2(2 + 1))
    )


def test_the_first_relevant_one_counts_by_its_rank() -> None:
    assert reciprocal_rank(RANKING, GRADES, 10) == 1 / 2
    assert reciprocal_rank(RANKING, GRADES, 1) == 0
    assert success(RANKING, GRADES, 1) == 0
    assert success(RANKING, GRADES, 2) == 1


def test_recall_is_a_share_of_all_that_is_relevant() -> None:
    assert recall(RANKING, GRADES, 2) == 1 / 3
    assert recall(RANKING, GRADES) == 2 / 3


def test_nothing_found_is_nothing_gained() -> None:
    assert {name: measure([], GRADES) for name, measure in BY_QUESTION.items()} == dict.fromkeys(
        BY_QUESTION, 0.0
    )


rankings = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=120)
judgements = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4), min_size=1, max_size=30)


@given(rankings, judgements)
def test_all_measures_agree_with_trec_eval(ranking: list[str], grades: dict[str, int]) -> None:
    theirs = {
        "ndcg@10": "ndcg_cut_10",
        "ndcg@5": "ndcg_cut_5",
        "success@1": "success_1",
        "recall@10": "recall_10",
        "recall@100": "recall_100",
    }
    assert set(theirs) | {"mrr@10"} == set(BY_QUESTION)
    expected = trec_eval(ranking, grades)
    for name, their_name in theirs.items():
        assert BY_QUESTION[name](ranking, grades) == pytest.approx(expected[their_name]), name
    # trec_eval has no depth for it: it is given the first ten alone.
    first = trec_eval(ranking[:10], grades)["recip_rank"]
    assert BY_QUESTION["mrr@10"](ranking, grades) == pytest.approx(first)


def trec_eval(ranking: list[str], grades: dict[str, int]) -> dict[str, float]:
    measures = {"ndcg_cut.5,10", "recall.10,100", "success.1", "recip_rank"}
    scores = {name: float(len(ranking) - place) for place, name in enumerate(ranking)}
    found: dict[str, float] = pytrec_eval.RelevanceEvaluator({"q": grades}, measures).evaluate(
        {"q": scores}
    )["q"]
    return found


@given(rankings, judgements)
def test_every_measure_is_a_share_and_the_best_order_has_all_of_it(
    ranking: list[str], grades: dict[str, int]
) -> None:
    best = sorted(grades, key=lambda name: -grades[name])
    for name, measure in BY_QUESTION.items():
        assert 0 <= measure(ranking, grades) <= 1
        if not name.startswith("recall@10"):
            assert measure(best, grades) == pytest.approx(1)


def test_the_calibration_error_is_how_far_scores_are_from_shares() -> None:
    # Two of four that say 0.8 are right, and none of the one that says 0.1.
    results = [(0.8, True), (0.8, True), (0.8, False), (0.8, False), (0.1, False)]
    assert calibration_error(results) == pytest.approx(4 / 5 * (0.8 - 0.5) + 1 / 5 * (0.1 - 0))
    held = reliability(results)
    assert held[8] == Bin(4, 0.8, 0.5)
    assert [each.count for each in held] == [0, 1, 0, 0, 0, 0, 0, 0, 4, 0]


def test_scores_that_are_certain_and_right_have_no_error() -> None:
    assert calibration_error([(1.0, True), (0.0, False)]) == 0
    assert calibration_error([]) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans())))
def test_every_result_is_in_one_bin_and_the_error_is_a_share(
    results: list[tuple[float, bool]],
) -> None:
    held = reliability(results)
    assert sum(each.count for each in held) == len(results)
    assert sum(each.count * each.relevant for each in held) == pytest.approx(
        sum(right for _, right in results)
    )
    assert 0 <= calibration_error(results) <= 1 + 1e-9


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([5, 1, 2, 4, 3], 0.5) == 3
    assert percentile([5, 1, 2, 4, 3], 0.95) == 5
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([7], 0.5) == 7
    assert percentile([], 0.5) == 0
