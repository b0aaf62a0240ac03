"""Worker processes of `serve --workers N`: each has the library open and executes one call at a time.

The daemon accepts all connections, keeps all sessions and watches the files. It sends the state of its watcher with
each call; a worker returns the changes that a call has indexed together with the result.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import count
from multiprocessing import connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

from marklight.errors import Stopped, StoreError
from marklight.library import Library
from marklight.library.progress import IndexingProgress
from marklight.library.watching import Watcher
from marklight.report import Report

MAX_PROCESSES = 61 if os.name == "nt" else 64
"""Windows waits for at most so many processes at once."""
MAX_ATTEMPTS = 3
"""Times that a call is sent: when a process crashes, the others are replaced too, and their calls sent again."""
MAX_CALLS = 65_536
"""Calls in progress that can be cancelled; far more than `serve.searches` allows."""
STOP_SECONDS = 5.0
"""Time that the processes have to exit; then they are killed."""
CHECK_SECONDS = 2.0
"""Interval at which an idle process checks whether to unload its models."""

Work = Callable[..., Any]
"""Function of a library that can be pickled, such as a partial of a function of a module."""


class LibraryArguments(NamedTuple):
    """Arguments with which every process opens the library."""

    folder: Path
    given: Mapping[str, Any]
    assignments: Sequence[str]


class WatcherState(NamedTuple):
    """State of the daemon's watcher."""

    progress: IndexingProgress | None
    watching: bool
    problem: str
    remark: str
    text_was_tried: bool
    verified: str
    """Version of the index that equals the disk; empty if that is not known."""

    @classmethod
    def of(cls, watcher: Watcher) -> WatcherState:
        """Return the current state of a watcher."""
        return cls(*(getattr(watcher, name) for name in cls._fields))


class Outcome(NamedTuple):
    """Result of a call, and the changes of the index that it made."""

    value: Any
    reports: Sequence[Report]
    woken: bool
    """True if there may be passages to embed."""


class WorkerPool:
    """Worker processes, started again when they crash or when the settings change."""

    def __init__(self, processes: int, library: LibraryArguments) -> None:
        self.processes = min(processes, MAX_PROCESSES)
        self._library = library
        self._context = multiprocessing.get_context("spawn")
        self._cancelled = self._context.RawArray("b", MAX_CALLS)
        """A byte for each call, in memory that all processes share."""
        self._numbers = count()
        self._executor: ProcessPoolExecutor | None = None
        self._opening: list[Future[None]] = []

    async def start(self) -> None:
        """Start all processes and open the library in each; raise the error of one that cannot."""
        self._current()
        try:
            await asyncio.gather(*map(asyncio.wrap_future, self._opening))
        except BrokenProcessPool:
            raise StoreError("A worker process ended unexpectedly while it started") from None

    async def run(self, work: Work, state: WatcherState) -> Outcome:
        """Run a function in one of the processes; if that crashes, in another one."""
        for _ in range(MAX_ATTEMPTS):
            executor = self._current()
            number = next(self._numbers) % MAX_CALLS
            self._cancelled[number] = 0
            try:
                future = executor.submit(_execute, work, state, number)
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                self._cancelled[number] = 1
                raise
            except BrokenProcessPool:
                if executor is self._executor:
                    self._executor = None
        raise StoreError("Worker processes end unexpectedly", "Run `marklight doctor`")

    def replace(self) -> None:
        """Replace the processes by others with the current settings; calls in progress finish."""
        if self._executor:
            self._executor.shutdown(wait=False)
            self._executor = None

    def close(self) -> None:
        """Cancel all calls and end all processes."""
        self._cancelled[:] = [1] * MAX_CALLS
        if self._executor:
            self._executor.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + STOP_SECONDS
        for process in multiprocessing.active_children():
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()

    def _current(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self.processes, self._context, _start, (self._library, self._cancelled)
            )
            # An executor starts a process for each call that finds no idle one.
            self._opening = [self._executor.submit(_open_library) for _ in range(self.processes)]
        return self._executor


# In a worker process


class _CallWatcher(Watcher):
    """The daemon's watcher as a call sees it: its state when the call was sent."""

    def __init__(self, library: Library, state: WatcherState) -> None:
        super().__init__(library)
        library.text_ingest.scans.verified = state.verified
        self.progress, self.watching = state.progress, state.watching
        self.problem, self.remark = state.problem, state.remark
        if state.text_was_tried:
            self._text_tried.set()
        self.reports: list[Report] = []
        self.listeners.append(self.reports.append)
        self.woken = False

    def wait_for_text(self) -> bool:
        """Return true if the first indexing run was over; the daemon has waited for it."""
        return self.text_was_tried

    def wake(self) -> None:
        """Let the daemon embed new passages, once the call is over."""
        self.woken = True


class _Process:
    """State of a worker process."""

    def __init__(self, arguments: LibraryArguments, cancelled: Any) -> None:
        self.arguments, self.cancelled = arguments, cancelled
        self.library: Library | None = None
        self.lock = Lock()
        """Held during a call."""
        self.used_at = time.monotonic()

    def open(self) -> Library:
        if self.library is None:
            self.library = Library(*self.arguments)
        return self.library

    def execute(self, work: Work, state: WatcherState, number: int) -> Outcome:
        def check_cancelled() -> None:
            if self.cancelled[number]:
                raise Stopped("The request was cancelled")

        def progress(phase: str, done: int, total: int) -> None:  # noqa: ARG001
            check_cancelled()

        with self.lock:
            library = self.open()
            watcher = library.watcher = _CallWatcher(library, state)
            try:
                check_cancelled()
                value = work(library, progress=progress, check_cancelled=check_cancelled)
                return Outcome(value, watcher.reports, watcher.woken)
            finally:
                self.used_at = time.monotonic()

    def maintain(self) -> None:
        """Unload the models after `serve.rest_minutes`; exit when the daemon has ended, in whatever way."""
        parent = multiprocessing.parent_process()
        while parent and not connection.wait([parent.sentinel], CHECK_SECONDS):
            if not self.lock.acquire(blocking=False):
                continue
            with suppress(Exception):
                idle_seconds = time.monotonic() - self.used_at
                if self.library and idle_seconds > self.library.serve.rest_minutes * 60:
                    self.library.models.unload()
                    self.used_at = math.inf  # once, until the next call
            self.lock.release()
        os._exit(0)


_process: _Process


def _start(arguments: LibraryArguments, cancelled: Any) -> None:
    global _process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the daemon, which stops us
    _process = _Process(arguments, cancelled)
    Thread(target=_process.maintain, name="marklight-maintenance", daemon=True).start()


def _open_library() -> None:
    _process.open()


def _execute(work: Work, state: WatcherState, number: int) -> Outcome:
    return _process.execute(work, state, number)
