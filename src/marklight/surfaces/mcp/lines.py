"""Messages over a connection of bytes: one JSON text a line, none longer than anybody means it to be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.shared.message import SessionMessage

LONGEST_LINE = 8_000_000
"""Bytes; who sends more is no client, and is left."""


@asynccontextmanager
async def messages(stream: anyio.abc.ByteStream) -> AsyncIterator[tuple[Any, Any]]:
    """What is read and what is written, as the SDK's loops take them."""
    heard, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, said = anyio.create_memory_object_stream[SessionMessage](0)
    source = BufferedByteReceiveStream(stream)

    async def receive() -> None:
        async with heard:
            while True:
                try:
                    line = await source.receive_until(b"\n", LONGEST_LINE)
                except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
                    return
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    return
                await heard.send(_read(line))

    async def send() -> None:
        async with said:
            async for each in said:
                line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await stream.send(f"{line}\n".encode())
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    return

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(send)
        yield read, write
        group.cancel_scope.cancel()


def _read(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
