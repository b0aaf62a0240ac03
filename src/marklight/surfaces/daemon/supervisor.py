"""Supervisor of worker processes that serve one library from one listening socket (`serve --workers N`).

The supervisor binds the address and starts the processes, starts one that crashes again, relays messages between
them, and stops all when it is stopped. The first process watches the files and serves IPC clients; when it exits
normally, everything stops. If the supervisor is killed, its workers notice that their channels are closed, and stop.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from marklight import errors
from marklight.errors import MarklightError, StoreError
from marklight.surfaces.daemon.client import PROGRAM
from marklight.surfaces.daemon.discovery import State
from marklight.surfaces.daemon.worker_channel import (
    NOT_RUNNING,
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
from marklight.surfaces.http.address import listen, port_of

FIRST = 0
"""Number of the process that watches the files and serves IPC clients."""
RESTART_SECONDS, MAX_RESTART_SECONDS = 0.5, 30.0
"""Pause before a crashed process is started again; it doubles with every crash."""
STABLE_SECONDS = 60.0
"""A process that ran for so long starts again after the shortest pause."""
STOP_SECONDS = 10.0
"""Time that the processes have to exit; then they are killed."""
RESTARTING = "The process that watches the files has ended; it is being started again"


@dataclass(slots=True)
class Worker:
    """A worker process."""

    number: int
    forwarded: socket.socket
    """Listening socket for requests that other workers forward; it stays open when the process crashes."""
    process: subprocess.Popen[bytes] | None = None
    channel: Channel | None = None
    started: bool = False
    """True once the current process answers requests."""
    started_at: float = 0.0
    pause_seconds: float = RESTART_SECONDS
    restart_at: float | None = None
    failure: Failed | None = None
    """Error that kept the current process from starting."""
    reported: str = ""
    """Last message about a failed start, which is not repeated."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Event: a process has closed its channel."""

    process: subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class StopSignal:
    """Event: the supervisor received a signal, or its parent has closed its standard input."""

    number: int = 0


Event = tuple[int, Message | Ended | StopSignal]


class Supervisor:
    """Runs worker processes until the first one exits normally or a signal arrives."""

    def __init__(
        self,
        count: int,
        folder: Path,
        options: Mapping[str, Any],
        assignments: tuple[str, ...],
        listener: socket.socket,
        state_file: Path,
        notify: Callable[[str], None],
    ) -> None:
        self.listener = listener
        self.notify = notify
        self.workers = [Worker(number, listen("127.0.0.1", 0)) for number in range(count)]
        self.loads = SharedLoads.create(count)
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._watcher = WatcherState()
        self._stopping_since: float | None = None
        self._ready = False
        self._failure: MarklightError | None = None
        self._start = Start(
            number=0,
            folder=str(folder),
            options=options,
            assignments=assignments,
            ports=[port_of(worker.forwarded) for worker in self.workers],
            keys={name: secrets.token_urlsafe(32) for name in ("cookie_key", "forwarding_key")},
            state_file=state_file,
            supervisor=os.getpid(),
        )

    def run(self, ready: Callable[[State], None]) -> None:
        """Run the processes; call `ready` once all of them answer. Raise the error of one that cannot start."""
        from marklight.surfaces.daemon.process import call_when_input_closes

        state: State | None = None
        with self._signals():
            call_when_input_closes(lambda: self._events.put((FIRST, StopSignal())))
            try:
                for worker in self.workers:
                    self._launch(worker)
                while any(worker.process or worker.restart_at for worker in self.workers):
                    number, event = self._next_event()
                    if isinstance(event, Started) and event.state:
                        state = State(*event.state)
                    if event is not None:
                        self._handle(self.workers[number], event)
                    if not self._ready and all(worker.started for worker in self.workers) and state:
                        self._ready = True
                        ready(state)
            finally:
                self._kill_all()
                for worker in self.workers:
                    worker.forwarded.close()
        if self._failure:
            raise self._failure

    def _next_event(self) -> tuple[int, Message | Ended | StopSignal | None]:
        """Wait for an event; start crashed processes again and end stuck ones meanwhile."""
        now = time.monotonic()
        if self._stopping_since is not None and now > self._stopping_since + STOP_SECONDS:
            self._kill_all()
        for worker in self.workers:
            if worker.restart_at is not None and now >= worker.restart_at:
                self._launch(worker)
        times = [worker.restart_at for worker in self.workers if worker.restart_at is not None]
        if self._stopping_since is not None:
            times.append(self._stopping_since + STOP_SECONDS)
        try:
            wait = max(0.01, min(times) - now) if times else None
            return self._events.get(timeout=wait)
        except Empty:
            return FIRST, None

    def _handle(self, worker: Worker, event: Message | Ended | StopSignal) -> None:
        match event:
            case StopSignal(number):
                if number and self._stopping_since is not None:
                    self._kill_all()
                    os._exit(128 + number)
                self._stop()
            case Ended(process):
                if process is worker.process:
                    self._ended(worker, process.wait())
            case Started():
                worker.started, worker.reported = True, ""
                self._send(worker, self._watcher)
            case Failed():
                worker.failure = event
            case WatcherState():
                self._watcher = event
                self._broadcast(worker, event)
            case Indexed():
                self._broadcast(worker, event)
            case Wake():
                self._send(self.workers[FIRST], event)

    def _launch(self, worker: Worker) -> None:
        """Start a process; it inherits the sockets and the shared memory, and nothing else."""
        ours, theirs = socket.socketpair()
        descriptors = (theirs, self.listener, worker.forwarded)
        numbers = [*(each.fileno() for each in descriptors), self.loads.file]
        with theirs:
            worker.process = subprocess.Popen(
                [*PROGRAM, "serve", "--worker-sockets", ",".join(map(str, numbers))],
                stdin=subprocess.DEVNULL,
                pass_fds=numbers,
                # Ctrl-C in a terminal reaches the supervisor only, which stops the others.
                process_group=0,
            )
        worker.channel, worker.started_at = Channel(ours), time.monotonic()
        worker.started, worker.restart_at, worker.failure = False, None, None
        self._send(worker, replace(self._start, number=worker.number))
        arguments = (worker.number, worker.process, worker.channel)
        Thread(target=self._read, args=arguments, daemon=True).start()

    def _read(self, number: int, process: subprocess.Popen[bytes], channel: Channel) -> None:
        """Queue the messages of a process until it ends."""
        while (message := channel.receive()) is not None:
            self._events.put((number, message))
        self._events.put((number, Ended(process)))

    def _ended(self, worker: Worker, code: int) -> None:
        """Decide what follows the end of a process: the end of all, or another start."""
        if worker.channel:
            worker.channel.close()
        worker.process, worker.channel = None, None
        started, worker.started = worker.started, False
        self.loads.set(worker.number, NOT_RUNNING)
        if self._stopping_since is not None:
            return
        if not self._ready:
            self._failure = self._error(worker, code)
            self._stop()
            return
        if worker.number == FIRST:
            if code == 0 and started:  # `marklight stop`
                self._stop()
                return
            self._watcher = WatcherState(None, RESTARTING, text_tried=True)
            self._broadcast(worker, self._watcher)
        if time.monotonic() - worker.started_at > STABLE_SECONDS:
            worker.pause_seconds = RESTART_SECONDS
        worker.restart_at = time.monotonic() + worker.pause_seconds
        worker.pause_seconds = min(2 * worker.pause_seconds, MAX_RESTART_SECONDS)
        message = str(self._error(worker, code))
        if message != worker.reported:
            self.notify(f"{message}. The process is started again")
        worker.reported = message

    def _error(self, worker: Worker, code: int) -> MarklightError:
        """Return the error of a process that could not start or has crashed."""
        if failure := worker.failure:
            kind = getattr(errors, failure.error, StoreError)
            known = isinstance(kind, type) and issubclass(kind, MarklightError)
            return (kind if known else StoreError)(failure.message, failure.hint)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return StoreError(f"Worker process {worker.number + 1} ended unexpectedly ({how})")

    def _stop(self) -> None:
        """Send SIGTERM to all processes; those that wait to be started again are not started."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
        for worker in self.workers:
            worker.restart_at = None
            if worker.process:
                with suppress(OSError):
                    worker.process.terminate()

    def _kill_all(self) -> None:
        for worker in self.workers:
            if worker.process:
                worker.process.kill()
                worker.process.wait()
                worker.process = None

    def _send(self, worker: Worker, message: Message) -> None:
        if worker.channel and not worker.channel.send(message) and worker.process:
            worker.process.kill()  # it does not read; it is started again

    def _broadcast(self, source: Worker, message: Message) -> None:
        for worker in self.workers:
            if worker is not source and worker.started:
                self._send(worker, message)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, _: Any) -> None:
            self._events.put((FIRST, StopSignal(number)))

        before = {
            number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
