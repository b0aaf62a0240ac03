"""Routing of MCP sessions between worker processes: a session lives in the process that opened it.

Several processes accept connections from one listening socket, so a request may arrive at any of them. The session ID
that a client receives begins with the number of the worker process; another one forwards the request to it over loopback.
Protocol versions without sessions are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import h11
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.surfaces.http.request_guard import FORWARDED, MAX_HEAD_BYTES

SESSION_ID = MCP_SESSION_ID_HEADER.encode()
SEPARATOR = "."
READ_BYTES = 65_536
PER_CONNECTION = (b"connection", b"keep-alive", b"transfer-encoding", b"expect", b"upgrade")
"""Headers that concern one connection and are not forwarded."""


class WorkerStates(Protocol):
    """States of the worker processes of one server."""

    def is_running(self, worker: int) -> bool:
        """Return true if this worker process accepts connections."""


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """The worker processes of one server, as one of them sees them."""

    number: int
    """Number of this process, from 0."""
    ports: Sequence[int]
    """Port on loopback at which each process receives forwarded requests."""
    key: str
    """Marks forwarded requests."""
    states: WorkerStates


class SessionRouting:
    """ASGI middleware: forwards requests of MCP sessions to the worker process that opened the session."""

    def __init__(self, app: ASGIApp, workers: WorkerProcesses) -> None:
        self.app = app
        self.workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ids = [value.decode("latin-1") for name, value in scope["headers"] if name == SESSION_ID]
        owner, own_id = self._parse(ids[0]) if len(ids) == 1 else (None, "")
        if owner is None or owner == self.workers.number:
            await self._serve(scope, receive, send, own_id)
        elif self.workers.states.is_running(owner):
            await self._forward(owner, scope, receive, send)
        else:  # the client has to open another session
            await Response("Session not found", 404)(scope, receive, send)

    def _parse(self, id: str) -> tuple[int | None, str]:
        """Split a session ID into the number of its worker process and the ID that it has there."""
        number, separator, own_id = id.partition(SEPARATOR)
        if separator and number.isdecimal() and int(number) < len(self.workers.ports):
            return int(number), own_id
        return None, ""

    async def _serve(self, scope: Scope, receive: Receive, send: Send, own_id: str) -> None:
        """Serve a request here; clients get session IDs with the number of this process."""
        if own_id:
            headers = [pair for pair in scope["headers"] if pair[0] != SESSION_ID]
            scope = {**scope, "headers": [*headers, (SESSION_ID, own_id.encode("latin-1"))]}

        async def send_with_number(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if id := headers.get(MCP_SESSION_ID_HEADER):
                    headers[MCP_SESSION_ID_HEADER] = f"{self.workers.number}{SEPARATOR}{id}"
            await send(message)

        await self.app(scope, receive, send_with_number)

    async def _forward(self, owner: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request to another process and its response to the client, until one of them disconnects."""
        body = (await receive()).get("body", b"")  # the request limits have read all of it
        responding = False
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(watch)
            with suppress(OSError, h11.RemoteProtocolError):
                async for message in _exchange(
                    self.workers.ports[owner], self._head(scope, body), body
                ):
                    responding = True
                    await send(message)
            if not responding:
                await Response("Session not found", 404)(scope, receive, send)
            group.cancel_scope.cancel()

    def _head(self, scope: Scope, body: bytes) -> h11.Request:
        skipped = (*PER_CONNECTION, b"content-length", FORWARDED)
        target = scope["raw_path"] + (b"?" + scope["query_string"]) * bool(scope["query_string"])
        return h11.Request(
            method=scope["method"],
            target=target,
            headers=[
                *(pair for pair in scope["headers"] if pair[0] not in skipped),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
                (FORWARDED, self.workers.key.encode()),
            ],
        )


async def _exchange(port: int, head: h11.Request, body: bytes) -> Any:
    """Send a request to a port of this machine; yield the response as ASGI messages."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        while True:
            match connection.next_event():
                case h11.NEED_DATA:
                    connection.receive_data(await reader.read(READ_BYTES))
                case h11.Response(status_code=status, headers=headers):
                    yield {
                        "type": "http.response.start",
                        "status": status,
                        "headers": [
                            (bytes(name), bytes(value))
                            for name, value in headers
                            if name not in PER_CONNECTION
                        ],
                    }
                case h11.Data(data=data):
                    yield {"type": "http.response.body", "body": bytes(data), "more_body": True}
                case _:
                    yield {"type": "http.response.body", "body": b"", "more_body": False}
                    return
    finally:
        writer.close()
