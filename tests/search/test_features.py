"""Features of passages and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from pathlib import Path

import pytest

import marklight
from marklight.models.fake import FakeEmbedder
from marklight.ports import ScoredChunk, Tools
from marklight.query import Filters, Query
from marklight.search.features import (
    QueryFeatures,
    needs_lexical_weights,
    passage_features,
    query_features,
)
from tests.making import library, write
from tests.search.building import PAGES, features_by_id, listed


def features_of_query(
    lists: Mapping[str, Sequence[ScoredChunk]], query: Query, tools: Tools
) -> QueryFeatures:
    pool = tools.pool(lists)
    return query_features(pool, passage_features(pool, query, tools), query, tools)


def test_features_combine_scores_of_the_lists_with_term_coverage(
    tools: Tools,
) -> None:
    lists = {
        "semantic": listed(tools, a=0.9, b=0.8, c=0.7),
        "keyword": listed(tools, a=6.0, b=3.0),
    }
    one, two, three = features_by_id(lists, Query("rollback replicas"), tools).values()
    # Each word stands in one of three passages, so each is half of the query; one is a title.
    assert (one.coverage, one.title) == (two.coverage, 0.25) == (0.5, 0.25)
    assert (two.title, three.coverage) == (0.0, 0.0)
    assert (one.cosine, two.cosine, three.cosine) == pytest.approx((9, 8, 7))
    # The mean of 0.9, 0.8 and 0.7 is 0.8, their standard deviation the root of 0.02 / 3.
    standard = 0.1 / sqrt(0.02 / 3)
    assert (one.standard_cosine, two.standard_cosine, three.standard_cosine) == pytest.approx(
        (standard, 0, -standard)
    )
    assert (one.relative_bm25, two.relative_bm25, three.relative_bm25) == (1.0, 0.5, 0.0)
    # Each has half of the words.
    lexical = (0.5**1.5, 0.5 * 0.5**1.5, 0.0)
    assert (one.lexical, two.lexical, three.lexical) == pytest.approx(lexical)


def test_the_title_of_a_document_without_text_counts_once(tmp_path: Path) -> None:
    pages = {"a.md": "# Rollback\n", "b.md": "# Rollback\n\nstop\n"}
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            tools = Tools(snapshot, FakeEmbedder())
            lists = {"semantic": listed(tools, a=0.9, b=0.8), "keyword": listed(tools, a=6, b=6)}
            one, two = features_by_id(lists, Query("rollback"), tools).values()
            assert (one.title, two.title) == (0, 1)


def test_query_length_is_capped_at_twenty_terms(tools: Tools) -> None:
    lists = {"semantic": listed(tools, a=0.9), "keyword": ()}

    def length(count: int) -> float:
        query = Query(" ".join(f"w{number}" for number in range(count)))
        return features_of_query(lists, query, tools).query_length

    assert [length(count) for count in (2, 20, 300)] == pytest.approx([log(3), log(21), log(21)])


def test_equal_cosines_have_a_standard_score_of_zero(tools: Tools) -> None:
    lists = {"semantic": listed(tools, a=0.9, b=0.9), "keyword": ()}
    found = features_by_id(lists, Query("rollback"), tools).values()
    assert [each.standard_cosine for each in found] == [0.0, 0.0]


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
def test_path_is_the_squared_share_of_query_terms_in_the_path(
    tmp_path: Path, text: str, share: float
) -> None:
    page = "databases/keep-alive_backups.md"
    with library(write(tmp_path, {page: "# Notes\n\nEvery night.\n"})) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            tools = Tools(snapshot, FakeEmbedder())
            lists = {"semantic": listed(tools, d=0.9), "keyword": ()}
            (one,) = features_by_id(lists, Query(text), tools).values()
            assert one.path == pytest.approx(share**2)
            # By meaning alone no word counts.
            (one,) = features_by_id({"semantic": lists["semantic"]}, Query(text), tools).values()
            assert one.path == 0


def test_the_cosine_of_a_passage_without_a_vector_is_estimated_from_its_coverage(
    tools: Tools,
) -> None:
    lists = {
        "semantic": listed(tools, a=0.9, b=0.8),
        "keyword": listed(tools, c=6.0),
    }
    unseen = lists["keyword"][0].chunk_id

    def meaning(query: Query) -> float:
        return float(features_by_id(lists, query, tools)[unseen].cosine)

    assert meaning(Query("espresso")) == pytest.approx(9)
    # Each of the two words stands in one passage, so each is half of the question.
    assert meaning(Query("espresso rollback")) == pytest.approx(8.5)
    assert meaning(Query("rollback")) == pytest.approx(8)
    # A hypothesis is not compared with what only words found: that was not near enough.
    assert meaning(Query("espresso", hypothesis="A pot of coffee.")) == pytest.approx(8)


def test_lexical_weights_are_needed_where_the_passage_with_most_terms_has_no_vector(
    tools: Tools,
) -> None:
    lists = {
        "semantic": listed(tools, a=0.9, b=0.8),
        "keyword": listed(tools, c=6.0),
    }

    def reported(text: str, hypothesis: str = "") -> bool:
        query, pool = Query(text, hypothesis=hypothesis), tools.pool(lists)
        return needs_lexical_weights(pool, passage_features(pool, query, tools), query)

    assert reported("espresso")
    assert reported("espresso machine rollback")
    assert not reported("espresso rollback")
    assert not reported("espresso", hypothesis="A pot of coffee.")


def test_a_passage_without_a_vector_is_found_by_its_terms(tmp_path: Path) -> None:
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


def test_expansion_terms_count_by_their_similarity_where_no_passage_has_a_query_term(
    tools: Tools,
) -> None:
    lists = {"semantic": listed(tools, a=0.9, c=0.7), "keyword": ()}

    def covered(text: str, **near: float) -> list[float]:
        found = features_by_id(lists, Query(text, expanded_with=near), tools)
        return [each.coverage for each in found.values()]

    assert covered("undo") == [0.0, 0.0]
    assert covered("undo", rollback=0.6) == [0.6, 0.0]
    # One of several is enough, and the nearest counts.
    assert covered("undo", rollback=0.6, nowhere=0.9) == [0.6, 0.0]
    assert covered("undo", rollback=0.6, revision=0.7) == [0.7, 0.0]
    assert covered("espresso", rollback=0.6) == [0.0, 1.0]


@pytest.mark.parametrize("name", ["RollBack", "rollBack", "roll_back"])
def test_an_identifier_alone_is_one_term_though_its_parts_are_searched_too(
    tools: Tools, name: str
) -> None:
    lists = {"semantic": listed(tools, a=0.9, b=0.8), "keyword": ()}
    assert features_of_query(lists, Query(name), tools).query_length == pytest.approx(log(2))


def test_exact_phrase_marks_passages_that_contain_the_query_as_typed(tools: Tools) -> None:
    lists = {"semantic": listed(tools, a=0.9, b=0.8), "keyword": ()}

    def question(text: str) -> tuple[float, float, float]:
        one, two = features_by_id(lists, Query(text), tools).values()
        length = features_of_query(lists, Query(text), tools).query_length
        return one.exact_phrase, two.exact_phrase, exp(length) - 1

    assert question("earlier-revision") == pytest.approx((1.0, 0.0, 1))
    assert question("revision-earlier") == pytest.approx((0.0, 0.0, 2))
    assert question("earlier revision") == pytest.approx((1.0, 0.0, 1))
    assert question("revision earlier") == pytest.approx((0.0, 0.0, 2))
    # The subject of the query must occur; its question words need not.
    assert question("what's the earlier revision?") == pytest.approx((1.0, 0.0, 1))
    assert question("where is the earlier-revision") == pytest.approx((1.0, 0.0, 1))
    assert question("what is revision of earlier") == pytest.approx((0.0, 0.0, 2))
    assert question("earlier replicas") == pytest.approx((0.0, 0.0, 2))


def test_an_identifier_matches_whatever_its_case(tools: Tools) -> None:
    lists = {"semantic": listed(tools, a=0.9, b=0.8), "keyword": ()}
    one, two = features_by_id(lists, Query("RollBack"), tools).values()
    # It says neither `roll` nor `back`.
    assert (one.coverage, one.exact_phrase, one.title) == (1.0, 1.0, 1.0)
    assert two.coverage == 0.0
    # Two words, each in one passage.
    one, two = features_by_id(lists, Query("RollBack replicas"), tools).values()
    assert (one.coverage, one.exact_phrase, two.coverage) == (0.5, 0.0, 0.5)


def test_query_features_are_computed_over_the_best_of_each_list(tools: Tools) -> None:
    lists = {
        "semantic": listed(tools, a=0.9, b=0.8, c=0.7),
        "keyword": listed(tools, a=6.0, b=3.0),
    }
    query = Query("rollback replicas")
    seen = features_of_query(lists, query, tools)
    assert seen == pytest.approx(
        QueryFeatures(
            best_cosine=9,
            top5_cosine=8,
            cosine_range=2,
            best_coverage=0.5,
            top3_coverage=(0.5 + 0.5 + 0) / 3,
            query_length=log(3),
            corpus_size=log(4),
            many_near=0.0,
            many_near_length=0.0,
            absent_share=0.0,
        )
    )


@pytest.mark.parametrize(
    "filters, passages",
    [
        (Filters(), 40),
        (Filters(exclude=("0*.md",)), 30),
        (Filters(paths=("0*.md",)), 25),  # ten pass, and of so few nothing was learned
        (Filters(paths=("none.md",)), 25),
    ],
)
def test_corpus_size_counts_passages_that_pass_the_filters(
    tmp_path: Path, filters: Filters, passages: int
) -> None:
    pages = {f"{day:02}.md": f"# Day {day}\n\nRain.\n" for day in range(40)}
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            tools, query = Tools(snapshot, FakeEmbedder()), Query("rain", filters=filters)
            seen = features_of_query({}, query, tools)
    assert seen.corpus_size == pytest.approx(log(1 + passages))


@pytest.mark.parametrize(
    "text, share",
    [("pancake recipe", 1.0), ("recipe for sushi", 1 / 4), ("pancake recipe for children", 4 / 9)],
)
def test_the_squared_share_of_terms_in_a_path_counts_as_coverage(
    tmp_path: Path, text: str, share: float
) -> None:
    pages = {"recipes/pancakes.md": "# Sunday\n\nFlour, eggs and milk.\n"}
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            tools, query = Tools(snapshot, FakeEmbedder()), Query(text)
            lists = {"semantic": listed(tools, r=0.9), "keyword": ()}
            seen = features_of_query(lists, query, tools)
    assert seen.best_coverage == pytest.approx(share)
