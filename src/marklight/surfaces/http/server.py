"""The ASGI application, and uvicorn on a listening socket with limits that it lacks: connections, read and write timeouts, JSON errors.

asyncio's own accept loop takes every connection; without a free file descriptor it logs each failed attempt and
retries thousands of times per second. Here the limit follows from the number of file descriptors, so that index
files can still be opened; later clients wait in the system's queue. uvicorn's keep-alive timeout starts after the first
response only, it waits without limit for a client that does not read, and its own 400 and `limit_concurrency` responses
are plain text, where our API promises JSON.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import ceil
from typing import Any, cast

import anyio
import h11
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from marklight.formatting import escape_json
from marklight.platforms import resource_limit
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http import Address
from marklight.surfaces.http.errors import BadRequest, ErrorResponses, error_response, json_response
from marklight.surfaces.http.openapi import Description
from marklight.surfaces.http.page import BrowserCompression, page_routes
from marklight.surfaces.http.request_guard import (
    MAX_HEAD_BYTES,
    SECURITY_HEADERS,
    RequestGuard,
    RequestLimits,
    SecurityHeaders,
)
from marklight.surfaces.http.routes import Api, parse_query
from marklight.surfaces.mcp.server import LibraryServer, make_server

SHUTDOWN_SECONDS = 1
"""Time limit for responses in progress at the end; open streams are cut then."""
KEEP_ALIVE_SECONDS = 15
MAX_CONNECTIONS = 500
"""Connections open at once; further ones are not accepted yet."""
RESERVED_FILES = 32
"""File descriptors left for index files, their journals, git and IPC connections."""
MIN_CONNECTIONS = 4
CROWDED_IDLE_SECONDS = 1.0
"""Time limit for an idle client while other clients wait for a connection."""
ACCEPT_RETRY_SECONDS = 1.0
"""Pause before the next `accept` when no file descriptor is left."""
MAX_CHUNKS = 4096
"""Chunks of a request body: parsing one takes about 10 µs, during which no other client is answered."""
LINGER_SECONDS = 1.0
"""Time for a client to read our 400 response while it may still be sending."""

log = logging.getLogger(__name__)


def max_connections() -> int:
    """Return the number of connections that this process has file descriptors for, within bounds."""
    limit = resource_limit("RLIMIT_NOFILE")
    if limit is None:
        return MAX_CONNECTIONS
    used = 2 * RESERVED_FILES
    with suppress(OSError):
        used = RESERVED_FILES + len(os.listdir("/dev/fd"))
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, limit - used))


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    timeout_seconds: float,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until cancelled and close the socket; call `ready` once requests are answered."""
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
        timeout_keep_alive=min(KEEP_ALIVE_SECONDS, ceil(timeout_seconds)),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = _Server(config, timeout_seconds, ready)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        # A cancelled anyio scope cancels every await again, and the socket would be closed too early.
        with anyio.CancelScope(shield=True):
            await asyncio.shield(serving)
        raise
    finally:
        with suppress(OSError):
            listener.close()


class _Server(uvicorn.Server):
    """uvicorn's server with our connections and accept loop; signals are left to the caller."""

    def __init__(
        self, config: uvicorn.Config, timeout_seconds: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._timeout_seconds = timeout_seconds
        self._ready = ready
        self._max_connections = max_connections()
        self._closed = asyncio.Event()
        """Set whenever a connection ends."""
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Without sockets, so that uvicorn starts no accept loop.
        await super().startup([])
        assert sockets
        self._accepting = asyncio.create_task(self._accept(sockets[0]))
        self._ready()

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections while fewer than the maximum are open, until cancelled."""
        loop = asyncio.get_running_loop()
        warned = False
        while True:
            await self._wait_for_room()
            try:
                accepted, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no file descriptor or no memory is left
                if not warned:
                    log.warning("Cannot accept connections: %s", error.strerror or error)
                    warned = True
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            warned = False
            try:
                await loop.connect_accepted_socket(self._connection, accepted)
            except OSError:
                accepted.close()

    async def _wait_for_room(self) -> None:
        """Wait until fewer connections than the maximum are open; close idle ones meanwhile."""
        connections = cast(set[Connection], self.server_state.connections)
        while len(connections) >= self._max_connections:
            self._closed.clear()
            try:
                await asyncio.wait_for(self._closed.wait(), CROWDED_IDLE_SECONDS)
            except TimeoutError:
                for connection in tuple(connections):
                    connection.close_if_idle(CROWDED_IDLE_SECONDS)

    def _connection(self) -> Connection:
        return Connection(
            self.config,
            self.server_state,
            self.lifespan.state,
            timeout_seconds=self._timeout_seconds,
            on_close=self._closed.set,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RequestParser(h11.Connection):
    """Parses requests, and rejects bodies in too many chunks."""

    _chunks = 0
    problem = ""
    """Why a request was rejected, if not because it is invalid."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = 0
        elif isinstance(event, h11.Data) and event.chunk_start:
            self._chunks += 1
            if self._chunks > MAX_CHUNKS:
                self.problem = f"The request body has too many chunks: at most {MAX_CHUNKS:,}"
                raise h11.RemoteProtocolError(self.problem)
        return event


class Connection(H11Protocol):
    """One client connection with time limits for reading a request and writing a response."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        timeout_seconds: float,
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.conn = self._parser = RequestParser(h11.SERVER, MAX_HEAD_BYTES)
        self._timeout_seconds = timeout_seconds
        self._on_close = on_close
        self._read_timer: asyncio.TimerHandle | None = None
        self._reading_since = 0.0
        self._write_timer: asyncio.TimerHandle | None = None
        self._lingering = False
        """A 400 response was sent; further data is ignored until the connection is closed."""

    # Read timeout: a request's head must arrive in time; RequestLimits has the timeout of its body.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._update_read_timer()

    def handle_events(self) -> None:
        super().handle_events()
        self._update_read_timer()

    def on_response_complete(self) -> None:
        self._cancel_read_timer()
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            # The next request has begun: the keep-alive timer would close the connection without a response.
            self._unset_keepalive_if_required()
        self._update_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_read_timer()
        self.resume_writing()
        self._on_close()

    def _update_read_timer(self) -> None:
        """Run the timer while we wait for the client, not while the client waits for us."""
        if (
            self._lingering
            or self.transport.is_closing()
            or (self.cycle and not self.cycle.response_complete)
        ):
            self._cancel_read_timer()
        elif self._read_timer is None:
            self._read_timer = self.loop.call_later(self._timeout_seconds, self._read_timeout)
            self._reading_since = self.loop.time()

    def _cancel_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def close_if_idle(self, seconds: float) -> None:
        """Close the connection if it has waited this long for its client, to make room for others."""
        if self._read_timer is not None and self.loop.time() - self._reading_since >= seconds:
            self._cancel_read_timer()
            self._read_timeout()

    def _read_timeout(self) -> None:
        self._read_timer = None
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size():
            # The previous response is still being sent.
            self._update_read_timer()
            return
        request_begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        if request_begun and self.conn.our_state is h11.IDLE:
            self.send_400_response("The request was not received in time")
        else:
            self.transport.abort()

    # Write timeout: a slow reader is waited for, one that reads nothing is not.

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _start_write_timer(self) -> None:
        before = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < before:
                self._start_write_timer()
            else:
                self.transport.abort()

        self._write_timer = self.loop.call_later(self._timeout_seconds, check)

    # Errors below HTTP

    def send_400_response(self, msg: str) -> None:
        """Send a JSON error for data that cannot be parsed as HTTP, then close after a delay."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        response: Response = error_response(BadRequest(self._parser.problem or msg.rstrip(".")))
        headers = {**SECURITY_HEADERS, **response.headers, "connection": "close"}
        for event in (
            h11.Response(status_code=400, headers=list(headers.items()), reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        # Closing with unread data would reset the connection and discard the response.
        self._lingering = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._lingering:
            super().data_received(data)

    def shutdown(self) -> None:
        if self._lingering:
            self.transport.abort()
        else:
            super().shutdown()


SESSION_IDLE_SECONDS = 1800.0
"""Idle time after which a session of an older protocol version of MCP is closed; its client starts another."""
MAX_SESSIONS = 1000
"""Each session holds a task and its streams."""
MAX_MCP_BYTES = 4_000_000
"""A thousand times the size of a usual request."""


def make_app(host: LibraryHost, address: Address, server: LibraryServer | None = None) -> Starlette:
    """Create the application for a host that the caller has opened."""
    sessions = StreamableHTTPSessionManager(
        server or make_server(host),
        session_idle_timeout=SESSION_IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
        max_request_body_size=MAX_MCP_BYTES,
        # The request guard checks Host and Origin on every route.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    async def openapi(request: Request) -> Response:
        parse_query(request, ())
        description = Description(list(host.library.collections), bool(address.token))
        return json_response(description.document())

    async def handle(_: Request, error: Exception) -> Response:
        return error_response(error)

    mcp = EscapedJson(StreamableHTTPASGIApp(sessions))
    app = Starlette(
        routes=[
            *Api(host).routes(),
            Route("/openapi.json", openapi),
            Route("/mcp", mcp, methods=["POST", "GET", "DELETE"]),
            *page_routes(host),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(SecurityHeaders, allow_origins=address.allow_origins),
            Middleware(ErrorResponses),
            Middleware(RequestGuard, address=address),
            Middleware(RequestLimits, timeout_seconds=host.library.serve.timeout_seconds),
            Middleware(BrowserCompression),
        ],
        exception_handlers={HTTPException: handle},
    )
    # A URL with an additional slash is another URL.
    app.router.redirect_slashes = False
    return app


class EscapedJson:
    """ASGI middleware: escapes control characters in JSON bodies and events.

    The SDK sends every JSON body and every event as one message, so no character is split between two.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None

        async def escaped(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                if "content-length" in MutableHeaders(scope=message):
                    start = message  # sent with the new length, once the body is known
                    return
            elif message["type"] == "http.response.body":
                body = message.get("body", b"").decode("utf-8", "surrogateescape")
                message["body"] = escape_json(body).encode("utf-8", "surrogateescape")
                if start is not None:
                    MutableHeaders(scope=start)["content-length"] = str(len(message["body"]))
                    await send(start)
                    start = None
            await send(message)

        await self.app(scope, receive, escaped)
