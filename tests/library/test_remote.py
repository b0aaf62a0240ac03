"""A library whose model is on a server: searched end to end, and when the server is not there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import ModelServerError
from marklight.library.configuration import Index, Model
from marklight.library.maintenance import examine
from marklight.models.remote import client
from tests.library.conftest import paths
from tests.making import library, write
from tests.models.serving import Behaviour, serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(Model, "retries", 1)
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))


def remote(folder: Path, address: str, kind: str = "openai", **more: Any) -> marklight.Library:
    model = {"name": f"{kind}:m", "address": address, **more}
    return marklight.open(folder, {"model": model})


@pytest.fixture
def gone() -> str:
    with serving(Behaviour()) as address:
        return address


@pytest.mark.parametrize("kind", ["openai", "ollama"])
def test_a_remote_model_ranks_as_the_same_local_model(
    kind: str, folder: Path, address: str
) -> None:
    questions = ["undo a deployment revision", "espresso machine", "new access token"]
    with library(folder) as here:
        expected = [paths(here.search(each, mode="semantic")) for each in questions]
    with remote(folder, address, kind) as there:
        report = there.index()
        assert report.index.pending == 0
        assert not report.notices
        assert [paths(there.search(each, mode="semantic")) for each in questions] == expected


def test_opening_a_library_sends_no_request(folder: Path, does: Behaviour, address: str) -> None:
    with remote(folder, address) as lib:
        lib.index()
    before = len(does.requests)
    with remote(folder, address) as lib:
        assert lib.status()["pending"] == 0
        assert lib.status()["model_address"] == address
        assert paths(lib.search("espresso machine", mode="keyword"))[0] == "notes.txt"
    assert len(does.requests) == before


def test_indexing_without_the_server_stores_text_and_the_next_run_embeds(
    folder: Path, does: Behaviour, address: str
) -> None:
    with remote(folder, address) as lib:
        does.statuses = [503] * 50
        with pytest.raises(ModelServerError, match="status 503"):
            lib.index()
        assert lib.status()["documents"] == 4
        assert paths(lib.search("espresso machine", mode="keyword"))[0] == "notes.txt"
        does.statuses = []
    with remote(folder, address) as lib:
        assert lib.index().index.pending == 0


def test_a_failure_during_embedding_keeps_earlier_vectors(
    tmp_path: Path, does: Behaviour, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marklight.ingest.embedding.WINDOW", 4)
    folder = write(
        tmp_path / "many",
        {f"{number}.md": f"# Page {number}\n\nWord{number}\n" for number in range(12)},
    )
    monkeypatch.setattr(Model, "retries", 0)
    with remote(folder, address) as lib:
        # The dimension, the limit, one window, and then no more.
        does.statuses = [0, 0, 0, 500]
        with pytest.raises(ModelServerError):
            lib.index()
        assert lib.status()["embedded"] == 4
        assert lib.index().newly_embedded == 8


def test_without_its_server_a_search_uses_keywords_with_a_notice(folder: Path, gone: str) -> None:
    with remote(folder, gone) as lib:
        answer = lib.search("espresso machine in the kitchen")
        assert paths(answer)[0] == "notes.txt"
        notices = [one for one in answer.notices if "Answered by keyword search alone" in one]
        assert len(notices) == 1
        assert gone in notices[0]
        with pytest.raises(ModelServerError, match="cannot be reached"):
            lib.search("espresso machine", mode="semantic")


def test_a_server_that_fails_later_costs_one_timeout(
    folder: Path, does: Behaviour, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "query_seconds", 1.1)
    with remote(folder, address) as lib:
        lib.index()
        does.waits = threading.Event()
        first = lib.search("espresso machine in the kitchen")
        assert paths(first)[0] == "notes.txt"
        requests = len(does.requests)
        second = lib.search("refresh token")
        assert paths(second)[0] == "auth.md"
        assert "next attempt is in" in " ".join(second.notices)
        imagined = lib.search("refresh", hypothesis="a token that gives a new one")
        assert "Answered by keyword search alone" in " ".join(imagined.notices)
        assert len(does.requests) == requests


def test_new_text_is_found_by_keywords_while_the_server_is_down(
    folder: Path, does: Behaviour, address: str
) -> None:
    with remote(folder, address) as lib:
        lib.index()
        write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
        does.statuses = [503] * 50
        assert paths(lib.search("zebra stripes"))[0] == "new.md"
        does.statuses = []
        lib.search("zebra")
        assert lib.status()["pending"] == 0


def test_a_passage_rejected_as_too_long_stops_nothing(
    folder: Path, does: Behaviour, address: str
) -> None:
    does.longest = 70
    with remote(folder, address) as lib:
        assert lib.index().index.pending == 0


def test_changed_weights_are_embedded_again(folder: Path, does: Behaviour, address: str) -> None:
    with remote(folder, address, "ollama") as lib:
        lib.index()
    does.digest = "sha256:two"
    write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
    with remote(folder, address, "ollama") as lib:
        assert lib.index().index.pending == 0
        assert lib.index().index.embedded == lib.status()["chunks"]


def test_a_model_removed_from_the_settings_gets_no_requests(
    folder: Path, does: Behaviour, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remote(folder, address) as lib:
        lib.index()
    before = len(does.requests)
    monkeypatch.setattr(Index, "first_search_seconds", 0.0)
    with library(folder, index={"search_seconds": 0}) as lib:
        lib.search("espresso machine")
    assert len(does.requests) == before


# Reranking


def test_a_server_re_ranks(folder: Path, does: Behaviour, address: str) -> None:
    given = {"model": {"name": "fake"}, "reranker": {"name": "openai:r", "address": address}}
    with marklight.open(folder, given) as lib:
        answer = lib.search("return to an earlier revision", explain=True, min_confidence=0)
        assert paths(answer)[0] == "deploy/rollback.md"
        assert any(why.stage == "rerank" for why in answer.hits[0].why)
        assert lib.status()["reranker_address"] == address
    assert does.query("/v1/rerank")[0]["query"] == "return to an earlier revision"


def test_without_the_reranking_server_the_order_stays_with_a_notice(
    folder: Path, gone: str
) -> None:
    given = {"model": {"name": "fake"}, "reranker": {"name": "openai:r", "address": gone}}
    with library(folder) as plain:
        expected = paths(plain.search("return to an earlier revision"))
    with marklight.open(folder, given) as lib:
        answer = lib.search("return to an earlier revision", rerank=True)
        assert paths(answer) == expected
        assert "not reranked" in " ".join(answer.notices)


# Notices, and what they never contain


def test_the_notice_that_texts_leave_this_machine_is_shown_once(
    folder: Path, does: Behaviour, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    # A host elsewhere, by a proxy here that answers in its place.
    monkeypatch.setenv("http_proxy", address)
    with remote(folder, "http://model.example/x") as lib:
        message = " ".join(lib.search("espresso machine").notices)
        assert "queries are sent to http://model.example/x for openai:m, unencrypted" in message
        assert "are sent to" not in " ".join(lib.search("espresso machine").notices)
        assert "are sent to" not in " ".join(lib.search("espresso", mode="keyword").notices)


def test_doctor_checks_the_server(folder: Path, does: Behaviour, address: str, gone: str) -> None:
    with remote(folder, address) as lib:
        lib.index()
    given = ["model.name=openai:m", "reranker.name=openai:r"]

    def found(where: str) -> dict[str, tuple[bool, str]]:
        places = [f"model.address={where}", f"reranker.address={where}"]
        return {one.part: (one.ok, one.detail) for one in examine(folder, [*given, *places])}

    well = found(address)
    assert well["model"][0]
    assert f"openai:m at {address}, 64 dimensions" in well["model"][1]
    assert well["reranker"][0]
    bad = found(gone)
    assert not bad["model"][0]
    assert not bad["reranker"][0]
    assert "cannot be reached" in bad["model"][1]
