"""How much a request may be, and how long it may take to come in."""

from __future__ import annotations

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.surfaces.http.errors import BadRequest, TooLarge

MOST_BYTES = 1_000_000
"""Of a body: ten times the longest question."""
MOST_TARGET = 65_536
"""Signs of an address; whoever needs more can POST."""
MOST_HEAD = 131_072
"""Bytes of it and all headers."""
LEFT_BYTES, LEFT_SECONDS = 8_000_000, 1.0
"""Of what is too large, so much is still taken in: a client that is cut off while it sends does not
get to read why."""


class Limits:
    """Takes in the whole body before anybody sees it, so that no part of us waits for a slow client."""

    def __init__(self, app: ASGIApp, timeout_seconds: float) -> None:
        self.app = app
        self.timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = len(scope["raw_path"]) + len(scope["query_string"])
        if size > MOST_TARGET:
            raise BadRequest(f"an address may have {MOST_TARGET:,} signs", "POST what is longer")
        size += len(scope["method"]) + sum(
            len(name) + len(value) for name, value in scope["headers"]
        )
        if size > MOST_HEAD:
            raise BadRequest(f"a request's head may have {MOST_HEAD:,} bytes", headers=CLOSE)
        body = await self._body(scope, receive)
        given = False

        async def replayed() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replayed, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        headers = dict(scope["headers"])
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if coding is not None and length is not None:
            # Two lengths: what one server takes for a body is the next request to another.
            raise BadRequest("a body has one length", headers=CLOSE)
        if coding is None and length is None:
            return b""
        if length is not None and int(length) > MOST_BYTES:
            if b"expect" not in headers:
                await _rest(receive)
            raise _too_large()
        parts = bytearray()
        with anyio.move_on_after(self.timeout_seconds) as late:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                parts += message.get("body", b"")
                if len(parts) > MOST_BYTES:
                    await _rest(receive)
                    raise _too_large()
                if not message.get("more_body", False):
                    return bytes(parts)
        if late.cancelled_caught:
            raise BadRequest("the body did not come in time", "Send it at once", CLOSE)
        raise BadRequest("the body broke off", headers=CLOSE)


CLOSE = {"connection": "close"}


def _too_large() -> TooLarge:
    return TooLarge(f"a body may have {MOST_BYTES:,} bytes", "Ask for less", CLOSE)


async def _rest(receive: Receive) -> None:
    left = LEFT_BYTES
    with anyio.move_on_after(LEFT_SECONDS):
        while left > 0:
            message = await receive()
            left -= len(message.get("body", b"")) or 1
            if not message.get("more_body", False):
                return
