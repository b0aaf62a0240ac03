"""A worker process of `serve --workers N`: serves HTTP on an inherited socket.

The first one is the daemon: it watches the files and serves IPC clients. The others get the state of its watcher
through the supervisor, and send it the changes that they index themselves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import anyio

from marklight.errors import MarklightError
from marklight.library import Library
from marklight.library.watching import Watcher
from marklight.report import Report
from marklight.surfaces.daemon.discovery import process_settings
from marklight.surfaces.daemon.process import (
    Daemon,
    LibraryProcess,
    Monitor,
    WorkerSockets,
    first_error,
)
from marklight.surfaces.daemon.worker_channel import (
    Channel,
    Failed,
    Indexed,
    Message,
    SharedLoads,
    Start,
    Started,
    Wake,
    WatcherState,
)

STATE_SECONDS = 0.2
"""Interval at which the first process sends the state of its watcher, if it has changed."""


class RemoteWatcher(Watcher):
    """The watcher of the first worker process, as the others see it."""

    def __init__(self, library: Library, channel: Channel, state: WatcherState) -> None:
        super().__init__(library)
        self._channel = channel
        self.apply(state)

    def start(self) -> None:
        """Let the library use this watcher; no thread is started."""
        self.library.watcher = self

    def apply(self, state: WatcherState) -> None:
        """Set the state that the first process has sent."""
        self.progress, self.watching = state.progress, state.watching
        self.problem, self.remark = state.problem, state.remark
        if state.text_tried:
            self._text_tried.set()

    def wake(self) -> None:
        """Let the first process embed new passages."""
        self._channel.send(Wake())


class WorkerProcess:
    """Connects one serving process with the supervisor."""

    def __init__(self, channel: Channel, start: Start, sockets: tuple[int, int, int]) -> None:
        listener, forwarded, loads = sockets
        self.channel, self.start = channel, start
        self.listener = _inherited(listener)
        self.sockets = WorkerSockets(
            start.number,
            start.ports,
            _inherited(forwarded),
            SharedLoads(loads, len(start.ports), start.number),
            start.keys,
        )
        self.watcher_state = WatcherState()
        """Last state that the first process has sent."""
        self.is_first = start.number == 0

    async def run(self, monitor: Monitor | None) -> None:
        """Serve until stopped."""
        start = self.start
        library = Library(Path(start.folder), {"serve": start.options}, start.assignments)
        serving: LibraryProcess
        if self.is_first:
            serving = daemon = Daemon(
                library,
                self.listener,
                start.state_file,
                process_settings(start.assignments),
                worker=self.sockets,
                pid=start.supervisor,
            )
            tasks = [self._send_watcher_state(daemon)]
            tasks += [monitor(daemon)] if monitor else []
        else:
            serving = LibraryProcess(library, self.listener, self.sockets, self._remote_watcher)
            tasks = []
        serving.host.watcher.listeners.append(self._send_report)
        loop = asyncio.get_running_loop()
        stop = _from_thread(loop, serving.stopped.set)
        Thread(target=self._receive, args=(serving, stop), daemon=True).start()
        running = [asyncio.create_task(task) for task in tasks]
        try:
            await serving.run(lambda: self._ready(serving))
        finally:
            for task in running:
                task.cancel()

    def _ready(self, serving: LibraryProcess) -> None:
        self.sockets.loads.report(0)
        state = serving.ipc.state if isinstance(serving, Daemon) else None
        self.channel.send(Started(tuple(state) if state else None))

    def _remote_watcher(self, library: Library) -> Watcher:
        return RemoteWatcher(library, self.channel, self.watcher_state)

    def _receive(self, serving: LibraryProcess, stop: Callable[[], None]) -> None:
        """Handle messages in a thread; stop when the supervisor has ended."""
        while (message := self.channel.receive()) is not None:
            self._handle(serving.host.watcher, message)
        stop()

    def _handle(self, watcher: Watcher, message: Message) -> None:
        match message:
            case WatcherState():
                self.watcher_state = message
                if isinstance(watcher, RemoteWatcher):
                    watcher.apply(message)
            case Indexed(report):
                for listener in tuple(watcher.listeners):
                    if listener != self._send_report:
                        listener(report)
            case Wake():
                watcher.wake()

    def _send_report(self, report: Report) -> None:
        self.channel.send(Indexed(report))

    async def _send_watcher_state(self, daemon: Daemon) -> None:
        sent = None
        while True:
            watcher = daemon.host.watcher
            state = WatcherState(
                watcher.progress,
                watcher.problem,
                watcher.remark,
                watcher.watching,
                watcher.text_was_tried,
            )
            if state != sent:
                # In a thread, since it may have to wait for the supervisor.
                await anyio.to_thread.run_sync(self.channel.send, state)
                sent = state
            await anyio.sleep(STATE_SECONDS)


def run(sockets: str, monitor: Monitor | None) -> int:
    """Run a worker process; its arguments are file descriptors of the channel, two listeners and the shared memory."""
    descriptor, *others = map(int, sockets.split(","))
    channel = Channel(_inherited(descriptor, blocking=True))
    start = channel.receive()
    if not isinstance(start, Start):
        return 0  # the supervisor has ended
    listener, forwarded, loads = others
    try:
        worker = WorkerProcess(channel, start, (listener, forwarded, loads))
        anyio.run(worker.run, monitor)
    except BaseException as error:
        cause = first_error(error)
        if not isinstance(cause, Exception):
            raise
        known = isinstance(cause, MarklightError)
        message = cause.message if isinstance(cause, MarklightError) else _describe(cause)
        hint = cause.hint if isinstance(cause, MarklightError) else ""
        channel.send(Failed(type(cause).__name__ if known else "", message, hint))
        return cause.exit_code if isinstance(cause, MarklightError) else 1
    return 0


def _describe(error: Exception) -> str:
    return f"A worker process failed: {type(error).__name__}: {error}"


def _inherited(descriptor: int, *, blocking: bool = False) -> socket.socket:
    inherited = socket.socket(fileno=descriptor)
    inherited.setblocking(blocking)
    return inherited


def _from_thread(
    loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]
) -> Callable[[], None]:
    def call() -> None:
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(callback)

    return call
