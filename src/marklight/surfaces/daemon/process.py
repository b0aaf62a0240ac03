"""The daemon process: serves one library over HTTP and IPC until it is stopped, idle or orphaned.

The IPC server authenticates clients of the same user by a secret and executes their calls.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup
from starlette.types import ASGIApp, Receive, Scope, Send

from marklight import __version__
from marklight.errors import MarklightError, SettingsError
from marklight.library import Library
from marklight.place import PROJECT_FILE
from marklight.platforms import on_termination
from marklight.ports import Progress
from marklight.settings import SHARED_FILE, user_file
from marklight.surfaces.daemon import (
    State,
    make_state_folder,
    read_state,
    remove_state,
    write_state,
)
from marklight.surfaces.daemon.client import HANDSHAKE_SECONDS, MAX_HANDSHAKE_BYTES, encode
from marklight.surfaces.host import LibraryHost, WorkerPool
from marklight.surfaces.host import run as run_operation
from marklight.surfaces.http import configured_address, port_of
from marklight.surfaces.http.server import make_app, serve_http
from marklight.trust import record_path

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
            operation, arguments = request["operation"], request["arguments"]
            result = await self.host.call(operation, arguments, progress, _execute, **context)
            return {"result": result}
        except Exception as error:
            hint = error.hint if isinstance(error, MarklightError) else ""
            message = error.message if isinstance(error, MarklightError) else str(error)
            return {"error": {"type": type(error).__name__, "message": message, "hint": hint}}


def _execute(library: Library, **arguments: Any) -> Any:
    return encode(run_operation(library, **arguments))


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

    from marklight.surfaces.mcp.server import make_server, serve_streams

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


MAINTENANCE_SECONDS = 2.0
"""Interval of the maintenance loop: state file, changed settings, idle time."""

FileStatus = tuple[int, int, int, int]


class Daemon:
    """Serves a library over HTTP and IPC until a signal, the end of the parent or the idle time limit."""

    def __init__(
        self,
        library: Library,
        listener: socket.socket,
        file: Path,
        settings: Mapping[str, Any],
        idle_seconds: float | None = None,
        pool: WorkerPool | None = None,
    ) -> None:
        self.host = LibraryHost(library, pool=pool)
        self.listener = listener
        self.file = file
        self.idle_seconds = idle_seconds
        self.requests = 0
        """HTTP requests in progress."""
        self.stopped = asyncio.Event()
        self.address = configured_address(library.serve, port_of(listener))
        self.ipc = IpcServer(self.host, settings, self._reload_settings)
        self._settings_files = _settings_status(library)
        self._reload_lock = anyio.Lock()
        self._settings_error = ""
        """Last reported error of the settings files."""
        self._resting = False

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve; call `ready` once clients are answered."""
        answering = anyio.Event()
        async with self.host.open(), self.ipc.open(), anyio.create_task_group() as group:
            group.start_soon(self._serve_http, answering.set)
            await answering.wait()
            with self._signals(), self._published():
                ready()
                group.start_soon(self._maintain)
                await self.stopped.wait()
            group.cancel_scope.cancel()

    async def _serve_http(self, answering: Callable[[], None]) -> None:
        app = self._count_requests(make_app(self.host, self.address))
        await serve_http(app, self.listener, self.host.library.serve.timeout_seconds, answering)

    @contextmanager
    def _published(self) -> Iterator[None]:
        """Let clients find this process while it serves; stop when the parent process ends."""
        state = self.ipc.state = State(
            folder=str(self.host.library.place.folder),
            pid=os.getpid(),
            port=self.ipc.port,
            secret=secrets.token_urlsafe(32),
            proof=secrets.token_urlsafe(32),
            address=f"{self.address.url}/",
            version=__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        _call_when_input_closes(asyncio.get_running_loop(), self.stopped.set)
        write_state(self.file, state)
        try:
            yield
        finally:
            remove_state(self.file, state)

    async def _maintain(self) -> None:
        """Restore a lost state file, reload changed settings, release memory and stop when idle."""
        worked_at = connected_at = time.monotonic()
        while True:
            await anyio.sleep(
                min(MAINTENANCE_SECONDS, (self.idle_seconds or MAINTENANCE_SECONDS) / 4)
            )
            if read_state(self.file) != self.ipc.state:
                with suppress(OSError):
                    make_state_folder()
                    write_state(self.file, self.ipc.state)
            await self._try_reload_settings()
            now = time.monotonic()
            if self.host.watcher.progress:
                worked_at = now
            if self.ipc.connections or self.requests:
                connected_at = now
            worked_at = max(worked_at, self.host.last_used)
            # Connected clients do not count here: an assistant stays connected all day.
            resting = now - worked_at > self.host.library.serve.rest_minutes * 60
            if resting and not self._resting:
                self.host.library.models.unload()
            self._resting = resting
            if self.idle_seconds and now - max(worked_at, connected_at) > self.idle_seconds:
                self.stopped.set()

    async def _reload_settings(self) -> None:
        """Reopen the library if a settings file has changed."""
        async with self._reload_lock:
            status = _settings_status(self.host.library)
            if status != self._settings_files:
                await self.host.reopen()
                self._settings_files = status
                if self.idle_seconds is not None:
                    self.idle_seconds = self.host.library.serve.idle_minutes * 60

    async def _try_reload_settings(self) -> None:
        """Reload for clients that never attach; invalid settings are logged once and the old ones stay."""
        try:
            await self._reload_settings()
        except SettingsError as error:
            if self._settings_error != str(error):
                print(f"Settings not reloaded: {error}", file=sys.stderr, flush=True)
            self._settings_error = str(error)
        else:
            self._settings_error = ""

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop in order at the first SIGINT or SIGTERM, at once at the second."""
        loop = asyncio.get_running_loop()

        def handle(number: int, _: Any) -> None:
            if self.stopped.is_set():
                os._exit(128 + number)
            loop.call_soon_threadsafe(self.stopped.set)

        restore = on_termination(handle)
        try:
            yield
        finally:
            restore()

    def _count_requests(self, app: ASGIApp) -> ASGIApp:
        async def counting_app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.requests += 1
            try:
                await app(scope, receive, send)
            finally:
                self.requests -= 1

        return counting_app


def _call_when_input_closes(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
    """Call back in the event loop when standard input is a pipe and the parent process closes it."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(callback)

    with suppress(OSError):
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            Thread(target=wait, name="marklight-parent", daemon=True).start()


Monitor = Callable[[Daemon], Coroutine[Any, Any, None]]
"""Coroutine that shows progress while the daemon runs."""


def run(
    library: Library,
    listener: socket.socket,
    file: Path,
    settings: Mapping[str, Any],
    idle_seconds: float | None,
    ready: Callable[[State], None],
    monitor: Monitor | None = None,
    pool: WorkerPool | None = None,
) -> None:
    """Run a daemon in an event loop of its own until it ends."""

    async def serve() -> None:
        daemon = Daemon(library, listener, file, settings, idle_seconds, pool)
        task = asyncio.create_task(monitor(daemon)) if monitor else None
        try:
            await daemon.run(lambda: ready(daemon.ipc.state))
        finally:
            if task:
                task.cancel()

    try:
        anyio.run(serve)
    except BaseExceptionGroup as group:
        raise _first_error(group) from group


def _first_error(error: BaseException) -> BaseException:
    """Return the first error of nested groups, which is the cause of the others."""
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _settings_status(library: Library) -> list[FileStatus | None]:
    """Return the file status of the settings files and of the record of trust; a change triggers a reload."""
    found: list[FileStatus | None] = []
    folder = library.place.folder
    for file in (user_file(), folder / PROJECT_FILE, folder / SHARED_FILE, record_path(folder)):
        try:
            status = file.stat()
            # The change time also covers owner and mode, which decide whether a file is trusted.
            found.append((status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns))
        except OSError:
            found.append(None)
    return found
