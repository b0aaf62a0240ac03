"""Reranking by a server: request formats, scores, time limits."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest

from marklight.errors import ModelError, ModelServerError
from marklight.library.configuration import Reranking
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


def test_scores_are_assigned_by_index(address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path).score(QUESTION, PASSAGES, LONG_MS) == SHARES


def test_no_request_is_sent_without_passages(does: Behaviour, address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path).score(QUESTION, [], LONG_MS) == []
    assert not does.requests


@pytest.mark.parametrize("texts_only", [False, True])
def test_the_request_format_is_detected_once(
    texts_only: bool, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.reranks_at, does.texts_only = ("/rerank",), texts_only
    model = opened(address, tmp_path)
    assert model.score(QUESTION, PASSAGES[:3], LONG_MS) == SHARES[:3]
    before = len(does.requests)
    assert model.score(QUESTION, PASSAGES[:3], LONG_MS) == SHARES[:3]
    assert [path for path, _ in does.requests[before:]] == ["/rerank"]


def test_logits_are_mapped_by_a_sigmoid(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.logits = True
    model = opened(address, tmp_path)
    found = model.score(QUESTION, PASSAGES, LONG_MS)
    assert found == pytest.approx([1 / (1 + exp(10 - 20 * share)) for share in SHARES])
    # 20 * 0.5 - 10 is 0, which alone could be a probability; what it is was seen before.
    assert model.score(QUESTION, ["undo it"], LONG_MS) == [0.5]


def test_when_time_runs_out_the_scores_so_far_are_returned(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.a_passage_seconds = 0.05
    found = opened(address, tmp_path).score(QUESTION, PASSAGES * 10, 300.0)
    assert 4 <= len(found) < 60
    assert found == (SHARES * 10)[: len(found)]


def test_without_time_the_first_passages_are_scored(address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path).score(QUESTION, PASSAGES, 0.0) == SHARES[:4]


def test_a_later_failure_keeps_earlier_scores(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.statuses = [0, 500]
    assert opened(address, tmp_path).score(QUESTION, PASSAGES, LONG_MS) == SHARES[:4]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html></html>", "a web page"),
        (b"{}", "0 scores for 1 texts"),
        (b'{"results": [1]}', "not of this API"),
        (b'{"results": []}', "0 scores for 1 texts"),
        (b'{"results": [{"index": 0}]}', "contains no scores"),
        (b'{"results": [{"index": 0, "relevance_score": true}]}', "not of this API"),
        (b'{"results": [{"index": 0, "relevance_score": NaN}]}', "instead of JSON"),
        (b'{"results": [{"index": 4, "relevance_score": 1}]}', "are not 0 to 0"),
    ],
)
def test_an_invalid_response_is_reported_precisely(
    body: bytes, message: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = body
    with pytest.raises(ModelServerError, match=message):
        opened(address, tmp_path).score(QUESTION, ["undo"], LONG_MS)


def test_a_server_without_re_ranking_raises_its_first_rejection(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.reranks_at = ()
    with pytest.raises(ModelServerError, match=r"status 404.*/v1/rerank"):
        opened(address, tmp_path).score(QUESTION, ["undo"], LONG_MS)


def test_ollama_cannot_re_rank() -> None:
    server = Reranking(name="ollama:m").server
    with pytest.raises(ModelError, match="Ollama cannot rerank"):
        load_reranker("ollama:m", server=server)
