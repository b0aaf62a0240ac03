"""Learned fusion: weights, softmax and calibrated probabilities."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import exp, log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import marklight
from marklight import models
from marklight.models.fake import FakeEmbedder
from marklight.ports import Tools
from marklight.query import Mode, Query
from marklight.search.features import POOL_SIZE, QueryFeatures
from marklight.search.fuse import Learned
from marklight.search.probability import (
    ANY_MODEL,
    NON_LATIN,
    FusionWeights,
    LogisticCurve,
    all_weights,
    is_calibrated,
    weights_for,
    with_probabilities,
)
from tests.making import library, write
from tests.search.building import listed

FLAT = QueryFeatures(
    best_cosine=8.0,
    top5_cosine=7.0,
    cosine_range=1.0,
    best_coverage=0.5,
    top3_coverage=0.4,
    query_length=log(5),
    corpus_size=log(1001),
    many_near=0.0,
    many_near_length=0.0,
    absent_share=0.0,
)


def weights(temperature: float = 1.0) -> FusionWeights:
    return FusionWeights(
        {"lexical": 2.0},
        temperature,
        answer=LogisticCurve(0.0, {"best_coverage": 2.0}),
        single_term_answer=LogisticCurve(-100.0, {}),
        relevance=LogisticCurve(0.0, {"log_share": 1.0}),
    )


def scored(
    sums: dict[str, float],
    rivals: list[str],
    query: QueryFeatures,
    certain: bool = False,
    weights: FusionWeights = weights(),  # noqa: B008
) -> tuple[float, dict[str, float]]:
    """The answer probability, and the score of each passage."""
    found = weights.probabilities(
        list(sums.values()), [sums[id] for id in rivals], query, certain=certain
    )
    return found.answer, dict(zip(sums, found.scores, strict=True))


def test_a_score_is_answer_probability_times_relevance() -> None:
    answer, likely = scored({"a": 1.0, "b": 0.0}, ["a", "b"], FLAT)
    assert answer == pytest.approx(1 / (1 + exp(-2 * 0.5)))
    # Of the two sums e and 1: the share of the first is e / (e + 1), and odds of that share.
    share = exp(1) / (exp(1) + 1)
    assert likely["a"] == pytest.approx(answer * share / (1 + share))
    assert likely["b"] == pytest.approx(answer * (1 - share) / (2 - share))


def test_a_certain_answer_has_probability_one() -> None:
    given = {"a": 1.0, "b": 0.0}, ["a", "b"], FLAT
    doubted, likely = scored(*given)
    answer, certain = scored(*given, certain=True)
    assert answer == 1.0
    assert certain == pytest.approx({id: each / doubted for id, each in likely.items()})


def test_a_single_term_has_an_answer_curve_of_its_own() -> None:
    several, _ = scored({"a": 1.0}, ["a"], FLAT)
    single, _ = scored({"a": 1.0}, ["a"], FLAT._replace(query_length=log(1 + 1)))
    assert several > 0.5
    assert single < 1e-9


def test_an_answer_is_likely_if_a_query_exceeds_unrelated_queries_in_its_library() -> None:
    one = replace(
        weights(),
        answer=LogisticCurve(0.0, {"excess_best_cosine": 2.0}),
        unrelated={"best_cosine": (3.0, 0.5)},
    )
    level = {"best_cosine": 7.0, "corpus_size": log(1001)}

    def answer(query: QueryFeatures, level: dict[str, float]) -> float:
        return one.probabilities([1.0], [1.0], query, level=level).answer

    assert answer(FLAT, level) == pytest.approx(1 / (1 + exp(-2 * (8 - 7))))
    # Filters leave a tenth of the passages, whose nearest is less near by chance.
    filtered = FLAT._replace(corpus_size=log(1001) - log(10))
    expected = 8 - (7 - 0.5 * log(10))
    assert answer(filtered, level) == pytest.approx(1 / (1 + exp(-2 * expected)))
    # Without a measured level, it is estimated from the size.
    expected = 8 - (3 + 0.5 * log(1001))
    assert answer(FLAT, {}) == pytest.approx(1 / (1 + exp(-2 * expected)))


def test_passages_of_one_document_do_not_compete() -> None:
    _, alone = scored({"a": 1.0}, ["a"], FLAT)
    _, beside = scored({"a": 1.0, "same": 0.9}, ["a"], FLAT)
    assert beside["a"] == alone["a"]


FINITE = st.floats(-30, 30)
QUERY_FEATURES = st.builds(
    QueryFeatures,
    *(st.floats(0, 10) for _ in range(3)),
    *(st.floats(0, 1) for _ in range(2)),
    st.floats(log(2), 5),
    st.floats(0, 15),
    *(st.floats(0, 10) for _ in range(2)),
)


@pytest.mark.parametrize("mode", all_weights())
@given(
    sums=st.dictionaries(st.text("abc", min_size=1), st.floats(-30, 30), min_size=1),
    seen=QUERY_FEATURES,
)
def test_learned_curves_are_monotonic_and_stay_between_0_and_1(
    mode: str, sums: dict[str, float], seen: QueryFeatures
) -> None:
    for one in all_weights()[mode].values():
        order = sorted(sums, key=lambda each: -sums[each])
        answer, likely = scored(sums, order, seen, weights=one)
        assert 0 <= answer <= 1
        assert all(0 <= each <= answer for each in likely.values())
        ranked = [likely[each] for each in order]
        assert ranked == sorted(ranked, reverse=True)


def test_every_mode_has_weights_for_any_model_and_for_the_default_model() -> None:
    for mode in ("hybrid", "semantic"):
        assert is_calibrated(mode, models.load().fingerprint)
        assert not is_calibrated(mode, "another")
        assert weights_for(mode, "another") == all_weights()[mode][ANY_MODEL]
    assert weights_for("keyword", "") == all_weights()["keyword"][ANY_MODEL]
    assert weights_for("code", "") == all_weights()["code"][ANY_MODEL]


def test_weights_for_any_model_use_no_absolute_cosines() -> None:
    for mode in ("hybrid", "semantic"):
        one = all_weights()[mode][ANY_MODEL]
        used = {
            *one.features,
            *one.answer.weights,
            *one.single_term_answer.weights,
            *one.relevance.weights,
        }
        assert not used & {
            *("cosine", "best_cosine", "top5_cosine", "cosine_range"),
            *("many_near", "many_near_length"),
        }


def test_a_query_in_another_script_needs_matching_terms(tmp_path: Path) -> None:
    pages = {"a.md": "# 数据库\n\n备份保留三十天。\n", "b.md": "# 厨房\n\n咖啡机每周清洗。\n"}
    settings = {"model": {"multilingual": "never"}}
    with marklight.open(write(tmp_path, pages), settings) as lib:
        lib.index()
        found = lib.search("备份保留多久")
        assert found.hits[0].chunk.path == "a.md"
        assert any("does not know Chinese" in notice for notice in found.notices)
        # How are roses pruned? Cosines alone are as sure of this one.
        roses = lib.search("玫瑰怎么修剪")
        assert not roses.hits
        assert roses.abstained
        assert NON_LATIN not in lib.search("how do I prune roses, à la carte").notices


COPIES = {f"{page}.md": "# Copy\n\nReturn to an earlier revision.\n" for page in "abcd"}


def test_exact_duplicates_do_not_lower_the_probability(tmp_path: Path) -> None:
    scores = []
    for pages in (COPIES, {"a.md": COPIES["a.md"]}):
        with library(write(tmp_path / str(len(pages)), pages)) as lib:
            lib.index()
            with lib.engine.snapshot() as snapshot:
                tools = Tools(snapshot, FakeEmbedder())
                same = dict.fromkeys((path[0] for path in pages), 0.9)
                lists = {"semantic": listed(tools, **same), "keyword": ()}
                scores += [
                    hit.score
                    for hit in Learned()(tools.pool(lists), Query("earlier revision"), {}, tools)
                ]
    assert scores == pytest.approx([scores[0]] * 5)


def test_a_score_does_not_depend_on_the_number_of_candidates(tmp_path: Path) -> None:
    titles = ["Page"] * POOL_SIZE + ["Wide question"] * 5
    pages = {f"{chr(0x4E00 + at)}.md": f"# {title}\n\n{at}\n" for at, title in enumerate(titles)}
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            tools = Tools(snapshot, FakeEmbedder())
            cosines = {path[0]: 0.5 - 0.0001 * at if at else 0.9 for at, path in enumerate(pages)}
            near = listed(tools, **cosines)
            few, many = (
                Learned()(
                    tools.pool({"semantic": near[:depth], "keyword": ()}),
                    Query("wide question"),
                    {},
                    tools,
                )
                for depth in (POOL_SIZE, POOL_SIZE + 5)
            )
    # What only the longer list reaches is called so and comes among the first ten.
    assert "Wide question" in {hit.chunk.title for hit in many[:10]}
    scores = {hit.chunk.id: hit.score for hit in many}
    assert [scores[hit.chunk.id] for hit in few] == pytest.approx([hit.score for hit in few])


def test_learned_fusion_records_every_part_of_a_score(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, a=0.9, b=0.8, c=0.7),
        "keyword": listed(tools, a=6.0, b=3.0),
    }
    first, *_ = Learned()(tools.pool(lists), Query("rollback replicas"), {}, tools)
    message = {why.stage: why.value for why in first.why}
    one = all_weights()["hybrid"][ANY_MODEL]
    # Features that add nothing are left out: the path has none of the words.
    nothing = {"path"}
    steps = {"log_share", "relevance_base", "relevance", "answer", "learned"}
    reported = {"semantic", "keyword", *one.features, *steps} - nothing
    assert reported == set(message)
    assert message["title"] == pytest.approx(one.features["title"] * 0.25)
    assert message["learned"] == first.score < message["answer"]


def test_the_trace_has_the_keyword_score_once(tools: Tools) -> None:
    lists = {"keyword": listed(tools, a=6.0, b=3.0)}
    first, *_ = Learned()(tools.pool(lists), Query("rollback replicas"), {}, tools)
    assert [why.value for why in first.why if why.stage == "keyword"] == [6.0]


@pytest.mark.parametrize(
    "kind, lists",
    [("keyword", ("keyword",)), ("keyword", ("keyword", "graph")), ("semantic", ("semantic",))],
)
def test_a_single_list_keeps_its_order(tools: Tools, kind: str, lists: tuple[str, ...]) -> None:
    hits = listed(tools, a=0.5, b=0.8, c=0.7)
    given = {name: hits if name == kind else () for name in lists}
    found = Learned()(tools.pool(given), Query("rollback replicas"), {}, tools)
    assert [hit.chunk.path for hit in found] == ["b.md", "c.md", "a.md"]


def test_code_scores_are_probabilities_too(tools: Tools) -> None:
    lists = {"code": listed(tools, a=8.0, b=2.0)}
    one, two = Learned()(tools.pool(lists), Query("rollback", mode=Mode.CODE), {}, tools)
    assert 1 > one.score > two.score > 0
    assert one.answer_probability == two.answer_probability
    (doubtful, *_) = Learned()(
        tools.pool(lists), Query("how do I prune roses", mode=Mode.CODE), {}, tools
    )
    assert doubtful.answer_probability is not None
    assert doubtful.answer_probability < 0.3


LISTS: dict[str, dict[str, float]] = {
    "semantic": {"a": 0.9, "b": 0.8, "c": 0.7},
    "keyword": {"a": 6.0, "b": 3.0},
}


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_any_ranking_keeps_its_order_and_the_total_of_the_probabilities(
    tools: Tools, order: str
) -> None:
    lists = {name: listed(tools, **scores) for name, scores in LISTS.items()}
    best = Learned()(tools.pool(lists), Query("rollback replicas"), {}, tools)
    by_page = {hit.chunk.path[0]: hit for hit in best}
    ranking = tuple(by_page[page].rescored(1 / rank, "test") for rank, page in enumerate(order, 1))
    found = with_probabilities(ranking, tools.pool(lists), Query("rollback replicas"), tools)
    assert "".join(hit.chunk.path[0] for hit in found) == order
    scores = [hit.score for hit in found]
    assert all(one > two for one, two in pairwise(scores))
    assert sum(scores) == pytest.approx(sum(hit.score for hit in best), abs=1e-6)
    assert {hit.answer_probability for hit in found} == {best[0].answer_probability}
    if order == "".join(hit.chunk.path[0] for hit in best):
        assert scores == [hit.score for hit in best]


def test_weights_of_the_user_change_the_order_and_not_the_total(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, a=0.9, b=0.6),
        "keyword": listed(tools, b=6.0),
    }
    text = "more replicas carry load"
    plain, near, terms = (
        Learned()(tools.pool(lists), Query(text), factors, tools)
        for factors in ({}, {"keyword": 0.0}, {"semantic": 0.0})
    )
    assert near[0].chunk.path == "a.md"
    assert terms[0].chunk.path == "b.md"
    for changed in (near, terms):
        assert changed[0].answer_probability == plain[0].answer_probability
        assert sum(hit.score for hit in changed) == pytest.approx(
            sum(hit.score for hit in plain), abs=1e-6
        )
