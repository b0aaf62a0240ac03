"""An assistant that attaches to a daemon, and does not notice when that goes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPDeprecationWarning

from marklight.surfaces.daemon.state import states
from tests.surfaces.daemon.serving import PROGRAM, of, serving, settled, until

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
    structured: Any = answer.structured_content
    return [each["path"] for each in structured["results"]]


def tunnels() -> list[int]:
    """Our children that are assistants' servers."""
    said = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(row.split()[0]) for row in said.stdout.splitlines() if " mcp " in row]


def kilobytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_an_assistant_is_answered_by_the_daemon_and_holds_no_model(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder) as session:
            assert await found(session, "undo command") == ["guide/deploy.md"]
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert {"query_documents", "get_document", "index_status"} <= tools
            (pid,) = tunnels()
            assert kilobytes(pid) < MOST_KILOBYTES
            libraries = Path(f"/proc/{pid}/maps").read_text()
            assert "onnxruntime" not in libraries
            assert "numpy" not in libraries

    with serving(folder):
        settled(folder)
        anyio.run(ask)


def test_a_daemon_that_goes_between_calls_is_not_missed(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder) as session:
            before = await found(session, "undo command")
            os.kill(of(folder).pid, signal.SIGKILL)
            assert await found(session, "undo command") == before
            assert await found(session, "beans") == ["espresso.md"]

    with serving(folder):
        settled(folder)
        anyio.run(ask)
    assert list(states()) == []


def test_a_daemon_that_goes_amid_calls_is_not_missed(folder: Path) -> None:
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


def test_another_daemon_takes_over_from_the_first(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder) as session:
            with serving(folder) as second:
                # Refused while the first lives; it waits for no lock.
                assert await anyio.to_thread.run_sync(second.wait) == 2
            os.kill(of(folder).pid, signal.SIGKILL)
            with serving(folder) as second:
                until(lambda: [one for _, one in states() if one.pid == second.pid])
                assert await found(session, "beans") == ["espresso.md"]

    with serving(folder):
        settled(folder)
        anyio.run(ask)


def test_a_subscription_outlives_the_daemon(folder: Path) -> None:
    heard = anyio.Event()

    async def hear(message: Any) -> None:
        if "updated" in str(getattr(message, "method", "")):
            heard.set()

    async def ask() -> None:
        command, *arguments = PROGRAM
        server = StdioServerParameters(
            command=command, args=[*arguments, "mcp", str(folder)], env=dict(os.environ)
        )
        async with (
            stdio_client(server) as (read, write),
            ClientSession(read, write, message_handler=hear) as session,
        ):
            await session.initialize()
            with pytest.warns(MCPDeprecationWarning):  # the older era's, which most clients are of
                await session.subscribe_resource("marklight://docs/espresso.md")
            os.kill(of(folder).pid, signal.SIGKILL)
            assert await found(session, "beans") == ["espresso.md"]
            with anyio.fail_after(60):
                while not heard.is_set():
                    (folder / "espresso.md").write_text(f"# Espresso\n\n{anyio.current_time()}\n")
                    with anyio.move_on_after(1):
                        await heard.wait()

    with serving(folder):
        settled(folder)
        anyio.run(ask)


def test_where_the_settings_say_so_an_assistant_starts_a_daemon(folder: Path) -> None:
    async def ask() -> None:
        wanted = {"MARKLIGHT_SERVE_START": "true", "MARKLIGHT_SERVE_PORT": "0"}
        idle = {"MARKLIGHT_SERVE_IDLE_MINUTES": "0.03"}
        async with assistant(folder, **wanted, **idle) as session:
            assert await found(session, "beans") == ["espresso.md"]
            (pid,) = tunnels()
            assert "numpy" not in Path(f"/proc/{pid}/maps").read_text()
            started = of(folder).pid
            # It stays as long as somebody is connected, and leaves soon after.
            await anyio.sleep(3)
            assert of(folder).pid == started

    anyio.run(ask)
    until(lambda: not list(states()))


def test_a_part_of_a_library_is_not_served_by_the_daemon_of_all(folder: Path) -> None:
    async def ask() -> None:
        async with assistant(folder / "guide") as session:
            assert await found(session, "beans") == []
            assert await found(session, "tokens") == ["guide/auth.md"]

    with serving(folder):
        settled(folder)
        anyio.run(ask)
