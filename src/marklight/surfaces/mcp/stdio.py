"""MCP over a pair of streams: the standard ones of this process, or those of a connection."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from threading import Timer
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from marklight.escaping import escape_json
from marklight.surfaces.host import LibraryHost
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
    host = LibraryHost(library)
    async with anyio.create_task_group() as group:
        group.start_soon(_leave_when_told)
        async with host.open():
            async with stdio_server() as (read, write):
                try:
                    await serve_streams(make_server(host), read, write)
                except anyio.get_cancelled_exc_class():
                    # Nobody reads what we say; the thread that reads standard input cannot be woken.
                    os._exit(0)
            # A search that nobody waits for any more, or a run amid a batch, must not hold the process.
            _leave_soon()
        group.cancel_scope.cancel()


async def serve_streams(server: LibraryServer, read: Any, write: Any) -> None:
    """One client on a pair of message streams, in the era that its first request is of."""
    heard, passed = anyio.create_memory_object_stream[SessionMessage](0)

    async def pass_on() -> None:
        # The SDK drops what it cannot read, and whoever sent it would wait for an answer forever.
        async with heard:
            async for each in read:
                if isinstance(each, SessionMessage):
                    await heard.send(each)
                elif complaint := unread(each):
                    await write.send(SessionMessage(complaint))

    async with anyio.create_task_group() as group:
        group.start_soon(pass_on)
        writing: Any = EscapedMessages(write)
        await server.run(passed, writing, server.create_initialization_options())
        group.cancel_scope.cancel()


class EscapedMessages:
    """A stream for messages that are written as JSON in which no character can control a terminal.

    The SDK writes a message with its method `model_dump_json`, so that is what is replaced.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, sent: SessionMessage) -> None:
        """Pass a message on."""
        message: Any = _Escaped(sent.message)
        await self._stream.send(replace(sent, message=message))

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()

    async def __aenter__(self) -> EscapedMessages:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stream.__aexit__(*raised)


class _Escaped:
    def __init__(self, message: types.JSONRPCMessage) -> None:
        self._message = message

    def model_dump_json(self, **options: Any) -> str:
        return escape_json(self._message.model_dump_json(**options))


def unread(error: Exception) -> types.JSONRPCError | None:
    """What to answer to a line that is no message; nothing to one that asks for no answer."""
    found = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    code, said, id = types.PARSE_ERROR, "this is no JSON", None
    message: object = next((each["input"] for each in found), None)
    # A text stands for the whole line: Python may read what the SDK's reader does not, a lone surrogate.
    with suppress(ValueError, RecursionError):
        message = json.loads(message) if isinstance(message, str) else message
        code, said = types.INVALID_REQUEST, "this is no message of the protocol"
        if isinstance(message, dict):
            if "id" not in message:
                return None
            id = message["id"] if _is_id(message["id"]) else None
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=said))


def _is_id(told: object) -> bool:
    """Whether it can be sent back: half a character cannot be written."""
    if isinstance(told, str):
        with suppress(UnicodeEncodeError):
            told.encode()
            return True
    return isinstance(told, int)


async def _leave_when_told() -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            # The thread that reads standard input cannot be woken, so there is nothing to wait for.
            os._exit(128 + number)


def _leave_soon() -> None:
    timer = Timer(LEAVE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
