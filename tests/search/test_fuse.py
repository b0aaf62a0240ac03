"""Fusion, with figures that a reader can check."""

import pytest

from marklight.answer import Hit, Query
from marklight.ports import Tools
from marklight.search.fuse.reciprocal import Reciprocal
from marklight.search.fuse.weighted_sum import WeightedSum
from tests.making import chunk, hits_of, no_reader

TOOLS = Tools(no_reader())
QUERY = Query("anything")


def ranked(*ids: str) -> tuple[Hit, ...]:
    return tuple(Hit(chunk(id), 1.0 / rank) for rank, id in enumerate(ids, 1))


def sums(hits: tuple[Hit, ...]) -> dict[str, float]:
    return {hit.chunk.id: hit.why[-1].value for hit in hits}


def test_ranks_three_five_and_two_add_up() -> None:
    lists = {
        "semantic": ranked("x", "y", "a"),
        "keyword": ranked("p", "q", "r", "s", "a"),
        "graph": ranked("z", "a"),
    }
    found = sums(Reciprocal()(lists, QUERY, TOOLS))
    assert found["a"] == pytest.approx(1 / 63 + 1 / 65 + 1 / 62)
    assert found["a"] == pytest.approx(0.0474, abs=5e-5)


def test_ranks_one_and_ten_add_up() -> None:
    lists = {"semantic": ranked("a"), "keyword": ranked(*"bcdefghij", "a")}
    assert sums(Reciprocal()(lists, QUERY, TOOLS))["a"] == pytest.approx(0.0307, abs=5e-5)


def test_weights_count() -> None:
    lists = {"semantic": ranked("x", "y", "a"), "keyword": ranked("p", "q", "r", "s", "a")}
    stage = Reciprocal(weights={"semantic": 1.2, "keyword": 0.8})
    found = sums(stage(lists, QUERY, TOOLS))["a"]
    assert found == pytest.approx(1.2 / 63 + 0.8 / 65)
    assert found == pytest.approx(0.0313, abs=6e-5)


def test_first_in_every_list_is_certain_by_rank() -> None:
    lists = {"semantic": ranked("a"), "keyword": ranked("a")}
    assert Reciprocal()(lists, QUERY, TOOLS)[0].score == pytest.approx(1.0)


def test_the_weighted_sum_of_the_mission() -> None:
    lists = {
        "keyword": hits_of({"42": 3.2, "43": 5.8, "44": 1.1}),
        "semantic": hits_of({"42": 0.92, "43": 0.78, "45": 0.85}),
    }
    found = WeightedSum()(lists, QUERY, TOOLS)
    assert [hit.chunk.id for hit in found] == ["43", "42", "45", "44"]
    assert [round(hit.score, 2) for hit in found] == [0.87, 0.77, 0.51, 0.08]
    assert found[0].score == pytest.approx(0.4 * 5.8 / 5.8 + 0.6 * 0.78)


def test_one_list_alone_keeps_its_order_and_ends_at_one() -> None:
    found = WeightedSum()({"keyword": hits_of({"a": 8.0, "b": 2.0})}, QUERY, TOOLS)
    assert [(hit.chunk.id, hit.score) for hit in found] == [("a", 1.0), ("b", 0.25)]


def test_a_fused_hit_remembers_both_retrievers() -> None:
    lists = {
        "keyword": hits_of({"a": 2.0}, by="keyword"),
        "semantic": hits_of({"a": 0.5}, by="semantic"),
    }
    (hit,) = WeightedSum()(lists, QUERY, TOOLS)
    assert [why.stage for why in hit.why] == ["keyword", "semantic", "weighted_sum"]
