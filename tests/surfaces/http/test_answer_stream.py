"""Answers with sources over HTTP: as JSON, and as server-sent events."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from marklight.models.remote import client
from marklight.surfaces.host import result_schema
from tests.models.chatting import Chat, chatting
from tests.surfaces.http.serving import Response, Served, serving
from tests.waiting import until

EXPIRE = "Tokens expire after an hour [1]."
QUERY = "q=tokens+expire&mode=keyword&min_confidence=0"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def does() -> Chat:
    return Chat(EXPIRE)


@pytest.fixture
def served(does: Chat, tmp_path: Path) -> Iterator[Served]:
    with chatting(does) as address:
        ask = {"name": "openai:m", "address": address, "timeout_seconds": 60}
        with serving(tmp_path / "docs", ask=ask) as each:
            yield each


def events(response: Response) -> list[tuple[str, Any]]:
    found = []
    for block in response.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if lines.get("event"):
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_an_answer_as_json_matches_its_schema(served: Served) -> None:
    response = served.get(f"/api/ask?{QUERY}")
    assert response.status == 200
    answer = response.json()
    Draft202012Validator(result_schema("ask")).validate(answer)
    assert answer["answer"] == "Tokens expire after an hour. [1]"
    body = {"query": "tokens expire", "mode": "keyword", "min_confidence": 0}
    posted = served.post("/api/ask", body).json()
    assert posted["answer"] == answer["answer"]


def test_the_stream_has_sources_then_sentences_then_the_whole_answer(
    served: Served, does: Chat
) -> None:
    does.reply = f"{EXPIRE} A refresh token gives a new access token [2]."
    response = served.get(f"/api/ask/stream?{QUERY}")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response)
    assert [name for name, _ in found] == ["sources", "sentence", "sentence", "done"]
    assert found[0][1]["results"][0]["path"] == "auth.md"
    done = found[-1][1]
    assert done["sentences"] == [data for name, data in found if name == "sentence"]


def test_a_client_that_reconnects_does_not_call_the_model_again(served: Served, does: Chat) -> None:
    target = f"/api/ask/stream?{QUERY}"
    first, _, _ = served.get(target).body.decode().partition("\n\n")
    assert len(does.requests) == 1
    response = served.get(target, **{"Last-Event-ID": first.removeprefix("id: ")})
    assert (response.status, response.body) == (204, b"")
    assert len(does.requests) == 1


def test_head_does_not_call_the_model(served: Served, does: Chat) -> None:
    for route in ("/api/ask", "/api/ask/stream"):
        response = served.request("HEAD", f"{route}?{QUERY}")
        assert (response.status, response.body) == (200, b"")
        assert served.request("HEAD", f"{route}?q=").status == 422
    assert does.requests == []


def test_an_abstention_calls_no_model(served: Served, does: Chat) -> None:
    found = events(served.get("/api/ask/stream?q=zeppelin+hangar&mode=keyword"))
    assert [name for name, _ in found] == ["sources", "done"]
    assert found[-1][1]["abstained"]
    assert does.requests == []


def test_without_a_model_the_status_is_404_with_a_hint(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as without:
        for route in ("/api/ask", "/api/ask/stream"):
            response = without.get(f"{route}?{QUERY}")
            assert response.status == 404
            assert "ask.name" in response.json()["error"]["hint"]
        assert without.get("/api/status").json()["ask"] == "none"


@pytest.mark.parametrize("route", ["/api/ask", "/api/ask/stream"])
def test_invalid_parameters_get_an_error_status(served: Served, does: Chat, route: str) -> None:
    for query in ("q=", "q=x&limit=0", "q=x&nonsense=1", "q=x&after=never", "q=x&max_tokens=1"):
        response = served.get(f"{route}?{query}")
        assert response.status == 422, query
        assert response.json()["error"]["message"]
    assert does.requests == []


def test_a_failing_model_is_an_error_event(served: Served, does: Chat) -> None:
    does.statuses = [500] * 9
    found = events(served.get(f"/api/ask/stream?{QUERY}"))
    assert [name for name, _ in found] == ["sources", "error", "done"]
    assert "status 500" in found[1][1]["error"]["message"]
    does.statuses = [500] * 9
    assert served.get(f"/api/ask?{QUERY}").status == 503


def test_a_model_that_breaks_off_keeps_what_it_wrote(served: Served, does: Chat) -> None:
    does.reply, does.cut_after = f"{EXPIRE} A refresh token gives a new access token [2].", 8
    found = events(served.get(f"/api/ask/stream?{QUERY}"))
    assert [name for name, _ in found] == ["sources", "sentence", "done"]
    assert found[-1][1]["incomplete"]


@pytest.mark.parametrize("route", ["/api/ask", "/api/ask/stream"])
def test_a_client_that_disconnects_stops_the_model(served: Served, does: Chat, route: str) -> None:
    does.reply, does.endless, does.pause_seconds = "word ", True, 0.05
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        request = f"GET {route}?{QUERY} HTTP/1.1\r\nHost: {served.name}\r\n\r\n"
        connection.sendall(request.encode())
        until(lambda: bool(does.requests))
    assert does.left.wait(20), "the connection to the model server is closed"


def test_a_foreign_page_cannot_make_the_model_write(served: Served, does: Chat) -> None:
    response = served.get(f"/api/ask?{QUERY}", Origin="https://evil.invalid")
    assert response.status == 403
    response = served.get(f"/api/ask/stream?{QUERY}", **{"Sec-Fetch-Site": "cross-site"})
    assert response.status == 403
    assert does.requests == []


def test_answers_leave_slots_for_searches(served: Served, does: Chat) -> None:
    does.pause_seconds = 60
    limit = int(served.host.library.serve.searches / 4)
    connections = []
    try:
        for _ in range(limit + 3):
            connection = socket.create_connection(("127.0.0.1", served.port))
            connections.append(connection)
            request = f"GET /api/ask?{QUERY} HTTP/1.1\r\nHost: {served.name}\r\n\r\n"
            connection.sendall(request.encode())
        until(lambda: len(does.requests) >= limit)
        assert served.get("/api/search?q=tokens&mode=keyword").status == 200
        assert len(does.requests) == limit
    finally:
        for connection in connections:
            connection.close()


def test_the_status_names_the_model(served: Served) -> None:
    assert served.get("/api/status").json()["ask"] == "openai:m"
