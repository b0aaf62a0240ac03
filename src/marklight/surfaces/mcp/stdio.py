"""MCP over standard input and output, or over the streams of an IPC connection."""

from __future__ import annotations

import json
import logging
import os
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

from marklight.formatting import escape_json
from marklight.platforms import on_termination
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.server import LibraryServer, make_server

if TYPE_CHECKING:
    from marklight.library import Library

EXIT_SECONDS = 2.0
"""Time limit for indexing to stop; committed work is kept in any case."""


def serve_stdio(library: Library) -> int:
    """Serve until the client closes standard input or a signal arrives."""
    # Critical messages only: many clients show every line of standard error as an error.
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    on_termination(_exit)
    anyio.run(_serve, library)
    return 0


async def _serve(library: Library) -> None:
    host = LibraryHost(library)
    async with host.open():
        async with stdio_server() as (read, write):
            try:
                await serve_streams(make_server(host), read, write)
            except anyio.get_cancelled_exc_class():
                # The client is gone; the thread that reads standard input cannot be woken.
                os._exit(0)
        # An abandoned search or an indexing batch must not keep the process alive.
        _exit_soon()


async def serve_streams(server: LibraryServer, read: Any, write: Any) -> None:
    """Serve one client on a pair of message streams, in the protocol version of its first request."""
    valid, incoming = anyio.create_memory_object_stream[SessionMessage](0)

    async def answer_invalid() -> None:
        # The SDK drops invalid messages, and their sender would wait for an answer forever.
        async with valid:
            async for message in read:
                if isinstance(message, SessionMessage):
                    await valid.send(message)
                elif error := invalid_message_error(message):
                    await write.send(SessionMessage(error))

    async with anyio.create_task_group() as group:
        group.start_soon(answer_invalid)
        outgoing: Any = EscapedMessages(write)
        await server.run(incoming, outgoing, server.create_initialization_options())
        group.cancel_scope.cancel()


class EscapedMessages:
    """A stream of messages whose JSON contains no terminal control characters.

    The SDK encodes a message with its method `model_dump_json`, which is replaced here.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        message: Any = _Escaped(item.message)
        await self._stream.send(replace(item, message=message))

    async def aclose(self) -> None:
        """Close the wrapped stream."""
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


def invalid_message_error(error: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that is not a valid message; None for a notification."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    code, text, id = types.PARSE_ERROR, "Not valid JSON", None
    message: object = next((detail["input"] for detail in details), None)
    # A string is the whole line: Python parses some that the SDK rejects, such as a lone surrogate.
    with suppress(ValueError, RecursionError):
        message = json.loads(message) if isinstance(message, str) else message
        code, text = types.INVALID_REQUEST, "Not a valid JSON-RPC message"
        if isinstance(message, dict):
            if "id" not in message:
                return None
            id = message["id"] if _is_id(message["id"]) else None
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=text))


def _is_id(value: object) -> bool:
    """Return true for an id that can be sent back; a lone surrogate cannot be encoded."""
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            value.encode()
            return True
    return isinstance(value, int)


def _exit(number: int, _: Any) -> None:
    # The thread that reads standard input cannot be woken, so there is nothing to wait for.
    os._exit(128 + number)


def _exit_soon() -> None:
    timer = Timer(EXIT_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
