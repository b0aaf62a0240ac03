"""One connection: its client may be slow for so long, and what is no HTTP is told so in JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from marklight.errors import Overloaded
from marklight.surfaces.http.errors import BadRequest, answer_to
from marklight.surfaces.http.headers import SAFE, Safe

LINGER_SECONDS = 1.0
"""Whoever sent what is no HTTP may still be sending; so long it can read why we listen no more."""


async def too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """What one gets who is one too many."""
    response = answer_to(Overloaded("too many connections at once", "Ask again in a second"))
    response.headers["connection"] = "close"
    await response(scope, receive, send)


class Connection(H11Protocol):
    """Adds to uvicorn's: a time for the headers, one for whoever does not read, and a number of all."""

    timeout_seconds = 20.0
    most = 500
    """Number of connections served at once; further ones get 503."""

    @staticmethod
    def left() -> None:
        """Is called when a connection has ended; set by the server, as are the two limits above."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._awaited: asyncio.TimerHandle | None = None
        self._awaited_since = 0.0
        self._deaf = False
        self._unread: asyncio.TimerHandle | None = None

    # A request must be whole in time; its body is minded by Limits.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self.app = Safe(too_many)
        self._mind()

    def handle_events(self) -> None:
        super().handle_events()
        self._mind()

    def on_response_complete(self) -> None:
        self._unmind()
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            # The next request has begun: a connection that is kept for one is closed without a word.
            self._unset_keepalive_if_required()
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unmind()
        self.resume_writing()
        self.left()

    def _mind(self) -> None:
        """Time runs while we wait for the client, and not while it waits for us."""
        if (
            self._deaf
            or self.transport.is_closing()
            or (self.cycle and not self.cycle.response_complete)
        ):
            self._unmind()
        elif self._awaited is None:
            self._awaited = self.loop.call_later(self.timeout_seconds, self._late)
            self._awaited_since = self.loop.time()

    def _unmind(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    def press(self, seconds: float) -> None:
        """Close the connection if it has waited so long for its client, since others wait for a place."""
        if self._awaited is not None and self.loop.time() - self._awaited_since >= seconds:
            self._unmind()
            self._late()

    def _late(self) -> None:
        self._awaited = None
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size():
            # Our answer is still on its way: it is not the client's turn yet.
            self._mind()
            return
        begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        if begun and self.conn.our_state is h11.IDLE:
            self.send_400_response("the request did not come in time")
        else:
            self.transport.abort()

    # A response must be read in time.

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch_reader(self) -> None:
        """However slow, whoever reads is waited for; who has read nothing for so long is not."""
        before = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < before:
                self._watch_reader()
            else:
                self.transport.abort()

        self._unread = self.loop.call_later(self.timeout_seconds, look)

    def send_400_response(self, msg: str) -> None:
        """For what cannot be read as HTTP at all."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        response: Response = answer_to(BadRequest(msg.rstrip(".")))
        headers = {**SAFE, **response.headers, "connection": "close"}
        for event in (
            h11.Response(status_code=400, headers=list(headers.items()), reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        # Closed at once, with bytes of theirs unread, the system would take back what we said.
        self._deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._deaf:
            super().data_received(data)

    def shutdown(self) -> None:
        if self._deaf:
            self.transport.abort()
        else:
            super().shutdown()
