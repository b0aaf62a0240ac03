"""What was learned of evidence, and the probabilities that become of it."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import marklight
from marklight import models
from marklight.answer import Mode, Query
from marklight.models.fake import FakeEmbedder
from marklight.ports import Tools
from marklight.search.evidence import SEEN, Bearing
from marklight.search.fuse.learned import STRANGE, Learned
from marklight.search.likelihood import (
    ANY,
    Curve,
    Weights,
    is_measured,
    measured,
    weights_for,
)
from tests.making import library, write
from tests.search.weighing import listed

FLAT = Bearing(
    best=8.0,
    few=7.0,
    spread=1.0,
    worded=7.5,
    covered=0.5,
    lead=0.1,
    near=0.4,
    length=log(5),
    size=log(1001),
)


def weights(temper: float = 1.0) -> Weights:
    return Weights(
        {"words": 2.0},
        temper,
        answer=Curve(0.0, {"covered": 2.0}),
        word=Curve(-100.0, {}),
        hit=Curve(0.0, {"share": 1.0}),
    )


def test_a_probability_is_that_of_an_answer_times_that_of_this_passage() -> None:
    answer, likely = weights().likelihoods({"a": 1.0, "b": 0.0}, ["a", "b"], FLAT)
    assert answer == pytest.approx(1 / (1 + exp(-2 * 0.5)))
    # Of the two sums e and 1: the share of the first is e / (e + 1), and odds of that share.
    share = exp(1) / (exp(1) + 1)
    assert likely["a"] == pytest.approx(answer * share / (1 + share))
    assert likely["b"] == pytest.approx(answer * (1 - share) / (2 - share))


def test_where_it_is_certain_that_something_answers_only_which_passage_does_is_asked() -> None:
    given = {"a": 1.0, "b": 0.0}, ["a", "b"], FLAT
    doubted, likely = weights().likelihoods(*given)
    answer, certain = weights().likelihoods(*given, certain=True)
    assert answer == 1.0
    assert certain == pytest.approx({id: each / doubted for id, each in likely.items()})


def test_a_single_word_has_a_curve_of_its_own() -> None:
    assert weights().answered(FLAT) > 0.5
    assert weights().answered(FLAT._replace(length=log(1 + 1))) < 1e-9


def test_passages_of_one_document_do_not_stand_in_each_others_way() -> None:
    _, alone = weights().likelihoods({"a": 1.0}, ["a"], FLAT)
    _, beside = weights().likelihoods({"a": 1.0, "same": 0.9}, ["a"], FLAT)
    assert beside["a"] == alone["a"]


FINITE = st.floats(-30, 30)
BEARINGS = st.builds(
    Bearing,
    *(st.floats(0, 10) for _ in range(4)),
    *(st.floats(0, 1) for _ in range(3)),
    st.floats(log(2), 5),
    st.floats(0, 15),
)


@pytest.mark.parametrize("mode", measured())
@given(
    sums=st.dictionaries(st.text("abc", min_size=1), st.floats(-30, 30), min_size=1), seen=BEARINGS
)
def test_what_was_learned_keeps_the_order_and_stays_between_0_and_1(
    mode: str, sums: dict[str, float], seen: Bearing
) -> None:
    for one in measured()[mode].values():
        order = sorted(sums, key=lambda each: -sums[each])
        answer, likely = one.likelihoods(sums, order, seen)
        assert 0 <= answer <= 1
        assert all(0 <= each <= answer for each in likely.values())
        ranked = [likely[each] for each in order]
        assert ranked == sorted(ranked, reverse=True)


def test_every_way_of_searching_has_weights_for_any_model_and_the_default_one_its_own() -> None:
    for mode in ("hybrid", "semantic"):
        assert is_measured(mode, models.load().fingerprint)
        assert not is_measured(mode, "another")
        assert weights_for(mode, "another") == measured()[mode][ANY]
    assert weights_for("keyword", "") == measured()["keyword"][ANY]
    assert weights_for("code", "") is None


def test_a_model_that_was_not_measured_is_judged_by_the_order_of_its_cosines() -> None:
    for mode in ("hybrid", "semantic"):
        one = measured()[mode][ANY]
        used = {*one.evidence, *one.answer.slopes, *one.word.slopes, *one.hit.slopes}
        assert not used & {"meaning", "best", "few", "spread", "worded"}


def test_in_other_letters_a_question_is_answered_by_words_or_not_at_all(tmp_path: Path) -> None:
    pages = {"a.md": "# 数据库\n\n备份保留三十天。\n", "b.md": "# 厨房\n\n咖啡机每周清洗。\n"}
    with marklight.open(write(tmp_path, pages), {"engine": "memory:"}) as lib:
        lib.index()
        found = lib.search("备份保留多久")
        assert found.hits[0].chunk.path == "a.md"
        assert STRANGE in found.notices
        # How are roses pruned? Cosines alone are as sure of this one.
        roses = lib.search("玫瑰怎么修剪")
        assert not roses.hits
        assert (roses.abstained or "").startswith("No confident match")
        assert STRANGE not in lib.search("how do I prune roses, à la carte").notices


COPIES = {f"{page}.md": "# Copy\n\nReturn to an earlier revision.\n" for page in "abcd"}


def test_copies_of_a_passage_do_not_share_its_probability(tmp_path: Path) -> None:
    scores = []
    for pages in (COPIES, {"a.md": COPIES["a.md"]}):
        with library(write(tmp_path / str(len(pages)), pages), engine="memory:") as lib:
            lib.index()
            with lib.engine.snapshot() as snapshot:
                tools = Tools(snapshot, FakeEmbedder())
                same = dict.fromkeys((path[0] for path in pages), 0.9)
                lists = {"semantic": listed(tools, "semantic", **same), "keyword": ()}
                scores += [hit.score for hit in Learned()(lists, Query("earlier revision"), tools)]
    assert scores == pytest.approx([scores[0]] * 5)


def test_a_score_does_not_hang_on_how_many_are_looked_at(tmp_path: Path) -> None:
    titles = ["Page"] * SEEN + ["Wide question"] * 5
    pages = {f"{chr(97 + at)}.md": f"# {title}\n\n{at}\n" for at, title in enumerate(titles)}
    with library(write(tmp_path, pages), engine="memory:") as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            tools = Tools(snapshot, FakeEmbedder())
            cosines = {path[0]: 0.9 - 0.01 * at for at, path in enumerate(pages)}
            near = listed(tools, "semantic", **cosines)
            few, many = (
                Learned()({"semantic": near[:depth], "keyword": ()}, Query("wide question"), tools)
                for depth in (SEEN, SEEN + 5)
            )
    # What only the longer list reaches is called so and comes among the first ten.
    assert "Wide question" in {hit.chunk.title for hit in many[:10]}
    scores = {hit.chunk.id: hit.score for hit in many}
    assert [scores[hit.chunk.id] for hit in few] == pytest.approx([hit.score for hit in few])


def test_fusion_tells_every_part_of_a_score(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9, b=0.8, c=0.7),
        "keyword": listed(tools, "keyword", a=6.0, b=3.0),
    }
    first, *_ = Learned()(lists, Query("rollback replicas"), tools)
    said = {why.stage: why.value for why in first.why}
    one = measured()["hybrid"][ANY]
    # What adds nothing is not told: the question has two words, the path none of them, and of three
    # passages no word is rare.
    nothing = {"literal", "path", "rare"}
    told = {"semantic", "keyword", *one.evidence, "answer", "learned"} - nothing
    assert told == set(said)
    assert said["title"] == pytest.approx(one.evidence["title"] * 0.5)
    assert said["learned"] == first.score < said["answer"]


def test_keyword_search_tells_its_score_once_as_it_was_found(tools: Tools) -> None:
    lists = {"keyword": listed(tools, "keyword", a=6.0, b=3.0)}
    first, *_ = Learned()(lists, Query("rollback replicas"), tools)
    assert [why.value for why in first.why if why.stage == "keyword"] == [6.0]


@pytest.mark.parametrize(
    "kind, lists",
    [("keyword", ("keyword",)), ("keyword", ("keyword", "graph")), ("semantic", ("semantic",))],
)
def test_a_list_alone_keeps_its_order(tools: Tools, kind: str, lists: tuple[str, ...]) -> None:
    hits = listed(tools, kind, a=0.5, b=0.8, c=0.7)
    given = {name: hits if name == kind else () for name in lists}
    found = Learned()(given, Query("rollback replicas"), tools)
    assert [hit.chunk.path for hit in found] == ["b.md", "c.md", "a.md"]


def test_code_has_no_probability_and_is_a_part_of_the_best(tools: Tools) -> None:
    lists = {"code": listed(tools, "code", a=8.0, b=2.0)}
    found = Learned()(lists, Query("replicas", mode=Mode.CODE), tools)
    assert [hit.score for hit in found] == [1.0, 0.25]
