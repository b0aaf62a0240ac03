"""Static files of the web page and MCP over a real socket."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight.surfaces.http.page import MEDIA_TYPES, WEB_FOLDER
from tests.surfaces.http.serving import Served, everything, serving

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"experimental": {"marklight/structured": {}}},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("page") / "docs") as each:
        yield each


@pytest.mark.parametrize("name", ["", *(f"page/{each.name}" for each in WEB_FOLDER.iterdir())])
def test_every_file_of_the_page_has_its_media_type_and_a_strict_policy(
    served: Served, name: str
) -> None:
    response = served.get(f"/{name}")
    assert response.status == 200
    assert response.headers["content-type"] in MEDIA_TYPES.values()
    policy = response.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert {"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert served.get(f"/{name}", **{"If-None-Match": response.headers["etag"]}).status == 304


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "../http/app.py", "..%2fhttp%2fapp.py", "%2e%2e/x", "", "x%00", "index.html/"],
)
def test_no_other_file_is_served(served: Served, name: str) -> None:
    response = served.get(f"/page/{name}")
    assert response.status == 404
    assert response.json()["error"]["type"] == "NotFound"


def test_every_imported_file_of_the_page_exists() -> None:
    licences = {each.name for each in WEB_FOLDER.glob("*.txt")}
    here = {each.name for each in WEB_FOLDER.iterdir()} - licences
    named = set()
    for each in WEB_FOLDER.iterdir():
        text = each.read_text("utf-8", errors="replace")
        named |= {
            *re.findall(r'"/page/([^"]+)"', text),
            *re.findall(r'(?:from |import\()"\./([^"]+)"', text),
        }
    assert named == {*here, "legend.json"} - {"index.html"}


def test_a_document_is_returned_as_sanitized_html_with_line_numbers(served: Served) -> None:
    response = served.get("/api/page/deploy/scale.md")
    assert response.status == 200
    page = response.json()
    assert page["title"] == "Scaling"
    assert page["lines"] == [1, page["of_lines"]]
    assert '<h1 data-lines="1-1" id="part-scaling">' in page["html"]
    assert 'href="marklight:deploy/rollback.md"' in page["html"]
    assert page["outline"] == [
        {"level": 1, "text": "Scaling", "anchor": "scaling", "lines": [1, 3]}
    ]
    assert served.get("/api/page/nothing.md").status == 404
    assert served.get("/api/page/auth.md?line=0").status == 422


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """A server of one test's own."""
    with serving(tmp_path / "docs") as each:
        yield each


def session_of(fresh: Served) -> str:
    response = fresh.post("/mcp", HELLO, **ACCEPT)
    assert response.status == 200
    assert b'"serverInfo"' in response.body
    return response.headers["mcp-session-id"]


def test_mcp_over_http_returns_the_same_json_as_the_api(fresh: Served) -> None:
    headers = {**ACCEPT, "Mcp-Session-Id": session_of(fresh)}
    fresh.post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
    call = {"name": "query_documents", "arguments": {"query": "refresh token", "top_n": 1}}
    query = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    response = fresh.post("/mcp", query, **headers)
    line = next(each for each in response.body.splitlines() if each.startswith((b"data: {", b"{")))
    found = json.loads(line.removeprefix(b"data: "))["result"]["structuredContent"]
    plain = fresh.get("/api/search?q=refresh+token&limit=1").json()
    assert found["results"][0]["chunk_id"] == plain["results"][0]["chunk_id"]
    assert set(found) == set(plain)


def test_mcp_responses_have_the_security_headers(fresh: Served) -> None:
    response = fresh.post("/mcp", HELLO, **ACCEPT)
    assert response.headers["x-content-type-options"] == "nosniff"
    assert not any(name.startswith("access-control") for name in response.headers)
    assert fresh.request("PUT", "/mcp", HELLO).status == 405


def test_an_open_mcp_stream_ends_with_the_server(fresh: Served) -> None:
    session = session_of(fresh)
    with fresh.raw() as made:
        made.sendall(
            f"GET /mcp HTTP/1.1\r\nHost: {fresh.name}\r\nAccept: text/event-stream\r\n"
            f"Mcp-Session-Id: {session}\r\n\r\n".encode()
        )
        assert made.recv(20).startswith(b"HTTP/1.1 200")
        fresh.leave()
        everything(made)
