"""Concurrency of one library: a bounded thread pool, single-flight for scans of the disk, and a retry for lost connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import BoundedSemaphore, Condition
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from marklight.errors import ConnectionLost, UsageError
from marklight.once import once, pop_cached

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

POOL_THREADS = 4
"""Threads of the pool that the retrievers of all searches share."""
MAX_SEARCHES = os.cpu_count() or 1
"""Searches that run at once; others wait. More would compete for the interpreter lock: on two cores eight of
them answer 45 queries a second, two of them 80, one 60."""
PARALLEL_PASSAGES = 500_000
"""Size of an index from which the retrievers of one search run in parallel. Below, the hand-over costs more than
it saves, since most of their work holds the interpreter lock: on two cores 18.4 ms against 16.6 one after the
other at 190,000 passages, 11.6 against 10.7 at 19,000."""

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")
Other = TypeVar("Other")


def repeat_if_lost(operation: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Repeat an operation that only reads, once, if the connection to a server ended during it."""

    @wraps(operation)
    def repeated(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        try:
            return operation(*args, **kwargs)
        except ConnectionLost:
            return operation(*args, **kwargs)

    return repeated


class SearchThreadPool:
    """Bounds the number of concurrent searches and runs their tasks in a shared thread pool."""

    def __init__(self) -> None:
        self._closed = False
        self._slots, self._pool_user = BoundedSemaphore(MAX_SEARCHES), BoundedSemaphore(1)

    @contextmanager
    def search_slot(self) -> Iterator[bool]:
        """Wait for a search slot and hold it; yield true if no other search uses the pool."""
        with self._slots:
            alone = self._pool_user.acquire(blocking=False)
            try:
                yield alone
            finally:
                if alone:
                    self._pool_user.release()

    def run_parallel(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Run tasks in parallel and return their results in order.

        The calling thread runs the last task, and those that no thread has started by then. No task is
        still running when this returns or raises: what the tasks read may be closed then.
        """
        if len(tasks) < 2:
            return [task() for task in tasks]
        *others, own = tasks
        futures: list[Future[Value]] = []
        try:
            futures.extend(self._submit(task) for task in others)
            last = own()
            # Waiting for a task that itself waits for a thread would be a deadlock.
            results = [
                task() if future.cancel() else future.result()
                for task, future in zip(others, futures, strict=True)
            ]
            return [*results, last]
        finally:
            from concurrent.futures import wait

            wait([future for future in futures if not future.cancel()])

    def check_open(self) -> None:
        """Raise `UsageError` if the library is closed."""
        if self._closed:
            raise UsageError("This library is closed", "Open it again")

    def close(self) -> None:
        """Wait for running tasks; no task starts any more."""
        self._closed = True
        if pool := pop_cached(self, "_pool"):
            pool.shutdown()

    @once
    def _pool(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # imports logging

        self.check_open()
        return ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="marklight")

    def _submit(self, task: Callable[[], Value]) -> Future[Value]:
        try:
            return self._pool.submit(task)
        except RuntimeError:  # another thread closed the library
            self.check_open()
            raise


class SingleFlight(Generic[Value]):
    """Single-flight: concurrent callers share one run of a function, the first that begins after their call."""

    def __init__(self) -> None:
        self._idle = Condition()
        self._running = False
        self._started = self._finished = 0
        self._result: Value | None = None
        self.waiting = 0
        """Number of callers that wait for their turn or for the result of another."""

    def run(self, function: Callable[[], Value], timeout_seconds: float) -> Value | None:
        """Return the result of a run that begins from now on, in this or another thread; None on a timeout."""
        until = time.monotonic() + timeout_seconds
        with self._idle:
            wanted = self._started + 1  # the current run may be past what the caller needs
            self.waiting += 1
            try:
                if not self._idle.wait_for(lambda: not self._running, until - time.monotonic()):
                    return None
            finally:
                self.waiting -= 1
            if self._finished >= wanted:
                return self._result
            self._running = True
            self._started = number = self._started + 1
        try:
            result = function()
            with self._idle:
                self._result, self._finished = result, number
            return result
        finally:
            self._release()

    def exclusive(self, function: Callable[[], Other]) -> Other:
        """Run another function while no shared run is active; its result is not shared."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running)
            self._running = True
        try:
            return function()
        finally:
            self._release()

    def _release(self) -> None:
        with self._idle:
            self._running = False
            self._idle.notify_all()
