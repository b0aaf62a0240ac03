"""Serve an application at a socket, inside whatever event loop runs, until that is cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from marklight.surfaces.http.accepting import Accepting, room
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
    places = room()
    kind = type(
        "_Connection", (Connection,), {"timeout_seconds": timeout_seconds, "most": places.served}
    )
    server = _Server(
        uvicorn.Config(
            app,
            http=kind,
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
        places.open,
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

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], most: int) -> None:
        super().__init__(config)
        self._ready = ready
        self._most = most
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Without sockets: uvicorn would have asyncio accept as many connections as come.
        await super().startup([])
        kind = self.config.http_protocol_class
        assert issubclass(kind, Connection)

        def make() -> Connection:
            return kind(self.config, self.server_state, self.lifespan.state)

        connections = cast(set[Connection], self.server_state.connections)
        for each in sockets or ():
            accepting = Accepting(each, make, connections, self._most)
            kind.left = staticmethod(accepting.left.set)  # type: ignore[method-assign]
            self._accepting.append(asyncio.create_task(accepting.run()))
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._accepting:
            each.cancel()
        await asyncio.wait(self._accepting)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
