"""Metrics equal their definitions, by arithmetic and by trec_eval; the significance test is exact and repeatable."""

from __future__ import annotations

import random
from math import log2

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from marklight.eval.metrics import (
    PER_QUERY,
    ROUNDS,
    Bin,
    calibration_error,
    ndcg,
    p_value,
    percentile,
    recall,
    reciprocal_rank,
    reliability,
    success,
)

RANKING = ["a", "b", "c", "d"]
GRADES = {"b": 3, "d": 1, "z": 2}
NAMES = [f"d{number}" for number in range(130)]


def test_ndcg_discounts_grades_by_the_logarithm_of_the_rank() -> None:
    gain = 3 / log2(2 + 1) + 1 / log2(4 + 1)
    best = 3 / log2(1 + 1) + 2 / log2(2 + 1) + 1 / log2(3 + 1)
    assert ndcg(RANKING, GRADES, 10) == pytest.approx(gain / best)
    assert ndcg(RANKING, GRADES, 2) == pytest.approx(
        (3 / log2(2 + 1)) / (3 / log2(1 + 1) + 2 / log2(2 + 1))
    )


def test_reciprocal_rank_is_that_of_the_first_relevant_result() -> None:
    assert reciprocal_rank(RANKING, GRADES, 10) == 1 / 2
    assert reciprocal_rank(RANKING, GRADES, 1) == 0
    assert success(RANKING, GRADES, 1) == 0
    assert success(RANKING, GRADES, 2) == 1


def test_recall_is_the_share_of_relevant_documents_found() -> None:
    assert recall(RANKING, GRADES, 2) == 1 / 3
    assert recall(RANKING, GRADES) == 2 / 3


def test_an_empty_ranking_scores_zero() -> None:
    assert {name: measure([], GRADES) for name, measure in PER_QUERY.items()} == dict.fromkeys(
        PER_QUERY, 0.0
    )


rankings = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=120)
judgements = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4), min_size=1, max_size=30)


@given(rankings, judgements)
def test_all_metrics_agree_with_trec_eval(ranking: list[str], grades: dict[str, int]) -> None:
    theirs = {
        "ndcg@10": "ndcg_cut_10",
        "ndcg@5": "ndcg_cut_5",
        "success@1": "success_1",
        "recall@10": "recall_10",
        "recall@100": "recall_100",
    }
    assert set(theirs) | {"mrr@10"} == set(PER_QUERY)
    expected = trec_eval(ranking, grades)
    for name, their_name in theirs.items():
        assert PER_QUERY[name](ranking, grades) == pytest.approx(expected[their_name]), name
    # trec_eval has no depth for it, so it gets only the first ten.
    first = trec_eval(ranking[:10], grades)["recip_rank"]
    assert PER_QUERY["mrr@10"](ranking, grades) == pytest.approx(first)


def trec_eval(ranking: list[str], grades: dict[str, int]) -> dict[str, float]:
    measures = {"ndcg_cut.5,10", "recall.10,100", "success.1", "recip_rank"}
    scores = {name: float(len(ranking) - place) for place, name in enumerate(ranking)}
    values: dict[str, float] = pytrec_eval.RelevanceEvaluator({"q": grades}, measures).evaluate(
        {"q": scores}
    )["q"]
    return values


@given(rankings, judgements)
def test_metrics_are_between_0_and_1_and_1_for_the_ideal_ranking(
    ranking: list[str], grades: dict[str, int]
) -> None:
    best = sorted(grades, key=lambda name: -grades[name])
    for name, measure in PER_QUERY.items():
        assert 0 <= measure(ranking, grades) <= 1
        if not name.startswith("recall@10"):
            assert measure(best, grades) == pytest.approx(1)


def test_calibration_error_is_the_distance_of_scores_from_relevance() -> None:
    # Two of four results with score 0.8 are relevant, and not the one with 0.1.
    results = [(0.8, True), (0.8, True), (0.8, False), (0.8, False), (0.1, False)]
    assert calibration_error(results) == pytest.approx(4 / 5 * (0.8 - 0.5) + 1 / 5 * (0.1 - 0))
    bins = reliability(results)
    assert bins[8] == Bin(4, 0.8, 0.5)
    assert [bin.count for bin in bins] == [0, 1, 0, 0, 0, 0, 0, 0, 4, 0]


def test_certain_and_correct_scores_have_no_calibration_error() -> None:
    assert calibration_error([(1.0, True), (0.0, False)]) == 0
    assert calibration_error([]) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans())))
def test_every_result_is_in_one_bin_and_the_error_is_at_most_1(
    results: list[tuple[float, bool]],
) -> None:
    bins = reliability(results)
    assert sum(bin.count for bin in bins) == len(results)
    assert sum(bin.count * bin.relevant for bin in bins) == pytest.approx(
        sum(right for _, right in results)
    )
    assert 0 <= calibration_error(results) <= 1 + 1e-9


def test_percentiles_use_the_nearest_rank() -> None:
    assert percentile([5, 1, 2, 4, 3], 0.5) == 3
    assert percentile([5, 1, 2, 4, 3], 0.95) == 5
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([7], 0.5) == 7
    assert percentile([], 0.5) == 0


VALUE_PAIRS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12)


def test_p_value_of_four_equal_gains_is_two_of_sixteen_permutations() -> None:
    # All four signs positive or all negative: 2 of 2⁴ permutations are as extreme.
    assert p_value([0, 0, 0, 0], [1, 1, 1, 1]) == 2 / 16


def test_p_value_of_a_gain_and_an_equal_loss_is_one() -> None:
    assert p_value([0, 1], [1, 0]) == 1


def test_p_value_of_three_gains_and_a_loss() -> None:
    # |sum| ≥ 2 in 2 permutations with four equal signs and 8 with three, of 16.
    assert p_value([0, 0, 0, 1], [1, 1, 1, 0]) == 10 / 16


def test_p_value_ignores_queries_without_a_difference() -> None:
    assert p_value([0, 0, 0, 0] + [0.5] * 50, [1, 1, 1, 1] + [0.5] * 50) == 2 / 16
    assert p_value([0.3] * 9, [0.3] * 9) == 1


def test_p_value_of_many_queries_is_sampled_and_repeatable() -> None:
    generator = random.Random(1)
    first = [generator.random() for _ in range(200)]
    better = [value + generator.uniform(-0.1, 0.2) for value in first]
    # Every gain is balanced by a loss.
    same = [value + (0.1 if place % 2 else -0.1) for place, value in enumerate(first)]
    assert p_value(first, better) == 1 / (ROUNDS + 1)
    assert p_value(first, same) > 0.9
    some = first[:100] + better[100:120] + first[120:]
    assert p_value(first, some) == p_value(first, some)


def test_sampled_p_value_is_close_to_the_binomial_distribution() -> None:
    # 16 of 20 gain: by the binomial distribution 2·(C(20,16)+…+C(20,20))/2²⁰ = 0.0118.
    expected = 2 * (4845 + 1140 + 190 + 20 + 1) / 2**20
    assert p_value([0.0] * 20, [1.0] * 16 + [-1.0] * 4) == pytest.approx(expected, abs=0.003)


@given(VALUE_PAIRS)
def test_p_value_is_symmetric(pairs: list[tuple[float, float]]) -> None:
    first, second = [left for left, _ in pairs], [right for _, right in pairs]
    assert p_value(first, second) == pytest.approx(p_value(second, first))
    assert 0 < p_value(first, second) <= 1
