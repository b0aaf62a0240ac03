"""Calibration of rank fusion."""

from __future__ import annotations

from math import exp

import pytest

from marklight.ports import Tools
from marklight.query import Query
from marklight.search.fuse import Calibrate, Reciprocal, WeightedSum
from tests.making import no_snapshot, pool_of

TOOLS = Tools(no_snapshot())
QUERY = Query("anything")


@pytest.mark.parametrize(
    ("lists", "expected"), [(1, 0.0578), (2, 0.4178), (3, 0.8935)], ids=["one", "two", "three"]
)
def test_the_probability_of_the_first_in_one_two_and_three_lists(
    lists: int, expected: float
) -> None:
    fused = Reciprocal()(
        pool_of({str(each): {"a": 1.0} for each in range(lists)}), QUERY, {}, TOOLS
    )
    (hit,) = Calibrate()(QUERY, fused, TOOLS)
    assert hit.score == pytest.approx(1 / (1 + exp(-150 * (lists / 61 - 0.035))))
    assert hit.score == pytest.approx(expected, abs=5e-5)
    assert hit.why[-1].stage == "calibrate"


def test_calibration_keeps_the_order() -> None:
    fused = Reciprocal()(pool_of({"keyword": {"a": 3.0, "b": 2.0, "c": 1.0}}), QUERY, {}, TOOLS)
    found = Calibrate()(QUERY, fused, TOOLS)
    assert [hit.chunk.id for hit in found] == ["a", "b", "c"]
    assert found[0].score > found[1].score > found[2].score


def test_scores_of_another_fusion_are_unchanged_with_one_notice() -> None:
    message: list[str] = []
    fused = WeightedSum()(pool_of({"keyword": {"a": 3.0, "b": 2.0}}), QUERY, {}, TOOLS)
    assert Calibrate()(QUERY, fused, Tools(no_snapshot(), notify=message.append)) == fused
    assert len(message) == 1
    assert "reciprocal" in message[0]
