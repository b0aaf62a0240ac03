"""Chance is told from difference, the same in every run."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.eval.significance import ROUNDS, p_value

few = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12)


def test_four_questions_that_all_gain_may_do_so_by_chance_in_two_of_sixteen_ways() -> None:
    # All four coins up or all four down: 2 of 2⁴ ways are as far from 0 as what was seen.
    assert p_value([0, 0, 0, 0], [1, 1, 1, 1]) == 2 / 16


def test_a_gain_beside_a_loss_is_no_difference() -> None:
    assert p_value([0, 1], [1, 0]) == 1


def test_three_gains_and_a_loss() -> None:
    # |sum| ≥ 2 in 2 ways with all four alike and in 8 with three alike, of 16.
    assert p_value([0, 0, 0, 1], [1, 1, 1, 0]) == 10 / 16


def test_questions_that_are_answered_alike_do_not_count() -> None:
    assert p_value([0, 0, 0, 0] + [0.5] * 50, [1, 1, 1, 1] + [0.5] * 50) == 2 / 16
    assert p_value([0.3] * 9, [0.3] * 9) == 1


def test_many_questions_are_tossed_at_random_and_always_in_the_same_way() -> None:
    toss = random.Random(1)
    first = [toss.random() for _ in range(200)]
    better = [value + toss.uniform(-0.1, 0.2) for value in first]
    # Every gain has a loss as large beside it.
    same = [value + (0.1 if place % 2 else -0.1) for place, value in enumerate(first)]
    assert p_value(first, better) == 1 / (ROUNDS + 1)
    assert p_value(first, same) > 0.9
    some = first[:100] + better[100:120] + first[120:]
    assert p_value(first, some) == p_value(first, some)


def test_at_random_comes_near_to_what_all_ways_give() -> None:
    # 16 of 20 gain: by the binomial distribution 2·(C(20,16)+…+C(20,20))/2²⁰ = 0.0118.
    expected = 2 * (4845 + 1140 + 190 + 20 + 1) / 2**20
    assert p_value([0.0] * 20, [1.0] * 16 + [-1.0] * 4) == pytest.approx(expected, abs=0.003)


@given(few)
def test_which_of_two_comes_first_does_not_matter(pairs: list[tuple[float, float]]) -> None:
    first, second = [one for one, _ in pairs], [other for _, other in pairs]
    assert p_value(first, second) == pytest.approx(p_value(second, first))
    assert 0 < p_value(first, second) <= 1
