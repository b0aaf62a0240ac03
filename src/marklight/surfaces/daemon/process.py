"""The daemon process: serves one library over HTTP and IPC until it is stopped, idle or orphaned."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from marklight import __version__
from marklight.errors import SettingsError
from marklight.library import Library
from marklight.place import PROJECT_FILE
from marklight.platforms import on_termination
from marklight.settings import SHARED_FILE, user_file
from marklight.surfaces.daemon import (
    State,
    make_state_folder,
    read_state,
    remove_state,
    write_state,
)
from marklight.surfaces.daemon.ipc_server import IpcServer
from marklight.surfaces.daemon.worker_pool import WorkerPool
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http import configured_address, port_of
from marklight.surfaces.http.app import make_app
from marklight.surfaces.http.server import serve_http
from marklight.trust import record_path

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

    if _is_pipe(0):
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


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


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
