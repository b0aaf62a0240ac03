"""Re-ranking by a server: its shapes, its scores and the time it has."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest

from marklight.errors import ModelError, ModelServerError
from marklight.library.chosen import Reranking
from marklight.models import load_reranker
from marklight.models.remote.reranker import RemoteReranker
from tests.models.serving import Behaviour

QUESTION = "undo a rollout"
PASSAGES = ["grind coffee", "undo it", "undo a rollout of the app", "a rollout", "tea", "undo"]
SHARES = [0.0, 0.5, 1.0, 0.5, 0.0, 0.5]
"""Of the two words that are no stop words."""
LONG_MS = 60_000.0


def opened(address: str, cache: Path, **more: Any) -> RemoteReranker:
    server = Reranking(name="openai:m", address=address, **more).server
    assert server is not None
    return RemoteReranker(server, cache)


def test_each_passage_gets_the_score_that_has_its_number(address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path).score(QUESTION, PASSAGES, LONG_MS) == SHARES


def test_nothing_is_asked_for_nothing(does: Behaviour, address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path).score(QUESTION, [], LONG_MS) == []
    assert not does.requests


@pytest.mark.parametrize("texts_only", [False, True])
def test_a_server_that_re_ranks_at_its_root_is_found_once(
    texts_only: bool, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.reranks_at, does.texts_only = ("/rerank",), texts_only
    model = opened(address, tmp_path)
    assert model.score(QUESTION, PASSAGES[:3], LONG_MS) == SHARES[:3]
    before = len(does.requests)
    assert model.score(QUESTION, PASSAGES[:3], LONG_MS) == SHARES[:3]
    assert [path for path, _ in does.requests[before:]] == ["/rerank"]


def test_scores_beyond_0_to_1_go_through_the_logistic_function_all_of_them(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.logits = True
    model = opened(address, tmp_path)
    found = model.score(QUESTION, PASSAGES, LONG_MS)
    assert found == pytest.approx([1 / (1 + exp(10 - 20 * share)) for share in SHARES])
    # 20 * 0.5 - 10 is 0, which alone could be a probability; what it is was seen before.
    assert model.score(QUESTION, ["undo it"], LONG_MS) == [0.5]


def test_when_the_time_is_over_the_scores_so_far_count(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.a_passage_seconds = 0.05
    found = opened(address, tmp_path).score(QUESTION, PASSAGES * 10, 300.0)
    assert 4 <= len(found) < 60
    assert found == (SHARES * 10)[: len(found)]


def test_without_any_time_there_are_scores_for_the_first(address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path).score(QUESTION, PASSAGES, 0.0) == SHARES[:4]


def test_a_server_that_fails_later_leaves_the_scores_it_gave(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.statuses = [0, 500]
    assert opened(address, tmp_path).score(QUESTION, PASSAGES, LONG_MS) == SHARES[:4]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html></html>", "a web page"),
        (b"{}", "contains no scores"),
        (b'{"results": [1]}', "contains no scores"),
        (b'{"results": []}', "0 scores for 1 texts"),
        (b'{"results": [{"index": 0}]}', "contains no scores"),
        (b'{"results": [{"index": 0, "relevance_score": true}]}', "contains no scores"),
        (b'{"results": [{"index": 0, "relevance_score": NaN}]}', "not a number"),
        (b'{"results": [{"index": 4, "relevance_score": 1}]}', "are not 0 to 0"),
    ],
)
def test_an_answer_that_is_none_is_told_as_what_it_is(
    body: bytes, said: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = body
    with pytest.raises(ModelServerError, match=said):
        opened(address, tmp_path).score(QUESTION, ["undo"], LONG_MS)


def test_a_server_without_re_ranking_says_so_by_its_first_refusal(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.reranks_at = ()
    with pytest.raises(ModelServerError, match=r"status 404.*/v1/rerank"):
        opened(address, tmp_path).score(QUESTION, ["undo"], LONG_MS)


def test_ollama_has_nothing_that_re_ranks() -> None:
    server = Reranking(name="ollama:m").server
    with pytest.raises(ModelError, match="Ollama cannot re-rank"):
        load_reranker("ollama:m", server=server)
