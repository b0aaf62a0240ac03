"""The MCP proxy: sessions continue when the daemon ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from select import select
from threading import Thread
from typing import Any, BinaryIO

import anyio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent

from marklight.surfaces.daemon import state_files
from marklight.surfaces.daemon.mcp_proxy import McpProxy, SubprocessServer
from tests.surfaces.daemon.serving import PROGRAM, of, serving, settled
from tests.waiting import PATIENCE_SECONDS, until

MOST_KILOBYTES = 80_000
"""Of a second client's memory: it holds no model."""


@asynccontextmanager
async def assistant(folder: Path, **variables: str) -> AsyncIterator[ClientSession]:
    command, *arguments = PROGRAM
    server = StdioServerParameters(
        command=command,
        args=[*arguments, "mcp", str(folder)],
        env={**os.environ, **variables},
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def found(session: ClientSession, question: str) -> list[str]:
    given = {"query": question, "mode": "keyword"}
    answer = await session.call_tool("query_documents", given)
    assert not answer.is_error, answer
    [content] = answer.content
    assert isinstance(content, TextContent)
    return re.findall(r"^\[\d+\] (.+?):\d+-\d+", content.text, re.MULTILINE)


@contextmanager
def pipes() -> Iterator[tuple[BinaryIO, BinaryIO, BinaryIO, BinaryIO]]:
    """Both ends of the pipe into a proxy, then of the pipe out of it."""
    one, two = os.pipe(), os.pipe()
    with (
        open(one[0], "rb") as coming,
        open(one[1], "wb") as to_proxy,
        open(two[0], "rb") as from_proxy,
        open(two[1], "wb") as going,
    ):
        yield coming, to_proxy, from_proxy, going


def proxy_processes() -> list[int]:
    """Our children that are assistants' servers."""
    processes = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(row.split()[0]) for row in processes.stdout.splitlines() if " mcp " in row]


def kilobytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_the_proxy_uses_the_daemon_and_loads_no_model(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder) as session:
            assert await found(session, "undo command") == ["guide/deploy.md"]
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert {"query_documents", "get_document", "index_status"} <= tools
            (pid,) = proxy_processes()
            assert kilobytes(pid) < MOST_KILOBYTES
            libraries = Path(f"/proc/{pid}/maps").read_text()
            assert "onnxruntime" not in libraries
            assert "numpy" not in libraries

    with serving(folder):
        settled(folder)
        anyio.run(ask)


def test_a_daemon_killed_between_calls_is_replaced(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder) as session:
            before = await found(session, "undo command")
            os.kill(of(folder).pid, signal.SIGKILL)
            assert await found(session, "undo command") == before
            assert await found(session, "beans") == ["espresso.md"]

    with serving(folder):
        settled(folder)
        anyio.run(ask)
    assert list(state_files()) == []


def test_a_daemon_killed_during_calls_is_replaced(folder: Path) -> None:
    answers: list[list[str]] = []

    async def ask() -> None:
        async with assistant(folder) as session:
            await found(session, "beans")
            state = of(folder)
            # Stopped, it takes the questions and answers none of them.
            os.kill(state.pid, signal.SIGSTOP)

            async def one(question: str) -> None:
                answers.append(await found(session, question))

            async with anyio.create_task_group() as group:
                for question in ("undo command", "beans", "tokens"):
                    group.start_soon(one, question)
                await anyio.wait_all_tasks_blocked()
                os.kill(state.pid, signal.SIGKILL)

    with serving(folder):
        settled(folder)
        anyio.run(ask)
    assert sorted(answers) == [["espresso.md"], ["guide/auth.md"], ["guide/deploy.md"]]


def test_the_proxy_fails_over_to_another_daemon(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder) as session:
            with serving(folder) as second:
                # Refused while the first lives; it waits for no lock.
                assert await anyio.to_thread.run_sync(second.wait) == 2
            os.kill(of(folder).pid, signal.SIGKILL)
            with serving(folder) as second:
                until(lambda: [one for _, one in state_files() if one.pid == second.pid])
                assert await found(session, "beans") == ["espresso.md"]

    with serving(folder):
        settled(folder)
        anyio.run(ask)


PEER = """
import json, os, sys
name, log = sys.argv[1:]
for line in sys.stdin:
    with open(log, "a") as kept:
        kept.write(f"{name} {line}")
    message = json.loads(line)
    if message.get("method") == "die" and name == "first":
        os._exit(9)
    if "id" in message:
        print(json.dumps({"id": message["id"], "result": name}), flush=True)
"""
"""A server that answers everything with its name, and the first of which can be made to die."""


def test_the_session_is_replayed_to_another_server_unnoticed_by_the_assistant(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"

    def peer(name: str) -> SubprocessServer:
        return SubprocessServer([sys.executable, "-c", PEER, name, str(log)])

    def request(id: object, method: str, **params: object) -> bytes:
        return json.dumps({"id": id, "method": method, "params": params}).encode() + b"\n"

    with pipes() as (coming, to_proxy, from_proxy, going):
        proxy = McpProxy(peer("first"), lambda: peer("second"))
        thread = Thread(target=proxy.run, args=(coming, going))
        thread.start()

        def sent(*lines: bytes) -> list[object]:
            """The ids that are answered and by whom, after each of these lines."""
            answers: list[object] = []
            for line in lines:
                to_proxy.write(line)
                to_proxy.flush()
                if b'"id"' in line:
                    answer = json.loads(from_proxy.readline())
                    answers.append((answer["id"], answer["result"]))
            return answers

        assert sent(
            request(1, "initialize"),
            b'{"method": "notifications/initialized"}\n',
            request("1", "resources/subscribe", uri="a"),
            request(2, "resources/subscribe", uri="b"),
            request(3, "resources/unsubscribe", uri="b"),
            request(4, "tools/call"),
            request(5, "die"),
            request(6, "tools/call"),
        ) == [
            (1, "first"), ("1", "first"), (2, "first"), (3, "first"), (4, "first"),
            (5, "second"), (6, "second"),
        ]  # fmt: skip
        to_proxy.close()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    received = [line.split(" ", 1) for line in log.read_text().splitlines()]
    second = [json.loads(line) for name, line in received if name == "second"]
    assert [message["method"] for message in second] == [
        "initialize", "notifications/initialized", "resources/subscribe", "die", "tools/call",
    ]  # fmt: skip
    assert second[2]["params"] == {"uri": "a"}


FATAL = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "fatal":
        os._exit(9)
    print(json.dumps({"id": message["id"], "result": {}}), flush=True)
"""
"""A server that one request ends, whoever it is put to."""


@contextmanager
def carried(
    first: SubprocessServer, another: Callable[[], SubprocessServer]
) -> Iterator[Callable[..., list[Any]]]:
    """Requests through a proxy, and what each is answered with."""
    with pipes() as (coming, to_proxy, from_proxy, going):
        thread = Thread(target=McpProxy(first, another).run, args=(coming, going), daemon=True)
        thread.start()

        def ask(*methods: str) -> list[Any]:
            answers = []
            for id, method in enumerate(methods):
                to_proxy.write(json.dumps({"id": id, "method": method}).encode() + b"\n")
                to_proxy.flush()
                assert select([from_proxy], [], [], PATIENCE_SECONDS)[0], "no answer"
                answers.append(json.loads(from_proxy.readline()))
            return answers

        yield ask
        to_proxy.close()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_a_request_that_kills_servers_gets_an_error() -> None:
    def peer() -> SubprocessServer:
        return SubprocessServer([sys.executable, "-c", FATAL])

    with carried(peer(), peer) as ask:
        answers = ask("initialize", "ping", "fatal", "ping")
    assert ["error" in each for each in answers] == [False, False, True, False]
    assert "ended" in answers[2]["error"]["message"]


def test_without_a_working_server_each_request_tries_once_and_gets_an_error() -> None:
    tried: list[SubprocessServer] = []

    def unable() -> SubprocessServer:
        tried.append(SubprocessServer([sys.executable, "-c", ""]))
        return tried[-1]

    with carried(SubprocessServer([sys.executable, "-c", FATAL]), unable) as ask:
        answers = ask("initialize", "fatal", "ping", "ping")
    assert ["error" in each for each in answers] == [False, True, True, True]
    assert len(tried) == 3


def test_the_proxy_starts_a_daemon_if_serve_start_is_set(folder: Path) -> None:
    async def ask() -> None:
        wanted = {"MARKLIGHT_SERVE_START": "true", "MARKLIGHT_SERVE_PORT": "0"}
        idle = {"MARKLIGHT_SERVE_IDLE_MINUTES": "0.05"}
        async with assistant(folder, **wanted, **idle) as session:
            assert await found(session, "beans") == ["espresso.md"]
            (pid,) = proxy_processes()
            assert "numpy" not in Path(f"/proc/{pid}/maps").read_text()
            started = of(folder).pid
            # It stays as long as somebody is connected, and leaves soon after.
            await anyio.sleep(4)
            assert of(folder).pid == started

    anyio.run(ask)
    until(lambda: not list(state_files()))


def test_the_daemon_of_the_whole_library_does_not_serve_a_part_of_it(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder / "guide") as session:
            assert await found(session, "beans") == []
            assert await found(session, "tokens") == ["guide/auth.md"]

    with serving(folder):
        settled(folder)
        anyio.run(ask)
