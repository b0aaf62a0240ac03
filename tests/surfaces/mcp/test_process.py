"""`marklight mcp` as a process: what it answers before anything is ready, and when it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.making import write

from .serving import (
    ERAS,
    PAGES,
    PATIENCE_SECONDS,
    PROGRAM,
    command,
    environment,
    names,
    stdio,
    text_of,
    until,
)

STUCK = f"""
import time
from marklight.library.upkeep import Upkeep
def read(self, look, progress, *given):
    while True:
        progress("Reading text", 42, 100)
        time.sleep(0.01)
Upkeep.read = read
{PROGRAM}
"""
"""A program whose first run never comes to an end."""
DEAF = f"""
import time
from marklight.library.upkeep import Upkeep
Upkeep.read = lambda self, *given: time.sleep(600)
{PROGRAM}
"""
"""The same, and it does not listen to anybody who wants it to stop."""
CHATTY = f"""
import os
from marklight.library import Library
usual = Library.search
def search(self, *words, **given):
    print("to standard output", flush=True)
    os.write(1, b"and past Python\\n")
    return usual(self, *words, **given)
Library.search = search
{PROGRAM}
"""
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@contextmanager
def started(arguments: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send(process: subprocess.Popen[bytes], *lines: bytes | dict[str, Any]) -> None:
    assert process.stdin
    for line in lines:
        process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout
    return json.loads(process.stdout.readline())


def greet(process: subprocess.Popen[bytes]) -> None:
    send(process, HELLO)
    assert heard(process)["result"]["serverInfo"]["name"] == "marklight"
    send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})


NUMBERS = count(100)


def asked(process: subprocess.Popen[bytes], method: str, params: dict[str, Any]) -> Any:
    """What one request is answered with."""
    number = next(NUMBERS)
    send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    while (answer := heard(process)).get("id") != number:
        pass
    return answer


def called(process: subprocess.Popen[bytes], tool: str, given: dict[str, Any]) -> Any:
    return asked(process, "tools/call", {"name": tool, "arguments": given})["result"]


@pytest.mark.parametrize("era", ERAS)
def test_a_folder_never_seen_before_is_answered_from_and_so_is_what_was_just_written(
    tmp_path: Path, era: str
) -> None:
    folder = write(tmp_path / "docs", PAGES)

    async def main() -> None:
        async with Client(stdio(folder, tmp_path), mode=era) as client:

            async def ask(query: str = "how long does a refresh token live") -> str:
                given = {"query": query, "min_score": 0}
                return text_of(await client.call_tool("query_documents", given))

            await until(ask, lambda text: "thirty days" in text)
            write(folder, {"guide/new.md": "# Zeppelin\n\nThe zeppelin leaves at noon.\n"})
            assert "leaves at noon" in await ask("when does the zeppelin leave")
            write(folder, {"guide/new.md": "# Zeppelin\n\nThe zeppelin leaves at midnight now.\n"})
            assert "leaves at midnight now" in await ask("when does the zeppelin leave")

    anyio.run(main)


@pytest.mark.parametrize("era", ERAS)
def test_nothing_waits_for_the_first_run(tmp_path: Path, era: str) -> None:
    folder = write(tmp_path / "docs", PAGES)

    async def main() -> None:
        async with Client(stdio(folder, tmp_path, STUCK), mode=era) as client:
            assert "query_documents" in names((await client.list_tools()).tools)
            assert (await client.list_resources()).resources == []

            async def status() -> str:
                return text_of(await client.call_tool("index_status", {}))

            said = await until(status, lambda text: "indexing" in text)
            assert said.startswith("indexing, 42 % (reading text, 42 of 100)")

    anyio.run(main)


@pytest.mark.parametrize("program", [PROGRAM, STUCK, DEAF])
def test_it_leaves_when_its_input_ends(tmp_path: Path, program: str) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started([sys.executable, "-c", program, "mcp", str(folder)], tmp_path) as process:
        greet(process)
        assert process.stdin
        process.stdin.close()
        process.stdin = None
        assert process.wait(PATIENCE_SECONDS) == 0


def test_it_leaves_when_nobody_reads_its_output(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started(command(folder), tmp_path) as process:
        greet(process)
        assert process.stdout
        process.stdout.close()
        send(process, {"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr
        assert process.stderr.read() == b""
        process.stdout = None


@pytest.mark.parametrize("program", [PROGRAM, STUCK])
@pytest.mark.skipif(os.name == "nt", reason="signals are another thing there")
def test_it_leaves_when_it_is_told_to(tmp_path: Path, program: str) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started([sys.executable, "-c", program, "mcp", str(folder)], tmp_path) as process:
        greet(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM


@pytest.mark.skipif(os.name == "nt", reason="processes end otherwise there")
def test_it_leaves_when_its_client_is_killed(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    hello = json.dumps(HELLO).encode() + b"\n"
    client = f"""
import subprocess, sys, time
child = subprocess.Popen({command(folder)!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write({hello!r})
child.stdin.flush()
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""
    with started([sys.executable, "-c", client], tmp_path) as process:
        assert process.stdout
        server = int(process.stdout.readline())
        process.kill()
        until_time = time.monotonic() + PATIENCE_SECONDS
        while _lives(server):
            assert time.monotonic() < until_time, "the server outlives its client"
            time.sleep(0.05)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("more", "said"),
    [(["nowhere"], "nowhere"), (["docs", "--set", "search.nonsense=1"], "nonsense")],
)
def test_what_cannot_be_served_is_told_before_any_protocol(
    tmp_path: Path, more: list[str], said: str
) -> None:
    write(tmp_path / "docs", PAGES)
    folder, *options = more
    found = subprocess.run(
        command(tmp_path / folder, *options),
        input=json.dumps(HELLO).encode(),
        capture_output=True,
        env=environment(tmp_path),
        check=False,
    )
    assert found.returncode == 2
    assert found.stdout == b""
    [line] = found.stderr.decode().splitlines()
    assert line.startswith("marklight: ")
    assert said in line


def test_standard_output_carries_the_protocol_only(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started([sys.executable, "-c", CHATTY, "mcp", str(folder)], tmp_path) as process:
        greet(process)
        assert called(process, "query_documents", {"query": "soup"})
        assert process.stdin
        process.stdin.close()
        process.stdin = None
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert out == b""
        assert err.splitlines() == [b"to standard output", b"and past Python"]


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


def test_lines_that_are_no_messages_harm_nobody(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started(command(folder), tmp_path) as process:
        greet(process)
        send(process, *HOSTILE)
        send(process, {"jsonrpc": "2.0", "id": "last", "method": "ping"})
        while (answer := heard(process)).get("id") != "last":
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
        ("logging/setLevel", {"level": "loud"}, -32602),
    ],
)
def test_requests_that_make_no_sense_are_answered_with_an_error(
    serving: subprocess.Popen[bytes], method: str, params: dict[str, Any], code: int
) -> None:
    answer = asked(serving, method, params)
    assert answer["error"]["code"] == code, answer
    assert answer["error"]["message"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    tmp_path = tmp_path_factory.mktemp("served")
    with started(command(write(tmp_path / "docs", PAGES)), tmp_path) as process:
        greet(process)
        while (
            "indexing" in called(process, "index_status", {})["content"][0]["text"]
            or not called(process, "index_status", {})["structuredContent"]["documents"]
        ):
            time.sleep(0.05)
        yield process


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("query_documents", {}, "'query' is missing"),
        ("query_documents", {"query": ""}, "the query is empty"),
        ("query_documents", {"query": 7}, "'query' must be a text, not 7"),
        ("query_documents", {"query": "x" * 1_000_000}, "'query' has 1,000,000 signs"),
        ("query_documents", {"query": "x", "top_k": 3}, "Did you mean 'top_n'?"),
        ("query_documents", {"query": "x", "top_n": 0}, "'top_n' must be 1 to 100, not 0"),
        ("query_documents", {"query": "x", "top_n": True}, "'top_n' must be a whole number"),
        ("query_documents", {"query": "x", "mode": "magic"}, "Known: hybrid"),
        ("query_documents", {"query": "x", "after": "soon"}, "soon"),
        ("query_documents", {"query": "x", "where": {"a": 1}}, "'where.a' must be a text"),
        ("query_documents", {"query": "x", "path": [["x"]]}, "'path' must be a text"),
        ("query_documents", {"query": "x", "similarity_threshold": 0}, "0.01 to 1"),
        ("get_document", {"ref": "guide/aut.md"}, "Did you mean guide/auth.md"),
        ("get_document", {"ref": "../docs/guide/auth.md"}, "no document is called"),
        ("get_document", {"ref": "/etc/passwd"}, "no document is called"),
        ("get_document", {"ref": "guide/auth.md\0"}, "no document is called"),
        ("get_document", {"ref": "guide/auth.md:900-999"}, "has only"),
        ("related_documents", {"path": "nowhere"}, "no document is called"),
        ("index_status", {"verbose": True}, "Known: none"),
    ],
)
def test_errors_reach_the_model_as_text_that_helps(
    serving: subprocess.Popen[bytes], tool: str, given: dict[str, Any], said: str
) -> None:
    result = called(serving, tool, given)
    assert result["isError"] is True
    [content] = result["content"]
    assert said in content["text"]
    assert "Traceback" not in content["text"]
    assert "marklight get" not in content["text"]


@pytest.mark.parametrize("query", ["soup\0carrots", "c++ && \"'`$(x)", "🥕" * 1000, "a" * 99_999])
def test_odd_questions_are_questions(serving: subprocess.Popen[bytes], query: str) -> None:
    assert not called(serving, "query_documents", {"query": query}).get("isError")


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
def test_whoever_sends_what_cannot_be_read_is_told(
    serving: subprocess.Popen[bytes], line: bytes, id: int | None, code: int
) -> None:
    send(serving, line)
    answer = heard(serving)
    assert (answer["id"], answer["error"]["code"]) == (id, code)


def test_one_value_is_taken_where_a_list_of_one_is_meant(serving: subprocess.Popen[bytes]) -> None:
    given = {"query": "token", "path": "guide/**", "tags": "security"}
    found = called(serving, "query_documents", given)["structuredContent"]
    assert found["query"]["filters"] == {"paths": ["guide/**"], "tags": ["security"]}
