"""The daemon itself: one host, served over HTTP and through the private door, until it is told to end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from marklight import __version__
from marklight.errors import SettingsError
from marklight.library import Library
from marklight.place import PROJECT_FILE
from marklight.settings import SHARED_FILE, user_file
from marklight.surfaces.daemon import state
from marklight.surfaces.daemon.assisting import assist
from marklight.surfaces.daemon.door import Door
from marklight.surfaces.daemon.state import State
from marklight.surfaces.host import Host
from marklight.surfaces.http.address import Address
from marklight.surfaces.http.app import make_app
from marklight.surfaces.http.listening import port_of
from marklight.surfaces.http.server import serve_http
from marklight.trust import record_path

LOOK_SECONDS = 2.0
"""How often a daemon looks whether its file is still there, its settings the same, and anybody needs it."""


class Daemon:
    """One library, served until it is told to end, its parent is gone, or nobody has asked for long."""

    def __init__(
        self,
        library: Library,
        listening: socket.socket,
        file: Path,
        settings: Mapping[str, Any],
        idle_seconds: float | None = None,
    ) -> None:
        self.host = Host(library)
        self.listening = listening
        self.file = file
        self.idle_seconds = idle_seconds
        self.requests = 0
        """Over HTTP, that are being answered now."""
        self.over = asyncio.Event()
        self._read = _files(library)
        self._renewing = anyio.Lock()
        self._unread = ""
        """Why the settings could not be read again."""
        self.door = Door(
            self.host,
            settings,
            stop=self.over.set,
            assist=partial(assist, self.host),
            fresh=self._fresh,
        )

    async def run(self, ready: Callable[[State], None]) -> None:
        """Serve; `ready` hears where, once somebody would be answered."""
        library, answering = self.host.library, anyio.Event()
        own = Address(library.serve.host, port_of(self.listening), library.serve.token)
        async with self.host.open(), self.door.open(), anyio.create_task_group() as group:
            app = self._counted(make_app(self.host, own))
            wait = library.serve.timeout_seconds
            group.start_soon(serve_http, app, self.listening, wait, answering.set)
            await answering.wait()
            self.door.state = State(
                folder=str(library.place.folder),
                pid=os.getpid(),
                port=self.door.port,
                secret=secrets.token_urlsafe(32),
                proof=secrets.token_urlsafe(32),
                address=f"{own.url}/",
                version=__version__,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            # Before anybody can know of us, and so end us.
            with self._signals(), self._parent():
                state.write(self.file, self.door.state)
                try:
                    ready(self.door.state)
                    group.start_soon(self._mind)
                    await self.over.wait()
                finally:
                    state.forget(self.file, self.door.state)
            group.cancel_scope.cancel()

    async def _mind(self) -> None:
        """Heal the file that others find us by; rest, and leave, when nobody needs us."""
        worked_at = held_at = time.monotonic()
        resting = False
        rest_seconds = self.host.library.serve.rest_minutes * 60
        while True:
            await anyio.sleep(min(LOOK_SECONDS, (self.idle_seconds or LOOK_SECONDS) / 4))
            if state.read(self.file) != self.door.state:
                with suppress(OSError):
                    state.make_folder()
                    state.write(self.file, self.door.state)
            await self._renewed()
            now = time.monotonic()
            if self.host.following.at:
                worked_at = now
            if self.door.connections or self.requests:
                held_at = now
            worked_at = max(worked_at, self.host.last_asked)
            # An assistant that is connected all day asks now and then.
            if now - worked_at > rest_seconds and not resting:
                self.host.library.rest()
            resting = now - worked_at > rest_seconds
            if self.idle_seconds and now - max(worked_at, held_at) > self.idle_seconds:
                self.over.set()

    async def _fresh(self) -> None:
        """Settings files that were changed count from the next call on."""
        async with self._renewing:
            now = _files(self.host.library)
            if now != self._read:
                await self.host.renew()
                self._read = now
                if self.idle_seconds is not None:
                    self.idle_seconds = self.host.library.serve.idle_minutes * 60

    async def _renewed(self) -> None:
        """The same for those who never attach; settings that make no sense are told once, and the old go on."""
        try:
            await self._fresh()
        except SettingsError as error:
            if self._unread != str(error):
                print(f"the settings stay as they were: {error}", file=sys.stderr, flush=True)
            self._unread = str(error)
        else:
            self._unread = ""

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """An interrupt ends us in order; a second one at once."""
        loop = asyncio.get_running_loop()

        def told(number: int, _: Any) -> None:
            if self.over.is_set():
                os._exit(128 + number)
            loop.call_soon_threadsafe(self.over.set)

        before = {each: signal.signal(each, told) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _parent(self) -> Iterator[None]:
        """Where our input is a pipe, whoever holds its other end wants us; once that is closed, nobody does."""
        loop = asyncio.get_running_loop()

        def wait() -> None:
            with suppress(OSError, RuntimeError):
                while os.read(0, 4096):
                    pass
                loop.call_soon_threadsafe(self.over.set)

        if _is_pipe(0):
            Thread(target=wait, name="marklight-parent", daemon=True).start()
        yield

    def _counted(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.requests += 1
            try:
                await app(scope, receive, send)
            finally:
                self.requests -= 1

        return counted


Watch = Callable[[Daemon], Coroutine[Any, Any, None]]
"""Whoever shows a person how far it is, as long as it runs."""


def run(
    library: Library,
    listening: socket.socket,
    file: Path,
    settings: Mapping[str, Any],
    idle_seconds: float | None,
    ready: Callable[[State], None],
    watch: Watch | None = None,
) -> None:
    """A daemon in an event loop of its own, until it ends."""

    async def serve() -> None:
        daemon = Daemon(library, listening, file, settings, idle_seconds)
        watching = asyncio.create_task(watch(daemon)) if watch else None
        try:
            await daemon.run(ready)
        finally:
            if watching:
                watching.cancel()

    try:
        anyio.run(serve)
    except BaseExceptionGroup as several:
        # Of what failed, the first is why the rest did.
        raise _first(several) from several


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _files(library: Library) -> list[tuple[int, int, int, int] | None]:
    """Return the status of the settings files and of the user's trust in them; a change means that settings are read again."""
    found: list[tuple[int, int, int, int] | None] = []
    folder = library.place.folder
    for file in (user_file(), folder / PROJECT_FILE, folder / SHARED_FILE, record_path(folder)):
        try:
            seen = file.stat()
            # The last changes with owner and mode, which decide whether a file is obeyed.
            found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_ctime_ns))
        except OSError:
            found.append(None)
    return found
