"""Reranking: which questions, how many candidates, how long, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Hit, Hits, best_first
from marklight.errors import SettingsError
from marklight.models import load_reranker
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.fuse import Rerank
from tests.making import chunk, hits_of, no_snapshot
from tests.models import pairs
from tests.search.stage_settings import build_stage

ASKED = Query("how do I undo a rollout")


@dataclass
class Reader:
    """Returns the given scores and records its queries."""

    scores: Sequence[float]
    name: str = "told"
    queries: list[tuple[str, list[str], float]] = field(default_factory=list)

    def score(self, question: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        self.queries.append((question, list(passages), budget_ms))
        return list(self.scores[: len(passages)])


def reported(hits: Hits) -> list[tuple[str, float]]:
    return [(hit.chunk.id, round(hit.score, 6)) for hit in hits]


def test_the_best_candidates_are_ordered_by_the_model_before_the_rest() -> None:
    hits = hits_of({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.3})
    found = Rerank(candidates=3)(
        ASKED, hits, Tools(no_snapshot(), reranker=Reader([0.1, 0.5, 0.4]))
    )
    # The rest is scaled to end below 0.1: 0.6 becomes 0.1, and 0.3 half of that.
    assert reported(found) == [("b", 0.5), ("c", 0.4), ("a", 0.1), ("d", 0.1), ("e", 0.05)]
    assert found[3].score < found[2].score
    assert [why.stage for why in found[0].why] == ["test", "rerank"]


def test_scores_of_the_rest_stay_if_they_are_lower_already() -> None:
    hits = hits_of({"a": 0.9, "b": 0.8, "c": 0.2})
    found = Rerank(candidates=2)(ASKED, hits, Tools(no_snapshot(), reranker=Reader([0.6, 0.7])))
    assert reported(found) == [("b", 0.7), ("a", 0.6), ("c", 0.2)]
    assert found[2] == hits[2]


@given(
    before=st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(0.0, 1.0)),
    scores=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12),
    candidates=st.integers(1, 12),
)
def test_re_ranking_keeps_all_hits_and_sorts_them(
    before: dict[str, float], scores: list[float], candidates: int
) -> None:
    hits = hits_of(before)
    found = Rerank(candidates)(ASKED, hits, Tools(no_snapshot(), reranker=Reader(scores)))
    assert sorted(hit.chunk.id for hit in found) == sorted(before)
    assert found == best_first(found)
    assert all(0.0 <= hit.score <= 1.0 for hit in found)


def test_the_model_reads_title_headings_and_text() -> None:
    reader = Reader([0.5])
    hit = Hit(chunk("Deploy", "Use undo.", headings=("Deploy", "Rollback")), 0.5)
    Rerank(budget_ms=70)(ASKED, (hit,), Tools(no_snapshot(), reranker=reader))
    assert reader.queries == [(ASKED.text, ["Deploy > Rollback\n\nUse undo."], 70)]


@pytest.mark.parametrize(
    ("text", "rerank", "runs"),
    [
        ("rollout", None, False),
        ("undo rollout", None, False),
        ("undo a rollout", None, True),
        ("rollout", True, True),
        ("undo a rollout", False, False),
        ("", True, False),  # nothing but filters
        ("如何回滚部署", None, True),  # three words without spaces
        ("部署", None, False),
    ],
)
def test_short_queries_are_re_ranked_only_on_request(
    text: str, rerank: bool | None, runs: bool
) -> None:
    reader = Reader([0.1, 0.9])
    hits = hits_of({"a": 0.9, "b": 0.8})
    found = Rerank()(Query(text, rerank=rerank), hits, Tools(no_snapshot(), reranker=reader))
    assert bool(reader.queries) == runs
    assert [hit.chunk.id for hit in found] == (["b", "a"] if runs else ["a", "b"])


def test_without_a_model_nothing_changes() -> None:
    hits = hits_of({"a": 0.9, "b": 0.8})
    assert Rerank()(Query("undo a rollout", rerank=True), hits, Tools(no_snapshot())) == hits


def test_a_notice_reports_that_time_ran_out() -> None:
    message: list[str] = []
    hits = hits_of({"a": 0.9, "b": 0.8, "c": 0.7})
    tools = Tools(no_snapshot(), reranker=Reader([0.4, 0.6]), notify=message.append)
    assert [hit.chunk.id for hit in Rerank()(ASKED, hits, tools)] == ["b", "a", "c"]
    assert message == ["Reranked 2 of 3 candidates within 500 ms"]
    Rerank(candidates=2)(ASKED, hits, tools)
    assert len(message) == 1, "all that were chosen were read"


def test_exact_matches_stay_first() -> None:
    named = [Hit(chunk(id), score, exact_match=True) for id, score in [("a", 0.9), ("b", 0.8)]]
    hits = best_first([*named, *hits_of({"c": 0.7, "d": 0.6})])
    found = Rerank()(ASKED, hits, Tools(no_snapshot(), reranker=Reader([0.1, 0.95, 0.9, 1.0])))
    # The others end below 0.8, in the order that the model gives them.
    assert reported(found) == [("a", 0.9), ("b", 0.8), ("d", 0.8), ("c", 0.72)]
    assert found[2].score < found[1].score


def test_an_exact_match_that_is_not_first_is_re_ranked() -> None:
    lifted = Hit(chunk("b"), 0.4, exact_match=True)
    hits = best_first([lifted, *hits_of({"a": 0.9, "c": 0.1})])
    found = Rerank()(ASKED, hits, Tools(no_snapshot(), reranker=Reader([0.7, 0.2, 0.9])))
    assert reported(found) == [("c", 0.9), ("a", 0.7), ("b", 0.2)]


def test_a_real_cross_encoder_puts_the_answer_first(tmp_path: Path) -> None:
    model = load_reranker(str(pairs.write_folder(tmp_path / "pairs")))
    texts = {"x": "grind coffee beans", "y": "undo a rollout of the app", "z": "undo the app"}
    hits = tuple(
        Hit(chunk(id, text), score)
        for (id, text), score in zip(texts.items(), (0.9, 0.8, 0.7), strict=True)
    )
    found = Rerank()(ASKED, hits, Tools(no_snapshot(), reranker=model))
    assert [hit.chunk.id for hit in found] == ["y", "z", "x"]
    # Of the six query words, undo, a and rollout are found; given are the title and six words of text.
    assert found[0].score == pytest.approx(pairs.likely(found=3, tokens=3 + 6 + 1 + 6), abs=1e-6)


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"budget_ms": -1.0}, {"words": -1}])
def test_settings_out_of_bounds_are_errors(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=f"search.rerank.{next(iter(wrong))}"):
        build_stage(Rerank, **wrong)
