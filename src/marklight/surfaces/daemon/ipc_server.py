"""IPC server of the daemon: authenticates clients of the same user by a secret and executes their calls."""

from __future__ import annotations

import hmac
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.from_thread
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from marklight.errors import MarklightError, SettingsError
from marklight.surfaces import operations
from marklight.surfaces.daemon.client import HANDSHAKE_SECONDS, MAX_HANDSHAKE_BYTES, encode
from marklight.surfaces.daemon.discovery import State
from marklight.surfaces.host import IN_THIS_PROCESS, LibraryHost

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from marklight.library import Library

MAX_CLIENTS = 200
MAX_REJECTED = 50
"""Connections beyond MAX_CLIENTS that get a rejection; more are closed at once."""
ACCEPT_RETRY_SECONDS = 1.0
"""Pause before the next `accept` when no file descriptor is left."""
HEARTBEAT_SECONDS = 1.0
"""Interval of messages to a client whose call is in progress."""
PROGRESS_SECONDS = 0.1
"""Minimum interval between progress messages of one phase."""
MAX_QUEUED_PROGRESS = 1000
"""Progress messages queued for a slow client; further ones are dropped."""
MAX_LINE_BYTES = 16_000_000
"""Size limit of a message: many times the limits of the library's parameters."""
SEND_SECONDS = 60.0
"""Time limit for a client to read a message."""
DISCONNECTED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class JsonLines:
    """Server side of an IPC connection: sends and receives JSON lines of bounded length."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def receive(self, max_bytes: int = MAX_LINE_BYTES) -> dict[str, Any]:
        """Return the next message, which must be a JSON object."""
        message = json.loads(await self.receive_raw(max_bytes))
        if not isinstance(message, dict):
            raise ValueError
        return message

    async def receive_raw(self, max_bytes: int = MAX_LINE_BYTES) -> bytes:
        """Return the next line without its end."""
        scanned = 0
        while (end := self._buffer.find(b"\n", scanned)) < 0:
            scanned = len(self._buffer)
            if scanned > max_bytes:
                raise ValueError
            self._buffer += await self._stream.receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def cancel_on_disconnect(self, scope: anyio.CancelScope) -> None:
        """Wait until the client disconnects, then cancel the work that is done for it."""
        with suppress(*DISCONNECTED):
            while len(self._buffer) <= MAX_LINE_BYTES:
                self._buffer += await self._stream.receive()
        scope.cancel()

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        await self.send_raw(json.dumps(message).encode())

    async def send_raw(self, line: bytes) -> None:
        """Send an encoded line; raise TimeoutError if the client does not read it."""
        with anyio.fail_after(SEND_SECONDS):
            await self._stream.send(line + b"\n")


class IpcServer:
    """Listens on loopback only; a client that does not know the secret gets no answer at all."""

    state: State
    """State of this daemon; set before any client can find the port."""

    def __init__(
        self,
        host: LibraryHost,
        settings: Mapping[str, Any],
        reload_settings: Callable[[], Awaitable[None]],
    ) -> None:
        self.host = host
        self.settings = settings
        self.reload_settings = reload_settings
        self.connections = 0
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[IpcServer]:
        """Bind to a free port and accept clients until the context ends."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
            anyio.create_task_group() as group,
        ):
            self.port = int(listener.extra(SocketAttribute.local_port))
            for socket_listener in cast(Sequence[SocketListener], listener.listeners):
                group.start_soon(self._accept, socket_listener, group)
            yield self
            group.cancel_scope.cancel()

    async def _accept(self, listener: SocketListener, group: TaskGroup) -> None:
        """Accept connections; without a free file descriptor, try again later instead of ending."""
        while True:
            try:
                stream = await listener.accept()
            except ConnectionAbortedError:
                continue
            except OSError:
                await anyio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            group.start_soon(self._serve_connection, stream)

    async def _serve_connection(self, stream: ByteStream) -> None:
        async with stream:
            full = self.connections >= MAX_CLIENTS
            if self.connections >= MAX_CLIENTS + MAX_REJECTED:
                return
            self.connections += 1
            try:
                # A client that disconnects, is too slow or sends invalid JSON is dropped.
                with suppress(*DISCONNECTED, TimeoutError, ValueError, RecursionError):
                    await self._serve_client(JsonLines(stream), full)
            except Exception as error:
                # An error in one session must not end the daemon.
                print(f"IPC server: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                self.connections -= 1

    async def _serve_client(self, lines: JsonLines, full: bool) -> None:
        with anyio.fail_after(HANDSHAKE_SECONDS):
            hello = await lines.receive(MAX_HANDSHAKE_BYTES)
        secret = str(hello.get("secret", "")).encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(secret, self.state.secret.encode()):
            return
        await lines.send({"proof": self.state.proof, "full": full})
        if full:
            return
        with anyio.fail_after(HANDSHAKE_SECONDS):
            message = await lines.receive()
        if not await self._accepts(lines, message.get("settings")):
            return
        if message.get("purpose") == "mcp":
            await serve_mcp(self.host, lines)
            return
        while True:
            await self._call(lines, await lines.receive())

    async def _accepts(self, lines: JsonLines, settings: Any) -> bool:
        """Compare the settings of the client with ours; describe the library if they are equal."""
        if settings != self.settings:
            await lines.send({"mismatch": "other settings"})
            return False
        try:
            await self.reload_settings()
        except SettingsError:
            # The client reads the same files and reports the error to its user.
            await lines.send({"mismatch": "invalid settings"})
            return False
        library = self.host.library
        folders = {name: str(folder) for name, folder in library.collections.items()}
        await lines.send({"collections": folders, "link_address": library.link_address})
        return True

    async def _call(self, lines: JsonLines, request: dict[str, Any]) -> None:
        send, receive = anyio.create_memory_object_stream[dict[str, Any]](MAX_QUEUED_PROGRESS)
        reply: dict[str, Any] = {}
        with send, receive:
            async with anyio.create_task_group() as group:
                group.start_soon(lines.cancel_on_disconnect, group.cancel_scope)
                group.start_soon(self._send_progress, lines, receive)
                reply = await self._execute(request, send)
                group.cancel_scope.cancel()
            with suppress(anyio.WouldBlock):
                while True:
                    await lines.send(receive.receive_nowait())
        if reply:
            await lines.send(reply)

    async def _execute(
        self, request: dict[str, Any], progress: MemoryObjectSendStream[dict[str, Any]]
    ) -> dict[str, Any]:
        context: Any = {name: request.get(name) for name in ("near", "part", "assignments")}

        try:
            operation = request["operation"]
            work = partial(_execute, name=operation, arguments=request["arguments"], **context)
            in_worker = operation not in IN_THIS_PROCESS
            sender = ProgressSender(progress)
            return {"result": await self.host.run(work, sender, in_worker=in_worker)}
        except Exception as error:
            hint = error.hint if isinstance(error, MarklightError) else ""
            message = error.message if isinstance(error, MarklightError) else str(error)
            return {"error": {"type": type(error).__name__, "message": message, "hint": hint}}

    @staticmethod
    async def _send_progress(
        lines: JsonLines, progress: MemoryObjectReceiveStream[dict[str, Any]]
    ) -> None:
        while True:
            message: dict[str, Any] = {"heartbeat": True}
            with anyio.move_on_after(HEARTBEAT_SECONDS):
                message = await progress.receive()
            await lines.send(message)


def _execute(library: Library, **arguments: Any) -> Any:
    return encode(operations.run(library, **arguments))


class ProgressSender:
    """Progress callback that queues messages from a worker thread and never waits for the client."""

    def __init__(self, queue: MemoryObjectSendStream[dict[str, Any]]) -> None:
        self._queue = queue
        self._phase, self._sent_at = "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase == self._phase and done < total and now < self._sent_at + PROGRESS_SECONDS:
            return
        self._phase, self._sent_at = phase, now
        with suppress(RuntimeError):  # the event loop has ended
            anyio.from_thread.run_sync(self._put, {"progress": [phase, done, total]})

    def _put(self, message: dict[str, Any]) -> None:
        with suppress(anyio.WouldBlock, *DISCONNECTED):
            self._queue.send_nowait(message)


async def serve_mcp(host: LibraryHost, lines: JsonLines) -> None:
    """Serve one MCP client over an IPC connection, until it disconnects."""
    from mcp.server.stdio import (
        stdio_server,  # takes a second to import; many daemons never need it
    )

    from marklight.surfaces.mcp.server import make_server
    from marklight.surfaces.mcp.stdio import serve_streams

    file: Any = TextFile(lines)
    async with stdio_server(file, file) as (read, write):
        await serve_streams(make_server(host), read, write)


class TextFile:
    """An IPC connection with the interface of the text files that the MCP SDK reads and writes."""

    def __init__(self, lines: JsonLines) -> None:
        self._lines = lines

    def __aiter__(self) -> TextFile:
        return self

    async def __anext__(self) -> str:
        try:
            return (await self._lines.receive_raw()).decode("utf-8", "replace")
        except (*DISCONNECTED, ValueError):
            raise StopAsyncIteration from None

    async def write(self, text: str) -> None:
        """Send one line; a disconnected client is noticed when reading."""
        with suppress(*DISCONNECTED, TimeoutError):
            await self._lines.send_raw(text.removesuffix("\n").encode())

    async def flush(self) -> None:
        """Do nothing: a written line is sent already."""
