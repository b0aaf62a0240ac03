"""Abstention: thresholds on answer probability and score."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marklight.answer import Hit, Hits
from marklight.ports import Tools
from marklight.query import Filters, Query
from marklight.search.probability import Confidence
from tests.making import chunk, hits_of, no_snapshot


def reported(score: float, answer: float) -> Hits:
    (hit,) = hits_of({"a": score})
    return (replace(hit, answer_probability=answer),)


def test_a_search_abstains_where_the_answer_probability_is_low() -> None:
    tools, query = Tools(no_snapshot()), Query("x")
    assert Confidence()(query, reported(0.1, 0.9), tools) == reported(0.1, 0.9)
    assert Confidence()(query, reported(0.1, 0.2), tools) == ()
    assert Confidence()(query, hits_of({"a": 0.4}), tools) == hits_of({"a": 0.4})
    # What another stage has lifted since is at least as likely as it says.
    assert Confidence()(query, reported(0.8, 0.2), tools) == reported(0.8, 0.2)


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
def test_a_search_never_abstains_from_phrases_and_from_queries_of_filters_only(
    text: str, filters: Filters, certain: bool
) -> None:
    query = Query(text, filters=filters)
    hits = reported(0.001, 0.2)
    assert Confidence()(query, hits, Tools(no_snapshot())) == (hits if certain else ())
    stricter = replace(query, min_confidence=0.5)
    assert Confidence()(stricter, hits, Tools(no_snapshot())) == ()


def test_where_all_scores_are_low_those_above_half_of_the_best_are_kept() -> None:
    def kept(**scores: float) -> list[str]:
        hits = tuple(replace(hit, answer_probability=0.9) for hit in hits_of(scores))
        return [hit.chunk.id for hit in Confidence()(Query("x"), hits, Tools(no_snapshot()))]

    assert kept(a=0.4, b=0.005, c=0.004) == ["a", "b"]
    assert kept(a=0.004, b=0.002, c=0.001) == ["a", "b"]


def test_passages_with_most_of_the_query_are_kept_whatever_their_score() -> None:
    coverages = (1.0, 1.0, 0.4, 0.65, 1.0, 0.5, 0.0)
    scores = (0.8, *[0.001] * 6)
    hits = tuple(
        Hit(chunk(str(index)), score, answer_probability=0.9, coverage=coverage)
        for index, (score, coverage) in enumerate(zip(scores, coverages, strict=True))
    )
    kept = Confidence()(Query("x"), hits, Tools(no_snapshot()))
    assert [hit.chunk.id for hit in kept] == ["0", "1", "3", "4"]


def test_min_confidence_applies_to_every_hit() -> None:
    tools, query = Tools(no_snapshot()), Query("x", min_confidence=0.15)
    assert Confidence()(query, (*reported(0.1, 0.9), *hits_of({"b": 0.2})), tools) == hits_of(
        {"b": 0.2}
    )
