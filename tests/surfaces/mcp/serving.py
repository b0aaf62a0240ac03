"""An MCP server over each transport and protocol version, for the SDK's own client."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http import Address, listen, port_of
from marklight.surfaces.http.server import make_app, serve_http
from marklight.surfaces.mcp.server import LibraryServer, make_server
from tests.making import library

ERAS = ("legacy", "auto")
"""Client modes: the handshake of protocol versions up to 2025-11-25, or discovery."""
TRANSPORTS = ("stdio", "http")
PROGRAM = "import sys; from marklight.surfaces.cli import main; main()"
PATIENCE_SECONDS = 60.0

PAGES: dict[str, str | bytes] = {
    "guide/auth.md": (
        "---\ntags: [security]\n---\n# Auth\n\nSee [tokens](tokens.md#expiry).\n\n"
        "## Token refresh\n\nA refresh token lives for thirty days. The server rotates it at every use.\n"
    ),
    "guide/tokens.md": (
        "---\ntags: [security/keys]\n---\n# Tokens\n\n## Expiry\n\nAn access token expires after fifteen minutes.\n"
    ),
    "recipes/soup.md": "# Soup\n\nBoil the carrots with ginger for twenty minutes.\n",
}


def environment() -> dict[str, str]:
    """The fake model, and JSON besides the text, which tests compare."""
    return {**os.environ, "MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_MCP_STRUCTURED": "true"}


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, "mcp", str(folder), *more]


def stdio(folder: Path, program: str = PROGRAM) -> StdioServerParameters:
    arguments = ["-c", program, "mcp", str(folder)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment())


@contextmanager
def http(folder: Path, make: Callable[[LibraryHost], LibraryServer] = make_server) -> Iterator[str]:
    """Run an HTTP server in a thread; yield the URL of its MCP endpoint."""
    ready = threading.Event()
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []
    at = ""

    async def serve() -> None:
        nonlocal at
        task = asyncio.current_task()
        assert task
        begun.append((asyncio.get_running_loop(), task))
        listening = listen("127.0.0.1", 0)
        port = port_of(listening)
        host = LibraryHost(library(folder, mcp={"structured": True}))
        app = make_app(host, Address(port=port), server=make(host))
        async with host.open():
            at = f"http://127.0.0.1:{port}/mcp"
            await serve_http(app, listening, PATIENCE_SECONDS, ready.set)

    def run() -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(PATIENCE_SECONDS)
        assert at, "the server did not start"
        yield at
    finally:
        for loop, task in begun:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)
        thread.join()


@asynccontextmanager
async def connected(
    folder: Path, tmp_path: Path, transport: str, era: str, **more: Any
) -> AsyncIterator[Client]:
    if transport == "stdio":
        async with Client(stdio(folder), mode=era, **more) as client:
            yield client
        return
    with http(folder) as address:
        async with Client(address, mode=era, **more) as client:
            yield client


async def until(
    ask: Callable[[], Awaitable[Any]],
    good: Callable[[Any], bool],
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """Call until the result satisfies the condition."""
    last = None
    with anyio.move_on_after(seconds):
        while not good(last := await ask()):
            await anyio.sleep(0.05)
        return last
    raise AssertionError(f"not in {seconds} s; the last answer was {last!r}")


def text_of(result: Any) -> str:
    [content] = result.content
    assert content.type == "text"
    return str(content.text)


async def indexed(client: Client) -> None:
    """Wait until everything is indexed."""

    async def ask() -> Any:
        return await client.call_tool("index_status", {})

    await until(ask, lambda found: is_complete(text_of(found)))


def is_complete(status: str) -> bool:
    """Return true if index_status reports documents, all of them read and embedded."""
    counts = re.search(r"^([\d,]+) documents, ", status, re.MULTILINE)
    return counts is not None and counts[1] != "0" and not re.search("indexing|embedded", status)


def without_passing(found: Any) -> Any:
    """Remove values that differ between calls: durations, sizes, the watcher."""
    return {
        name: value
        for name, value in found.items()
        if name not in ("took_ms", "sizes", "following", "orphans")
    }


def names(found: Sequence[Any]) -> list[str]:
    return [each.name for each in found]
