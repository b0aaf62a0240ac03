"""uvicorn's HTTP/1.1 protocol with what it lacks: read and write timeouts, and JSON errors for 400 and 503.

uvicorn's keep-alive timeout starts after the first response only, it waits without limit for a client that does
not read, and its own 400 and `limit_concurrency` responses are plain text, where our API promises JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from marklight.errors import Overloaded
from marklight.surfaces.http.errors import BadRequest, error_response
from marklight.surfaces.http.request_guard import SECURITY_HEADERS, SecurityHeaders

LINGER_SECONDS = 1.0
"""Time for a client to read our 400 response while it may still be sending."""


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI app for connections beyond the limit."""
    response = error_response(Overloaded("Too many connections at once", "Try again in a second"))
    response.headers["connection"] = "close"
    await response(scope, receive, send)


class Connection(H11Protocol):
    """One client connection with time limits for reading a request and writing a response."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        timeout_seconds: float,
        max_served: int,
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._timeout_seconds = timeout_seconds
        self._max_served = max_served
        self._on_close = on_close
        self._read_timer: asyncio.TimerHandle | None = None
        self._reading_since = 0.0
        self._write_timer: asyncio.TimerHandle | None = None
        self._lingering = False
        """A 400 response was sent; further data is ignored until the connection is closed."""

    # Read timeout: a request's head must arrive in time; RequestLimits has the timeout of its body.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_served:
            self.app = SecurityHeaders(too_many_connections)
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
        response: Response = error_response(BadRequest(msg.rstrip(".")))
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
