"""`marklight mcp` as a process: first answers, recent edits, and when it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp import Client

from tests.making import write
from tests.surfaces.mcp.serving import (
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
from tests.surfaces.mcp.stdio_process import HELLO, call_tool, handshake, send, started

STUCK = f"""
import time
from marklight.library import refresh, watching
def read(library, progress, **given):
    while True:
        progress("Reading text", 42, 100)
        time.sleep(0.01)
refresh.index_changes = watching.index_changes = read
{PROGRAM}
"""
"""A program whose first indexing never ends."""


DEAF = f"""
import time
from marklight.library import refresh, watching
refresh.index_changes = watching.index_changes = lambda *given, **more: time.sleep(600)
{PROGRAM}
"""
"""A program whose first indexing never ends and cannot be cancelled."""


NO_SIGNAL_HANDLERS = f"""
import asyncio.unix_events
def refuse(*given): raise NotImplementedError
asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
{PROGRAM}
"""
"""A program whose event loop has no signal handlers, as on Windows."""


CHATTY = f"""
import os
from marklight.library import Library
usual = Library.execute
def execute(self, name, arguments):
    print("to standard output", flush=True)
    os.write(1, b"and past Python\\n")
    return usual(self, name, arguments)
Library.execute = execute
{PROGRAM}
"""


@pytest.mark.parametrize("era", ERAS)
def test_a_new_folder_and_recent_edits_are_searchable(tmp_path: Path, era: str) -> None:
    folder = write(tmp_path / "docs", PAGES)

    async def main() -> None:
        async with Client(stdio(folder), mode=era) as client:

            async def ask(query: str = "how long does a refresh token live") -> str:
                given = {"query": query, "min_score": 0}
                return text_of(await client.call_tool("query_documents", given))

            async def departure() -> str:
                return await ask("when does the zeppelin leave")

            def is_fresh(text: str) -> bool:
                """Return true if the answer does not report running indexing."""
                return "indexing" not in text and "being indexed" not in text

            await until(ask, lambda text: "thirty days" in text)
            write(folder, {"guide/new.md": "# Zeppelin\n\nThe zeppelin leaves at noon.\n"})
            assert "leaves at noon" in await until(departure, is_fresh)
            write(folder, {"guide/new.md": "# Zeppelin\n\nThe zeppelin leaves at midnight now.\n"})
            assert "leaves at midnight now" in await until(departure, is_fresh)

    anyio.run(main)


@pytest.mark.parametrize("era", ERAS)
def test_requests_do_not_wait_for_the_first_indexing(tmp_path: Path, era: str) -> None:
    folder = write(tmp_path / "docs", PAGES)

    async def main() -> None:
        async with Client(stdio(folder, STUCK), mode=era) as client:
            assert "query_documents" in names((await client.list_tools()).tools)
            assert (await client.list_resources()).resources == []

            async def status() -> str:
                return text_of(await client.call_tool("index_status", {}))

            text = await until(status, lambda text: "indexing" in text)
            assert text.startswith("indexing, 42 % (reading text, 42 of 100)")

    anyio.run(main)


@pytest.mark.parametrize("program", [PROGRAM, STUCK, DEAF, NO_SIGNAL_HANDLERS])
def test_the_server_exits_when_standard_input_is_closed(tmp_path: Path, program: str) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started([sys.executable, "-c", program, "mcp", str(folder)], tmp_path) as process:
        handshake(process)
        assert process.stdin
        process.stdin.close()
        process.stdin = None
        assert process.wait(PATIENCE_SECONDS) == 0


def test_the_server_exits_when_standard_output_is_closed(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started(command(folder), tmp_path) as process:
        handshake(process)
        assert process.stdout
        process.stdout.close()
        send(process, {"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr
        assert process.stderr.read() == b""
        process.stdout = None


@pytest.mark.parametrize("program", [PROGRAM, STUCK])
@pytest.mark.skipif(os.name == "nt", reason="signals are another thing there")
def test_the_server_exits_on_a_signal(tmp_path: Path, program: str) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started([sys.executable, "-c", program, "mcp", str(folder)], tmp_path) as process:
        handshake(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM


@pytest.mark.skipif(os.name == "nt", reason="processes end otherwise there")
def test_the_server_exits_when_its_client_is_killed(tmp_path: Path) -> None:
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
    ("more", "text"),
    [(["nowhere"], "nowhere"), (["docs", "--set", "search.nonsense=1"], "nonsense")],
)
def test_startup_errors_are_printed_before_any_protocol_message(
    tmp_path: Path, more: list[str], text: str
) -> None:
    write(tmp_path / "docs", PAGES)
    folder, *options = more
    found = subprocess.run(
        command(tmp_path / folder, *options),
        input=json.dumps(HELLO).encode(),
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert found.returncode == 2
    assert found.stdout == b""
    [line] = found.stderr.decode().splitlines()
    assert line.startswith("marklight: ")
    assert text in line


def test_standard_output_contains_protocol_messages_only(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with started([sys.executable, "-c", CHATTY, "mcp", str(folder)], tmp_path) as process:
        handshake(process)
        assert call_tool(process, "query_documents", {"query": "soup"})
        assert process.stdin
        process.stdin.close()
        process.stdin = None
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        # Notifications of the first indexing may follow.
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
        assert err.splitlines() == [b"to standard output", b"and past Python"]
