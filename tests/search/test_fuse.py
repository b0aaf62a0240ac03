"""Fusion, with figures that a reader can check."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Hit
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.features import POOL_SIZE
from marklight.search.fuse import Reciprocal, ScoreAware, WeightedSum
from tests.making import library, no_snapshot, pool_of, write
from tests.search.stage_settings import build_stage

TOOLS = Tools(no_snapshot())
QUERY = Query("install guide")
"""Navigational: no factor on the weight of a retriever."""


def ranked(*ids: str) -> dict[str, float]:
    return {id: 1.0 / rank for rank, id in enumerate(ids, 1)}


def sums(hits: tuple[Hit, ...]) -> dict[str, float]:
    return {hit.chunk.id: hit.rank_sum or 0.0 for hit in hits}


def cosine_of(hit: Hit) -> float:
    return next(why.value for why in hit.why if why.stage == "semantic")


def test_ranks_three_five_and_two_add_up() -> None:
    lists = {
        "semantic": ranked("x", "y", "a"),
        "keyword": ranked("p", "q", "r", "s", "a"),
        "code": ranked("z", "a"),
    }
    found = sums(Reciprocal()(pool_of(lists), QUERY, {}, TOOLS))
    assert found["a"] == pytest.approx(1 / 63 + 1 / 65 + 1 / 62)
    assert found["a"] == pytest.approx(0.0474, abs=5e-5)


def test_ranks_one_and_ten_add_up() -> None:
    lists = {"semantic": ranked("a"), "keyword": ranked(*"bcdefghij", "a")}
    assert sums(Reciprocal()(pool_of(lists), QUERY, {}, TOOLS))["a"] == pytest.approx(
        0.0307, abs=5e-5
    )


def test_rank_fusion_uses_the_factors_of_the_user() -> None:
    lists = {"semantic": ranked("x", "y", "a"), "keyword": ranked("p", "q", "r", "s", "a")}
    found = sums(Reciprocal()(pool_of(lists), QUERY, {"semantic": 1.2, "keyword": 0.8}, TOOLS))["a"]
    assert found == pytest.approx(1.2 / 63 + 0.8 / 65)
    assert found == pytest.approx(0.0313, abs=6e-5)


def test_first_in_every_list_scores_one_in_rank_fusion() -> None:
    lists = {"semantic": ranked("a"), "keyword": ranked("a")}
    assert Reciprocal()(pool_of(lists), QUERY, {}, TOOLS)[0].score == pytest.approx(1.0)


def test_a_weighted_sum_of_normalized_scores() -> None:
    lists = {
        "keyword": {"42": 3.2, "43": 5.8, "44": 1.1},
        "semantic": {"42": 0.92, "43": 0.78, "45": 0.85},
    }
    found = WeightedSum()(pool_of(lists), QUERY, {}, TOOLS)
    assert [hit.chunk.id for hit in found] == ["43", "42", "45", "44"]
    assert [round(hit.score, 2) for hit in found] == [0.87, 0.77, 0.51, 0.08]
    assert found[0].score == pytest.approx(0.4 * 5.8 / 5.8 + 0.6 * 0.78)


def test_one_list_alone_keeps_its_order_and_ends_at_one() -> None:
    found = WeightedSum()(pool_of({"keyword": {"a": 8.0, "b": 2.0}}), QUERY, {}, TOOLS)
    assert [(hit.chunk.id, hit.score) for hit in found] == [("a", 1.0), ("b", 0.25)]


def test_the_trace_of_a_fused_hit_has_both_retrievers() -> None:
    lists = {
        "keyword": {"a": 2.0},
        "semantic": {"a": 0.5},
    }
    (hit,) = WeightedSum()(pool_of(lists), QUERY, {}, TOOLS)
    assert [why.stage for why in hit.why] == ["keyword", "semantic", "weighted_sum"]


def test_a_factual_query_weights_keywords() -> None:
    lists = {"keyword": {"a": 2.0}, "semantic": {"a": 0.5, "b": 0.5}}
    found = {
        hit.chunk.id: hit.score
        for hit in WeightedSum()(pool_of(lists), Query("getUserById"), {}, TOOLS)
    }
    # 0.4 x 1.5 = 0.6 of keyword to 0.6 of meaning: one half each.
    assert found == pytest.approx({"a": 0.5 * 2.0 / 2.0 + 0.5 * 0.5, "b": 0.5 * 0.5})


def test_an_exploratory_query_weights_vectors() -> None:
    lists = {"keyword": ranked("a"), "semantic": ranked("b")}
    found = sums(Reciprocal()(pool_of(lists), Query("how do tokens expire?"), {}, TOOLS))
    # 1 and 1.3 scaled to a sum of 2.
    assert found == pytest.approx({"a": 2 / 2.3 / 61, "b": 2.6 / 2.3 / 61})


@pytest.mark.parametrize("stage", [WeightedSum(), ScoreAware(), Reciprocal()])
def test_the_weight_of_an_empty_list_goes_to_the_others(stage: Any) -> None:
    alone = stage(pool_of({"keyword": {"a": 8.0, "b": 2.0}}), QUERY, {}, TOOLS)
    beside = {"semantic": {}, "keyword": {"a": 8.0, "b": 2.0}, "code": {}}
    assert stage(pool_of(beside), QUERY, {}, TOOLS) == alone
    assert alone[0].score == pytest.approx(1.0)


def test_a_list_without_weight_counts_if_it_is_alone() -> None:
    found = WeightedSum()(
        pool_of({"keyword": {"a": 8.0, "b": 2.0}}), QUERY, {"keyword": 0.0}, TOOLS
    )
    assert [(hit.chunk.id, hit.score) for hit in found] == [("a", 1.0), ("b", 0.25)]


def test_a_list_with_flat_scores_counts_less() -> None:
    lists = {
        "keyword": dict.fromkeys("abcdefghij", 6.0),
        "semantic": {"a": 0.75, "b": 0.825, "c": 0.9},
    }
    # All ten keyword scores are equal: the floor remains. Cosines stretch to 0, 0.5 and 1, which vary by 1/6.
    keyword, semantic = 0.4 * 0.1, 0.6 * (1 / 6) / 0.1
    parts = {"a": keyword, "b": keyword + semantic * 0.5, "c": keyword + semantic}
    best = (keyword + semantic * 0.9) / (keyword + semantic)
    found = {hit.chunk.id: hit.score for hit in ScoreAware()(pool_of(lists), QUERY, {}, TOOLS)}
    assert {id: found[id] for id in "abc"} == pytest.approx(
        {id: best * (0.25 + 0.75 * part / parts["c"]) for id, part in parts.items()}
    )


def test_the_only_keyword_candidate_has_a_high_variance() -> None:
    lists = {
        "keyword": {"worded": 4.0},
        "semantic": {"a": 0.70, "b": 0.69, "c": 0.68, "worded": 0.66},
    }
    # Beside nine passages without the word, 1 varies by 0.9 x 0.1: nine tenths of the weight count.
    assert ScoreAware()(pool_of(lists), QUERY, {}, TOOLS)[0].chunk.id == "worded"


def test_stretched_cosines_count_as_much_as_keyword_scores() -> None:
    lists = {
        "keyword": {"worded": 5.0, "meant": 2.0},
        "semantic": {"meant": 0.84, "worded": 0.75, "neither": 0.70},
    }
    assert WeightedSum()(pool_of(lists), QUERY, {}, TOOLS)[0].chunk.id == "worded"
    assert ScoreAware()(pool_of(lists), QUERY, {}, TOOLS)[0].chunk.id == "meant"


def test_lists_that_are_all_flat_keep_their_weights() -> None:
    lists = {
        "keyword": dict.fromkeys("abcdefghij", 3.0),
        "semantic": {"b": 0.7, "z": 0.7},
    }
    found = {hit.chunk.id: hit.score for hit in ScoreAware()(pool_of(lists), QUERY, {}, TOOLS)}
    best = 0.4 + 0.6 * 0.7
    assert {id: found[id] for id in "abz"} == pytest.approx(
        {"a": best * (0.25 + 0.75 * 0.4), "b": best, "z": best * (0.25 + 0.75 * 0.6)}
    )


def test_cosines_alone_are_not_stretched() -> None:
    found = ScoreAware()(
        pool_of({"semantic": {"a": 0.9, "b": 0.8}, "keyword": {}}), QUERY, {}, TOOLS
    )
    assert [(hit.chunk.id, hit.score) for hit in found] == [("a", 0.9), ("b", 0.8)]


@pytest.mark.parametrize("stage", [WeightedSum(), ScoreAware(), Reciprocal()])
@given(
    scores=st.dictionaries(
        st.sampled_from(["keyword", "semantic", "code"]),
        st.dictionaries(st.text("abc", min_size=1, max_size=2), st.floats(-1, 30), max_size=5),
    ),
    factors=st.dictionaries(st.sampled_from(["keyword", "semantic", "code"]), st.floats(0.01, 100)),
)
def test_scores_stay_between_0_and_1_with_any_factors(
    stage: Any, scores: dict[str, dict[str, float]], factors: dict[str, float]
) -> None:
    found = stage(pool_of(scores), QUERY, factors, TOOLS)
    assert {hit.chunk.id for hit in found} == {id for each in scores.values() for id in each}
    assert all(0.0 <= hit.score <= 1.0 for hit in found)


def test_a_negative_constant_is_an_error() -> None:
    with pytest.raises(SettingsError):
        build_stage(Reciprocal, k=-1.0)


def test_a_keyword_candidate_gets_its_own_cosine(tmp_path: Path) -> None:
    pages = {f"{at}.md": f"# {at}\n\nabout {at} and nothing else\n" for at in range(POOL_SIZE + 10)}
    with library(write(tmp_path, {**pages, "rare.md": "# rare\n\nxylophone\n"})) as lib:
        lib.index()
        answer = lib.search("xylophone about 3", limit=1, explain=True)
        whole = lib.search("xylophone about 3", limit=100, min_confidence=0.0, explain=True)
    known = {hit.chunk.id: cosine_of(hit) for hit in whole.hits}
    for hit in answer.hits:
        assert cosine_of(hit) == pytest.approx(known[hit.chunk.id], abs=1e-6)
