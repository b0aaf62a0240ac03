"""Invalid lines, requests and arguments sent to a server process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.making import write
from tests.surfaces.mcp.serving import (
    PAGES,
    command,
    is_complete,
)
from tests.surfaces.mcp.stdio_process import call_tool, handshake, receive, request, send, started

HOSTILE: list[bytes] = [
    b"\n",
    b"\0\n",
    b"not JSON\n",
    b"{" * 5000 + b"\n",
    b"[" * 100_000 + b"\n",
    b"[]\n",
    b"7\n",
    b'"text"\n',
    b"null\n",
    b"{}\n",
    b"\xff\xfe\xfd\n",
    b'{"jsonrpc": "1.0", "id": 5, "method": "ping"}\n',
    b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}\n',
    b'{"jsonrpc": "2.0", "id": 5, "method": 7}\n',
    b'{"jsonrpc": "2.0", "id": 5}\n',
    b'{"jsonrpc": "2.0", "id": 5, "result": {}}\n',
    b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": []}\n',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}\n',
    b'{"jsonrpc": "2.0", "method": "no/such/notification"}\n',
    b'{"jsonrpc": "2.0", "id": "x", "method": "' + b"m" * 1_000_000 + b'"}\n',
    b" " * 3_000_000 + b"\n",
]


def test_invalid_lines_do_not_disturb_the_server(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started(command(folder), tmp_path) as process:
        handshake(process)
        send(process, *HOSTILE)
        send(process, {"jsonrpc": "2.0", "id": "last", "method": "ping"})
        while (answer := receive(process)).get("id") != "last":
            assert "error" in answer
        assert answer["result"] == {}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("no/such/method", {}, -32601),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": 7}, -32602),
        ("tools/call", {"name": "get_document", "arguments": []}, -32602),
        ("tools/call", {"name": "no_such_tool"}, -32602),
        ("tools/call", {"name": "x\0" * 1000}, -32602),
        ("resources/read", {"uri": "marklight://docs/nowhere.md"}, -32002),
        ("resources/read", {"uri": "file:///etc/passwd"}, -32002),
        ("resources/list", {"cursor": "nonsense"}, -32602),
        ("resources/subscribe", {"uri": "https://example.org"}, -32602),
        ("prompts/get", {"name": "nothing"}, -32602),
        ("prompts/get", {"name": "research", "arguments": {"questio": "x"}}, -32602),
        ("prompts/get", {"name": "summarize_section", "arguments": {"path": "nowhere.md"}}, -32602),
        ("completion/complete", {"ref": {"type": "ref/nothing"}, "argument": {}}, -32602),
    ],
)
def test_invalid_requests_get_an_error_code(
    serving: subprocess.Popen[bytes], method: str, params: dict[str, Any], code: int
) -> None:
    answer = request(serving, method, params)
    assert answer["error"]["code"] == code, answer
    assert answer["error"]["message"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    tmp_path = tmp_path_factory.mktemp("served")
    with started(command(write(tmp_path / "docs", PAGES)), tmp_path) as process:
        handshake(process)
        while not is_complete(call_tool(process, "index_status", {})["content"][0]["text"]):
            time.sleep(0.05)
        yield process


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("query_documents", {}, "Missing parameter: 'query'"),
        ("query_documents", {"query": ""}, "The query is empty"),
        ("query_documents", {"query": 7}, "'query' must be a string, not 7"),
        (
            "query_documents",
            {"query": "x" * 1_000_000},
            "'query' is too long: 1,000,000 characters",
        ),
        ("query_documents", {"query": "x", "limits": 3}, "Did you mean 'limit'?"),
        ("query_documents", {"query": "x", "top_n": 0}, "'limit' must be 1 to 100, not 0"),
        ("query_documents", {"query": "x", "top_n": True}, "'limit' must be an integer"),
        ("query_documents", {"query": "x", "mode": "magic"}, "Allowed: hybrid"),
        ("query_documents", {"query": "x", "after": "soon"}, "soon"),
        ("query_documents", {"query": "x", "where": {"a": 1}}, "'where.a' must be a string"),
        ("query_documents", {"query": "x", "path": [["x"]]}, "'path' must be a string"),
        ("query_documents", {"query": "x", "similarity_threshold": 0}, "0.01 to 1"),
        ("get_document", {"ref": "guide/aut.md"}, "Did you mean guide/auth.md"),
        ("get_document", {"ref": "../docs/guide/auth.md"}, "No document is called"),
        ("get_document", {"ref": "/etc/passwd"}, "No document is called"),
        ("get_document", {"ref": "guide/auth.md\0"}, "No document is called"),
        ("get_document", {"ref": "guide/auth.md:900-999"}, "has only"),
        ("related_documents", {"path": "nowhere"}, "No document is called"),
        ("index_status", {"verbose": True}, "Known: none"),
    ],
)
def test_errors_of_tools_are_helpful_text(
    serving: subprocess.Popen[bytes], tool: str, given: dict[str, Any], text: str
) -> None:
    result = call_tool(serving, tool, given)
    assert result["isError"] is True
    [content] = result["content"]
    assert text in content["text"]
    assert "Traceback" not in content["text"]
    assert "marklight get" not in content["text"]


@pytest.mark.parametrize("query", ["soup\0carrots", "c++ && \"'`$(x)", "🥕" * 1000, "a" * 99_999])
def test_unusual_queries_are_accepted(serving: subprocess.Popen[bytes], query: str) -> None:
    assert not call_tool(serving, "query_documents", {"query": query}).get("isError")


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (
            b'{"jsonrpc": "2.0", "id": 70, "method": "ping", "params": {"x": "\\ud800"}}\n',
            70,
            -32600,
        ),
        (b'{"jsonrpc": "2.0", "id": 71, "method": 7}\n', None, -32600),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}\n', None, -32600),
        (b'{"jsonrpc": "2.0", "id": 72, \n', None, -32700),
        (b"\0\n", None, -32700),
    ],
)
def test_an_unparsable_line_gets_an_error(
    serving: subprocess.Popen[bytes], line: bytes, id: int | None, code: int
) -> None:
    send(serving, line)
    while "method" in (answer := receive(serving)):
        pass  # news of the first run
    assert (answer["id"], answer["error"]["code"]) == (id, code)


def test_a_single_value_is_accepted_for_a_list(serving: subprocess.Popen[bytes]) -> None:
    given = {"query": "token", "path": "guide/**", "tags": "security"}
    found = call_tool(serving, "query_documents", given)["structuredContent"]
    assert found["query"]["filters"] == {"paths": ["guide/**"], "tags": ["security"]}
