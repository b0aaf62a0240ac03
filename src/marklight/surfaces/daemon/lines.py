"""A connection as lines of JSON, each of bounded length."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import ByteStream

LONGEST_LINE = 16_000_000
"""Bytes: many times what the library takes."""
UNREAD_SECONDS = 60.0
"""A client may take so long to read what was sent."""
BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Lines:
    """A connection as lines of JSON."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._unread = bytearray()

    async def receive(self, most: int = LONGEST_LINE) -> dict[str, Any]:
        """The next line, which holds an object."""
        told = json.loads(await self.receive_raw(most))
        if not isinstance(told, dict):
            raise ValueError
        return told

    async def receive_raw(self, most: int = LONGEST_LINE) -> bytes:
        """The next line as it came."""
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0:
            seen = len(self._unread)
            if seen > most:
                raise ValueError
            self._unread += await self._stream.receive()
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    async def until_gone(self, scope: anyio.CancelScope) -> None:
        """Wait until the other side hangs up, then give up what is done for it."""
        with suppress(*BROKEN):
            while len(self._unread) <= LONGEST_LINE:
                self._unread += await self._stream.receive()
        scope.cancel()

    async def send(self, message: Mapping[str, Any]) -> None:
        """One line."""
        await self.send_raw(json.dumps(message).encode())

    async def send_raw(self, line: bytes) -> None:
        """A line that is one already; who does not read it in a minute is let go."""
        with anyio.fail_after(UNREAD_SECONDS):
            await self._stream.send(line + b"\n")
