"""Run uvicorn on a listening socket, with an accept loop that pauses at a limit of connections.

asyncio's own accept loop takes every connection; without a free file descriptor it logs each failed attempt and
retries thousands of times per second. Here the limit follows from the number of file descriptors, so that index
files can still be opened; later clients wait in the system's queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import NamedTuple, Protocol, cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from marklight.surfaces.http.connection import Connection
from marklight.surfaces.http.request_guard import MAX_HEAD_BYTES

SHUTDOWN_SECONDS = 1
"""Time limit for responses in progress at the end; open streams are cut then."""
KEEP_ALIVE_SECONDS = 15
MAX_SERVED = 500
"""Connections served at once; further ones get status 503."""
MAX_REJECTED = 100
"""Connections open for a 503 response; further ones are not accepted yet."""
RESERVED_FILES = 32
"""File descriptors left for index files, their journals, git and IPC connections."""
MIN_CONNECTIONS = 4
CROWDED_IDLE_SECONDS = 1.0
"""Time limit for an idle client while other clients wait for a connection."""
ACCEPT_RETRY_SECONDS = 1.0
"""Pause before the next `accept` when no file descriptor is left."""
YIELD_SECONDS = 0.005
"""Time for a worker process with fewer connections to take the next one first."""

log = logging.getLogger(__name__)


class WorkerLoads(Protocol):
    """Numbers of open connections of the worker processes that share a listening socket."""

    def report(self, connections: int) -> None:
        """Store the number of open connections of this process."""

    def is_busier(self) -> bool:
        """Return true if another running process has fewer open connections than this one."""


class ConnectionLimits(NamedTuple):
    """Number of connections to serve, and of further ones to answer with 503."""

    served: int
    rejected: int


def connection_limits() -> ConnectionLimits:
    """Return the number of connections that this process has file descriptors for."""
    free = _free_files()
    if free is None or free >= MAX_SERVED + MAX_REJECTED:
        return ConnectionLimits(MAX_SERVED, MAX_REJECTED)
    free = max(MIN_CONNECTIONS, free)
    rejected = max(1, free * MAX_REJECTED // (MAX_SERVED + MAX_REJECTED))
    return ConnectionLimits(free - rejected, rejected)


def _free_files() -> int | None:
    """Return the number of file descriptors for connections; None without a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    used = 2 * RESERVED_FILES
    with suppress(OSError):
        used = RESERVED_FILES + len(os.listdir("/dev/fd"))
    return soft - used


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    timeout_seconds: float,
    ready: Callable[[], None] = lambda: None,
    *,
    forwarded: socket.socket | None = None,
    loads: WorkerLoads | None = None,
) -> None:
    """Serve until cancelled and close the socket; call `ready` once requests are answered.

    One of several worker processes also serves a socket for forwarded requests, and shares the load with the others.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=min(KEEP_ALIVE_SECONDS, ceil(timeout_seconds)),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = _Server(config, timeout_seconds, ready, loads)
    listeners = [listener, forwarded] if forwarded else [listener]
    serving = asyncio.ensure_future(server.serve(sockets=listeners))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        # A cancelled anyio scope cancels every await again, and the socket would be closed too early.
        with anyio.CancelScope(shield=True):
            await asyncio.shield(serving)
        raise
    finally:
        for each in listeners:
            with suppress(OSError):
                each.close()


class _Server(uvicorn.Server):
    """uvicorn's server with our connections and accept loop; signals are left to the caller."""

    def __init__(
        self,
        config: uvicorn.Config,
        timeout_seconds: float,
        ready: Callable[[], None],
        loads: WorkerLoads | None,
    ) -> None:
        super().__init__(config)
        self._loads = loads
        self._timeout_seconds = timeout_seconds
        self._ready = ready
        self._accept_loops: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Without sockets, so that uvicorn starts no accept loop.
        await super().startup([])
        limits = connection_limits()
        connections = cast(set[Connection], self.server_state.connections)
        for number, listener in enumerate(sockets or ()):
            # Requests are forwarded to one process only, so there is no choice at the second socket.
            loads = self._loads if number == 0 else None
            loop = AcceptLoop(listener, self._connection, connections, limits, loads)
            self._accept_loops.append(asyncio.create_task(loop.run()))
        self._ready()

    def _connection(self, max_served: int, on_close: Callable[[], None]) -> Connection:
        return Connection(
            self.config,
            self.server_state,
            self.lifespan.state,
            timeout_seconds=self._timeout_seconds,
            max_served=max_served,
            on_close=on_close,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accept_loops:
            task.cancel()
        await asyncio.wait(self._accept_loops)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class AcceptLoop:
    """Accepts connections while fewer than the maximum are open."""

    def __init__(
        self,
        listener: socket.socket,
        make_connection: Callable[[int, Callable[[], None]], Connection],
        connections: set[Connection],
        limits: ConnectionLimits,
        loads: WorkerLoads | None = None,
    ) -> None:
        self.listener = listener
        self.make_connection = make_connection
        self.connections = connections
        self.limits = limits
        self.loads = loads
        self.closed = asyncio.Event()
        """Set whenever a connection ends."""

    async def run(self) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        warned = False
        while True:
            await self._wait_for_room()
            try:
                accepted = await self._accept(loop)
            except (ConnectionAbortedError, BlockingIOError):
                continue
            except OSError as error:  # no file descriptor or no memory is left
                if not warned:
                    log.warning("Cannot accept connections: %s", error.strerror or error)
                    warned = True
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            warned = False
            try:
                await loop.connect_accepted_socket(self._make_connection, accepted)
            except OSError:
                accepted.close()
            self._report_load()

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Accept a connection; raise BlockingIOError if another worker process has taken it."""
        if self.loads is None:
            return (await loop.sock_accept(self.listener))[0]
        await _readable(loop, self.listener)
        if self.loads.is_busier():
            await asyncio.sleep(YIELD_SECONDS)
        accepted, _ = self.listener.accept()
        accepted.setblocking(False)
        return accepted

    def _make_connection(self) -> Connection:
        return self.make_connection(self.limits.served, self._on_close)

    def _on_close(self) -> None:
        self.closed.set()
        self._report_load()

    def _report_load(self) -> None:
        if self.loads is not None:
            self.loads.report(len(self.connections))

    async def _wait_for_room(self) -> None:
        """Wait until fewer connections than the maximum are open; close idle ones meanwhile."""
        while len(self.connections) >= sum(self.limits):
            self.closed.clear()
            try:
                await asyncio.wait_for(self.closed.wait(), CROWDED_IDLE_SECONDS)
            except TimeoutError:
                for connection in tuple(self.connections):
                    connection.close_if_idle(CROWDED_IDLE_SECONDS)


async def _readable(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    """Wait until a connection waits to be accepted."""
    readable = asyncio.Event()
    loop.add_reader(listener, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(listener)
