"""Evidence, what was learned of it, and the probabilities that become of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, log, log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import marklight
from marklight import models
from marklight.answer import Filters, Hits, Mode, Query, Why
from marklight.models.fake import FakeEmbedder
from marklight.ports import Scored, Tools
from marklight.search.evidence import SEEN, Bearing, bearing, gathered, told_by_words
from marklight.search.fuse.learned import Learned
from marklight.search.likelihood import (
    ANY,
    Curve,
    Weights,
    is_measured,
    measured,
    weights_for,
)
from marklight.search.refine.confidence import Confidence
from tests.making import hits_of, library, no_reader, write

PAGES = {
    "a.md": "# Rollback\n\nReturn to an earlier revision. See [[b]].\n",
    "b.md": "# Scaling\n\nMore replicas carry more load. See [[a]].\n",
    "c.md": "# Kitchen\n\nThe espresso machine needs water.\n",
}
FLAT = Bearing(
    best=8.0,
    few=7.0,
    spread=1.0,
    worded=7.5,
    covered=0.5,
    near=0.4,
    length=log(5),
    size=log(1001),
)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    folder = write(tmp_path_factory.mktemp("docs"), PAGES)
    with library(folder, engine="memory:") as lib:
        lib.index()
        with lib.engine.snapshot() as reader:
            yield Tools(reader, FakeEmbedder())


def listed(tools: Tools, by: str, **scores: float) -> Hits:
    """The only passage of each page, with what a retriever says of it."""
    first = {id.path[0]: tools.reader.chunks_of(id)[0].id for id in tools.reader.files()}
    wanted = [Scored(first[page], score) for page, score in scores.items()]
    return tools.hits(sorted(wanted, key=lambda each: -each.score), by=by)


def test_evidence_is_what_each_list_says_and_what_the_passage_has_of_the_words(
    tools: Tools,
) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9, b=0.8, c=0.7),
        "keyword": listed(tools, "keyword", a=6.0, b=3.0),
    }
    one, two, three = gathered(lists, Query("rollback replicas"), tools).values()
    # Each word stands in one of three passages, so each is half of the question; one is a title.
    assert (one.covered, one.title) == (two.covered, 0.5) == (0.5, 0.5)
    assert (two.title, three.covered) == (0.0, 0.0)
    assert (one.meaning, two.meaning, three.meaning) == pytest.approx((9, 8, 7))
    assert (one.nearness, two.nearness, three.nearness) == pytest.approx((1, 0.5, 0))
    assert (one.keyword, two.keyword, three.keyword) == (1.0, 0.5, 0.0)
    # Half of the words times the part of the best to the power of 0.7; two tell 2 ** 0.75 times as much as one.
    assert (one.words, two.words, three.words) == pytest.approx((2**-0.25, 2**-0.95, 0.0))
    # The first two are linked with each other both ways: two links, and log2(1 + 2).
    assert (one.links, three.links) == pytest.approx((log2(3), 0.0))


def test_words_tell_the_more_the_longer_a_question_is_up_to_twenty(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9),
        "keyword": listed(tools, "keyword", a=6.0),
    }

    def told(count: int) -> float:
        text = " ".join(["rollback", *(f"w{number}" for number in range(1, count))])
        (one,) = gathered(lists, Query(text), tools).values()
        return one.words / one.covered

    assert [told(count) for count in (1, 16, 20, 30)] == pytest.approx([1, 8, 20**0.75, 20**0.75])


@pytest.mark.parametrize(
    "text, share",
    [
        ("backups", 1.0),
        ("database backups", 1.0),
        ("database restored", 0.5),
        ("old backup of the database", 2 / 3),
        ("DataBase", 1.0),
        ("keepAlive", 2 / 3),
        ("the", 0.0),
    ],
)
def test_a_document_may_be_meant_by_the_words_of_its_path(
    tmp_path: Path, text: str, share: float
) -> None:
    page = "databases/keep-alive_backups.md"
    with library(write(tmp_path, {page: "# Notes\n\nEvery night.\n"}), engine="memory:") as lib:
        lib.index()
        with lib.engine.snapshot() as reader:
            tools = Tools(reader, FakeEmbedder())
            lists = {"semantic": listed(tools, "semantic", d=0.9), "keyword": ()}
            (one,) = gathered(lists, Query(text), tools).values()
            assert one.path == pytest.approx(share)
            # By meaning alone no word counts.
            (one,) = gathered({"semantic": lists["semantic"]}, Query(text), tools).values()
            assert one.path == 0


def test_a_passage_that_is_not_embedded_may_be_as_near_as_its_words_tell(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9, b=0.8),
        "keyword": listed(tools, "keyword", c=6.0),
    }
    unseen = lists["keyword"][0].chunk.id

    def meaning(query: Query) -> float:
        return gathered(lists, query, tools)[unseen].meaning

    assert meaning(Query("espresso")) == pytest.approx(9)
    # Each of the two words stands in one passage, so each is half of the question.
    assert meaning(Query("espresso rollback")) == pytest.approx(8.5)
    assert meaning(Query("rollback")) == pytest.approx(8)
    # A hypothesis is not compared with what only words found: that was not near enough.
    assert meaning(Query("espresso", hypothesis="A pot of coffee.")) == pytest.approx(8)


def test_words_tell_of_an_answer_where_what_has_most_of_them_is_not_embedded(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9, b=0.8),
        "keyword": listed(tools, "keyword", c=6.0),
    }

    def told(text: str, hypothesis: str = "") -> bool:
        query = Query(text, hypothesis=hypothesis)
        return told_by_words(lists, gathered(lists, query, tools), query)

    assert told("espresso")
    assert told("espresso machine rollback")
    assert not told("espresso rollback")
    assert not told("espresso", hypothesis="A pot of coffee.")


def test_what_is_not_embedded_yet_is_found_by_its_words(tmp_path: Path) -> None:
    write(tmp_path / "docs", PAGES)
    engine = f"file:{tmp_path / 'index'}"
    with marklight.open(tmp_path / "docs", {"engine": engine}) as lib:
        lib.index()
    write(tmp_path / "docs", {"d.md": "# Bees\n\nA hive needs a queen, frames and a smoker.\n"})
    with marklight.open(tmp_path / "docs", {"engine": engine, "model": {"name": "none"}}) as lib:
        lib.index()
    with marklight.open(tmp_path / "docs", {"engine": engine}) as lib:
        for text in ("smoker", "smoker frames", "what does a hive need"):
            assert lib.search(text, refresh=False).hits[0].chunk.path == "d.md", text


def test_words_of_the_library_that_mean_the_same_count_where_nobody_has_the_questions_own(
    tools: Tools,
) -> None:
    lists = {"semantic": listed(tools, "semantic", a=0.9, c=0.7), "keyword": ()}
    plain = gathered(lists, Query("undo"), tools).values()
    meant = gathered(lists, Query("undo", expanded_with=("rollback",)), tools).values()
    assert [each.covered for each in plain] == [0.0, 0.0]
    assert [each.covered for each in meant] == [1.0, 0.0]
    known = gathered(lists, Query("espresso", expanded_with=("rollback",)), tools).values()
    assert [each.covered for each in known] == [0.0, 1.0]


@pytest.mark.parametrize("name", ["RollBack", "rollBack", "roll_back"])
def test_a_name_alone_is_a_single_word_though_it_is_looked_for_in_its_parts(
    tools: Tools, name: str
) -> None:
    lists = {"semantic": listed(tools, "semantic", a=0.9, b=0.8), "keyword": ()}
    found = gathered(lists, Query(name), tools)
    assert bearing(lists, found, Query(name), tools).length == pytest.approx(log(2))


def test_what_stands_in_a_passage_as_it_is_typed_is_meant_to_the_letter(tools: Tools) -> None:
    lists = {"semantic": listed(tools, "semantic", a=0.9, b=0.8), "keyword": ()}

    def asked(text: str) -> tuple[float, float, float]:
        one, two = (found := gathered(lists, Query(text), tools)).values()
        length = bearing(lists, found, Query(text), tools).length
        return one.literal, two.literal, exp(length) - 1

    assert asked("earlier-revision") == pytest.approx((1.0, 0.0, 1))
    assert asked("revision-earlier") == pytest.approx((0.0, 0.0, 2))
    assert asked("earlier revision") == pytest.approx((0.3, 0.0, 1))
    assert asked("revision earlier") == pytest.approx((0.0, 0.0, 2))
    assert asked("earlier replicas") == pytest.approx((0.0, 0.0, 2))


def test_a_passage_has_a_name_that_it_writes_in_other_letters(tools: Tools) -> None:
    lists = {"semantic": listed(tools, "semantic", a=0.9, b=0.8), "keyword": ()}
    one, two = gathered(lists, Query("RollBack"), tools).values()
    # It says neither `roll` nor `back`.
    assert (one.covered, one.literal, one.title) == (1.0, 1.0, 1.0)
    assert two.covered == 0.0
    # Two words, each in one passage.
    one, two = gathered(lists, Query("RollBack replicas"), tools).values()
    assert (one.covered, one.literal, two.covered) == (0.5, 0.0, 0.5)


def test_what_links_lead_to_counts_where_words_do_not(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9, b=0.8),
        "keyword": listed(tools, "keyword", a=6.0),
        "graph": listed(tools, "graph", b=0.4),
    }
    assert [each.words for each in gathered(lists, Query("rollback"), tools).values()] == [1.0, 0.4]
    words = [each.words for each in gathered(lists, Query("rollback now"), tools).values()]
    assert words[1] == pytest.approx(0.4 * 2**0.75)


def test_a_question_is_judged_by_the_best_of_each_list(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, "semantic", a=0.9, b=0.8, c=0.7),
        "keyword": listed(tools, "keyword", a=6.0, b=3.0),
    }
    query = Query("rollback replicas")
    seen = bearing(lists, gathered(lists, query, tools), query, tools)
    assert seen == pytest.approx(
        Bearing(
            best=9,
            few=8,
            spread=2,
            worded=(9 + 8) / 2,
            covered=0.5,
            near=(0.5 + 0.5 + 0) / 3,
            length=log(3),
            size=log(4),
        )
    )


def test_where_nothing_has_the_words_they_agree_with_meaning_as_little_as_the_last_does(
    tools: Tools,
) -> None:
    lists = {"semantic": listed(tools, "semantic", a=0.9, b=0.8, c=0.7), "keyword": ()}
    query = Query("rollback replicas")
    seen = bearing(lists, gathered(lists, query, tools), query, tools)
    assert seen.worded == pytest.approx(7)


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
    *(st.floats(0, 1) for _ in range(2)),
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


COPIES = {f"{page}.md": "# Copy\n\nReturn to an earlier revision.\n" for page in "abcd"}


def test_copies_of_a_passage_do_not_share_its_probability(tmp_path: Path) -> None:
    scores = []
    for pages in (COPIES, {"a.md": COPIES["a.md"]}):
        with library(write(tmp_path / str(len(pages)), pages), engine="memory:") as lib:
            lib.index()
            with lib.engine.snapshot() as reader:
                tools = Tools(reader, FakeEmbedder())
                same = dict.fromkeys((path[0] for path in pages), 0.9)
                lists = {"semantic": listed(tools, "semantic", **same), "keyword": ()}
                scores += [hit.score for hit in Learned()(lists, Query("earlier revision"), tools)]
    assert scores == pytest.approx([scores[0]] * 5)


def test_a_score_does_not_hang_on_how_many_are_looked_at(tmp_path: Path) -> None:
    titles = ["Page"] * SEEN + ["Wide question"] * 5
    pages = {f"{chr(97 + at)}.md": f"# {title}\n\n{at}\n" for at, title in enumerate(titles)}
    with library(write(tmp_path, pages), engine="memory:") as lib:
        lib.index()
        with lib.engine.snapshot() as reader:
            tools = Tools(reader, FakeEmbedder())
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
    # What adds nothing is not told: the question has two words, and the path none of them.
    told = {"semantic", "keyword", *one.evidence, "answer", "learned"} - {"literal", "path"}
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


def told(score: float, answer: float) -> Hits:
    (hit,) = hits_of({"a": score})
    return (replace(hit, why=(*hit.why, Why("answer", answer))),)


def test_nothing_is_said_where_an_answer_is_unlikely_however_the_hits_compare() -> None:
    tools, query = Tools(no_reader()), Query("x")
    assert Confidence()(query, told(0.1, 0.9), tools) == told(0.1, 0.9)
    assert Confidence()(query, told(0.1, 0.2), tools) == ()
    assert Confidence()(query, hits_of({"a": 0.4}), tools) == hits_of({"a": 0.4})
    # What another stage has lifted since is at least as likely as it says.
    assert Confidence()(query, told(0.8, 0.2), tools) == told(0.8, 0.2)


@pytest.mark.parametrize(
    "text, filters, certain",
    [
        ("earlier revision", Filters(phrases=("earlier revision",)), True),
        ("rollback earlier revision", Filters(phrases=("earlier revision",)), True),
        ("draft", Filters(where=(("status", "draft"),)), True),
        ("security", Filters(tags=("security",)), True),
        ("rollback", Filters(tags=("security",)), False),
        ("rollback", Filters(paths=("guides/**",)), False),
        ("???", Filters(), False),
    ],
)
def test_who_asks_for_what_filters_make_certain_is_answered_however_far_its_meaning_is(
    text: str, filters: Filters, certain: bool
) -> None:
    query = Query(text, filters=filters)
    hits = told(0.001, 0.2)
    assert Confidence()(query, hits, Tools(no_reader())) == (hits if certain else ())
    stricter = replace(query, min_confidence=0.5)
    assert Confidence()(stricter, hits, Tools(no_reader())) == ()


def test_of_many_that_share_an_answer_the_best_stand_however_small_their_share_is() -> None:
    def kept(**scores: float) -> list[str]:
        hits = tuple(replace(hit, why=(*hit.why, Why("answer", 0.9))) for hit in hits_of(scores))
        return [hit.chunk.id for hit in Confidence()(Query("x"), hits, Tools(no_reader()))]

    assert kept(a=0.4, b=0.005, c=0.004) == ["a", "b"]
    assert kept(a=0.004, b=0.002, c=0.001) == ["a", "b"]


def test_a_least_confidence_of_the_caller_is_asked_of_every_hit() -> None:
    tools, query = Tools(no_reader()), Query("x", min_confidence=0.15)
    assert Confidence()(query, (*told(0.1, 0.9), *hits_of({"b": 0.2})), tools) == hits_of(
        {"b": 0.2}
    )
