"""IPC server of the daemon: authenticates clients of the same user by a secret and executes their calls."""

from __future__ import annotations

import hmac
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from marklight.errors import MarklightError, SettingsError
from marklight.ports import Progress
from marklight.surfaces.daemon import State
from marklight.surfaces.daemon.client import HANDSHAKE_SECONDS, MAX_HANDSHAKE_BYTES, encode
from marklight.surfaces.host import IN_THIS_PROCESS, LibraryHost, run

if TYPE_CHECKING:
    from marklight.library import Library

MAX_CLIENTS = 200
MAX_REJECTED = 50
"""Connections beyond MAX_CLIENTS that get a rejection; more are closed at once."""
ACCEPT_RETRY_SECONDS = 1.0
"""Pause before the next `accept` when no file descriptor is left."""
PROGRESS_SECONDS = 0.1
"""Interval of progress messages."""
HEARTBEATS = 10
"""Intervals after which a client whose call is in progress gets a heartbeat."""
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
        reply: dict[str, Any] = {}
        progress = LatestProgress()
        async with anyio.create_task_group() as group:
            group.start_soon(lines.cancel_on_disconnect, group.cancel_scope)
            group.start_soon(progress.send_all, lines)
            reply = await self._execute(request, progress)
            group.cancel_scope.cancel()
        if reply:
            await progress.send(lines)
            await lines.send(reply)

    async def _execute(self, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        context: Any = {name: request.get(name) for name in ("near", "part", "assignments")}
        try:
            operation = request["operation"]
            work = partial(_execute, name=operation, arguments=request["arguments"], **context)
            in_worker = operation not in IN_THIS_PROCESS
            return {"result": await self.host.run(work, progress, in_worker=in_worker)}
        except Exception as error:
            hint = error.hint if isinstance(error, MarklightError) else ""
            message = error.message if isinstance(error, MarklightError) else str(error)
            return {"error": {"type": type(error).__name__, "message": message, "hint": hint}}


def _execute(library: Library, **arguments: Any) -> Any:
    return encode(run(library, **arguments))


class LatestProgress:
    """Progress callback for a thread; sends the latest value at intervals, or a heartbeat."""

    def __init__(self) -> None:
        self._value: tuple[str, int, int] | None = None
        self._sent: tuple[str, int, int] | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        self._value = phase, done, total

    async def send_all(self, lines: JsonLines) -> None:
        """Send until cancelled."""
        for number in count(1):
            await anyio.sleep(PROGRESS_SECONDS)
            await self.send(lines)
            if number % HEARTBEATS == 0:
                await lines.send({"heartbeat": True})

    async def send(self, lines: JsonLines) -> None:
        """Send the latest value, unless it was sent."""
        if (value := self._value) != self._sent:
            self._sent = value
            await lines.send({"progress": value})


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
