"""Serve an application at a socket, inside whatever event loop runs, until that is cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil

import anyio
import uvicorn
from starlette.types import ASGIApp

from marklight.surfaces.http.connection import Connection
from marklight.surfaces.http.limits import MOST_HEAD

LEAVE_SECONDS = 1
"""For what is being answered when we end; open streams are cut then."""
IDLE_SECONDS = 15
"""A connection is kept so long for another request."""


async def serve_http(
    app: ASGIApp,
    listening: socket.socket,
    timeout_seconds: float,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer until cancelled; `ready` is called once we do. The socket is closed in the end."""
    server = _Server(
        uvicorn.Config(
            app,
            http=type("_Connection", (Connection,), {"timeout_seconds": timeout_seconds}),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MOST_HEAD,
            timeout_keep_alive=min(IDLE_SECONDS, ceil(timeout_seconds)),
            timeout_graceful_shutdown=LEAVE_SECONDS,
        ),
        ready,
    )
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        # A scope that is cancelled cancels again and again whatever waits in it, and the socket would be closed too early.
        with anyio.CancelScope(shield=True):
            await asyncio.shield(serving)
        raise
    finally:
        with suppress(OSError):
            listening.close()


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs us, and says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
