"""MCP behind the same door as everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.http.serving import Served, everything, serving

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "docs") as each:
        yield each


def session_of(served: Served) -> str:
    told = served.post("/mcp", HELLO, **ACCEPT)
    assert told.status == 200
    assert b'"serverInfo"' in told.body
    return told.headers["mcp-session-id"]


def test_an_assistant_is_answered_with_the_json_of_everybody(served: Served) -> None:
    headers = {**ACCEPT, "Mcp-Session-Id": session_of(served)}
    served.post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
    call = {"name": "query_documents", "arguments": {"query": "refresh token", "top_n": 1}}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    told = served.post("/mcp", asked, **headers)
    line = next(each for each in told.body.splitlines() if each.startswith((b"data: {", b"{")))
    found = json.loads(line.removeprefix(b"data: "))["result"]["structuredContent"]
    plain = served.get("/api/search?q=refresh+token&limit=1").json()
    assert found["results"][0]["chunk_id"] == plain["results"][0]["chunk_id"]
    assert set(found) == set(plain)


def test_the_headers_that_keep_others_out_are_on_its_answers_too(served: Served) -> None:
    told = served.post("/mcp", HELLO, **ACCEPT)
    assert told.headers["x-content-type-options"] == "nosniff"
    assert not any(name.startswith("access-control") for name in told.headers)
    assert served.ask("PUT", "/mcp", HELLO).status == 405


def test_an_open_stream_ends_with_the_server(served: Served) -> None:
    session = session_of(served)
    with served.raw() as made:
        made.sendall(
            f"GET /mcp HTTP/1.1\r\nHost: {served.name}\r\nAccept: text/event-stream\r\n"
            f"Mcp-Session-Id: {session}\r\n\r\n".encode()
        )
        assert made.recv(20).startswith(b"HTTP/1.1 200")
        served.leave()
        everything(made)
