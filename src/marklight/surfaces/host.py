"""Serve one library to concurrent async clients: file watching, bounded concurrency, threads or worker processes.

Also here: operations called as programs do, with a name and validated values, and with JSON values as the result.
Worker processes (`serve --workers N`) have the library open and execute one call at a time. The daemon accepts all
connections, keeps all sessions and watches the files. It sends the state of its watcher with each call; a worker returns
the changes that a call has indexed together with the result.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from multiprocessing import connection
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread

from marklight import answer, report, results
from marklight.errors import Overloaded, Stopped, StoreError
from marklight.library import Library
from marklight.library.progress import IndexingProgress
from marklight.library.watching import Watcher
from marklight.operations import OPERATIONS, find_operation
from marklight.parameters import Operation
from marklight.platforms import limit_heaps
from marklight.ports import Progress, no_progress
from marklight.report import Report
from marklight.serialization import Schema, object_schema, schema_of
from marklight.surfaces.render import json_body

Value = TypeVar("Value")

ANSWERS_PER_SEARCH = 0.25
"""Share of the slots that answers of a language model may take: they last for seconds, searches for milliseconds."""
IN_THIS_PROCESS = ("ask", "index")
"""Operations that never run in a worker process: they wait for a server, or write for a long time."""


FOLDERS = ("near", "part")
"""Hooks that are folders."""


def execute(library: Library, name: str, arguments: Mapping[str, Any], **context: Any) -> Any:
    """Execute an operation with validated arguments and return its result."""
    operation = find_operation(name)
    return library.execute(name, operation.complete(arguments) | _hooks(operation, context))


def call(
    library: Library, name: str, arguments: Mapping[str, Any], **context: Any
) -> dict[str, Any]:
    """Execute an operation with validated arguments and return its result as JSON values."""
    return json_result(name, execute(library, name, arguments, **context))


def call_encoded(
    library: Library, name: str, arguments: Mapping[str, Any], **context: Any
) -> bytes:
    """Execute an operation with validated arguments and return its result as encoded JSON."""
    return json_body(call(library, name, arguments, **context))


def json_result(name: str, result: Any) -> dict[str, Any]:
    """Return the result of an operation as JSON values."""
    if name == "tags":
        return {"tags": result}
    return result if isinstance(result, dict) else result.to_dict()


def result_schema(operation: str) -> Schema:
    """Return the JSON Schema of the result of an operation."""
    kind = OPERATIONS[operation].result
    if isinstance(kind, str):
        kind = next(vars(part)[kind] for part in (answer, report, results) if kind in vars(part))
    schema = schema_of(kind)
    return object_schema({"tags": schema}, title="Tags") if operation == "tags" else schema


def run(library: Library, name: str, arguments: Mapping[str, Any], **context: Any) -> Any:
    """Run an operation with the arguments of a call in another process; context that it does not take is ignored."""
    operation = find_operation(name)
    return library.run(name, operation.bind((), arguments) | _hooks(operation, context))


def _hooks(operation: Operation, context: Mapping[str, Any]) -> dict[str, Any]:
    hooks = {key: value for key, value in context.items() if key in operation.hooks and value}
    return hooks | {key: Path(hooks[key]) for key in FOLDERS if key in hooks}


class LibraryHost:
    """An open library with its file watcher and a limit on concurrent calls."""

    def __init__(self, library: Library, pool: WorkerPool | None = None) -> None:
        limits = library.serve
        self.library = library
        self.watcher = Watcher(library)
        self.wait_seconds = limits.wait_seconds
        self.last_used = time.monotonic()
        self._pool = pool
        self._calls: Counter[int] = Counter()
        """Calls in progress by library: `reopen` closes the old one after its last call."""
        slots = limits.searches * (pool.processes if pool else 1)
        self._limiter = anyio.CapacityLimiter(slots)
        self._answers = anyio.CapacityLimiter(max(1, int(slots * ANSWERS_PER_SEARCH)))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LibraryHost]:
        """Watch the files until the context ends; the first indexing runs in the background."""
        limit_heaps()
        self.watcher.start()
        try:
            if self._pool:
                await self._pool.start()
            yield self
        finally:
            with anyio.CancelScope(shield=True):
                if self._pool:
                    await anyio.to_thread.run_sync(self._pool.close)
                await anyio.to_thread.run_sync(self.watcher.close)
                await anyio.to_thread.run_sync(self.library.close)

    @property
    def several_collections(self) -> bool:
        """Return true if paths need their collection as a prefix to be unique."""
        return len(self.library.collections) > 1

    async def call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Progress = no_progress,
        function: Callable[..., Any] = call,
        **context: Any,
    ) -> Any:
        """Execute an operation by one of the functions above, in a thread or process, and return what that returns."""
        work = partial(function, name=operation, arguments=arguments, **context)
        if operation == "ask":
            return await self.answer(work, progress)
        return await self.run(work, progress, in_worker=operation not in IN_THIS_PROCESS)

    async def answer(self, work: Callable[..., Value], progress: Progress = no_progress) -> Value:
        """Run a function that calls a language model, within its share of the slots."""
        async with self._slot(self._answers):
            return await self.run(work, progress)

    async def run(
        self,
        work: Callable[..., Value],
        progress: Progress = no_progress,
        *,
        in_worker: bool = False,
    ) -> Value:
        """Run a function of the library in a thread; a cancelled caller stops it at the next stage.

        With `in_worker` it runs in a worker process, if there are any; the function must be picklable then, and its
        progress is not reported.
        """
        self.last_used = time.monotonic()
        async with self._slot(self._limiter):
            try:
                if self._pool and in_worker:
                    return await self._run_in_worker(self._pool, work)
                return await self._run_in_thread(work, progress)
            finally:
                self.last_used = time.monotonic()

    async def _run_in_thread(self, work: Callable[..., Value], progress: Progress) -> Value:
        cancelled, library = Event(), self.library

        def check_cancelled() -> None:
            if cancelled.is_set():
                raise Stopped("The request was cancelled")

        def checked_progress(phase: str, done: int, total: int) -> None:
            check_cancelled()
            progress(phase, done, total)

        def run_in_thread() -> Value:
            return work(library, progress=checked_progress, check_cancelled=check_cancelled)

        self._calls[id(library)] += 1
        try:
            return await anyio.to_thread.run_sync(run_in_thread, abandon_on_cancel=True)
        finally:
            cancelled.set()
            self._calls[id(library)] -= 1
            await self._close_if_replaced(library)

    async def _run_in_worker(self, pool: WorkerPool, work: Callable[..., Value]) -> Value:
        watcher, library = self.watcher, self.library
        if not watcher.text_was_tried:
            await anyio.to_thread.run_sync(_wait_for_first_run, library, watcher)
        state = await anyio.to_thread.run_sync(WatcherState.of, watcher)
        outcome = await pool.run(work, state)
        for changes in outcome.reports:
            await anyio.to_thread.run_sync(watcher.notify, changes)
        if outcome.woken:
            watcher.wake()
        value: Value = outcome.value
        return value

    async def reopen(self) -> None:
        """Open the library again with the current settings; calls in progress finish on the old one."""
        fresh = await anyio.to_thread.run_sync(self.library.reopened)
        before, self.library = self.library, fresh
        listeners, old = self.watcher.listeners, self.watcher
        self.watcher = Watcher(fresh)
        self.watcher.listeners = listeners
        await anyio.to_thread.run_sync(old.close)
        self.watcher.start()
        if self._pool:
            self._pool.replace()
        await self._close_if_replaced(before)

    async def _close_if_replaced(self, library: Library) -> None:
        """Close a replaced library after its last call."""
        if library is not self.library and not self._calls[id(library)]:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(library.close)

    @asynccontextmanager
    async def _slot(self, limiter: anyio.CapacityLimiter) -> AsyncIterator[None]:
        """Wait for one of the slots for concurrent calls; raise Overloaded at the time limit."""
        token = object()
        try:
            with anyio.fail_after(self.wait_seconds):
                await limiter.acquire_on_behalf_of(token)
        except TimeoutError:
            raise Overloaded("Too many searches at once", "Try again in a second") from None
        try:
            yield
        finally:
            limiter.release_on_behalf_of(token)


def _wait_for_first_run(library: Library, watcher: Watcher) -> None:
    """Wait a moment while a library is indexed for the first time."""
    if not library.text_ingest.counts().documents:
        watcher.wait_for_text()


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
