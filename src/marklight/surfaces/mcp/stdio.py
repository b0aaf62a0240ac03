"""MCP over a pair of streams: the standard ones of this process, or those of a connection."""

from __future__ import annotations

import logging
import os
import signal
import sys
from threading import Timer
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from mcp.server.stdio import stdio_server

from marklight.surfaces.host import Host
from marklight.surfaces.mcp.lines import messages
from marklight.surfaces.mcp.server import LibraryServer, make_server

if TYPE_CHECKING:
    from marklight.library import Library

LEAVE_SECONDS = 2.0
"""How long a run may take to come to a stop; what it has committed by then is kept in any case."""


def serve_stdio(library: Library) -> int:
    """Serve until the client closes our standard input or somebody ends us."""
    # Only what a person must know: many clients show every line of standard error as a fault.
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    anyio.run(_serve, library)
    return 0


async def _serve(library: Library) -> None:
    host = Host(library)
    async with anyio.create_task_group() as group:
        group.start_soon(_leave_when_told)
        async with host.open():
            async with stdio_server() as (read, write):
                await serve_streams(make_server(host), read, write)
            # A search that nobody waits for any more, or a run amid a batch, must not hold the process.
            _leave_soon()
        group.cancel_scope.cancel()


async def serve_streams(server: LibraryServer, read: Any, write: Any) -> None:
    """One client on a pair of message streams, in the era that its first request is of."""
    await server.run(read, write, server.create_initialization_options())


async def serve_bytes(server: LibraryServer, stream: anyio.abc.ByteStream) -> None:
    """One client on a connection that carries a message a line."""
    async with messages(stream) as (read, write):
        await serve_streams(server, read, write)


async def _leave_when_told() -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            # The thread that reads standard input cannot be woken, so there is nothing to wait for.
            os._exit(128 + number)


def _leave_soon() -> None:
    timer = Timer(LEAVE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
