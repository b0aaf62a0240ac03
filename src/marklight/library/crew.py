"""Threads of a library: how many searches work at once, and the one pool that their retrievers share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, TypeVar

from marklight.errors import UsageError
from marklight.once import once, taken

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

THREADS = 4
"""Retrievers that work at once, whatever number of searches asks for them."""
SEARCHES = os.cpu_count() or 1
"""Searches that work at once. More would only take the interpreter from each other: on two cores eight
of them answer 45 questions a second, two of them 80, one 60."""
MANY = 500_000
"""Passages from which on one search has several retrievers at work at once. Below, handing them over costs
more than it saves, since most of what they do holds Python's lock: on two cores 18.4 ms against 16.6 in
turn at 190,000 passages, 11.6 against 10.7 at 19,000."""

Value = TypeVar("Value")


class Crew:
    """Who does the work, until the library is closed."""

    def __init__(self) -> None:
        self._closed = False
        self._places, self._free = BoundedSemaphore(SEARCHES), BoundedSemaphore(1)

    @contextmanager
    def at_work(self) -> Iterator[bool]:
        """A place among the searches at work; whether it is the only one, with the pool for itself."""
        with self._places:
            alone = self._free.acquire(blocking=False)
            try:
                yield alone
            finally:
                if alone:
                    self._free.release()

    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Do several things at once; the caller's own thread does the last one, and what nobody began.

        Nothing is still at work when this returns or raises: what the tasks read may be closed then.
        """
        if len(tasks) < 2:
            return [task() for task in tasks]
        *others, own = tasks
        begun: list[Future[Value]] = []
        try:
            begun.extend(self._submit(task) for task in others)
            last = own()
            # Whoever waits for a task that waits for a thread would wait for ever.
            rest = [
                task() if each.cancel() else each.result()
                for task, each in zip(others, begun, strict=True)
            ]
            return [*rest, last]
        finally:
            from concurrent.futures import wait

            wait([each for each in begun if not each.cancel()])

    def demand_open(self) -> None:
        """An error once the library is closed."""
        if self._closed:
            raise UsageError("this library is closed", "Open it again to ask it")

    def close(self) -> None:
        """Await whoever is at work; nobody begins any more."""
        self._closed = True
        if pool := taken(self, "_pool"):
            pool.shutdown()

    @once
    def _pool(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # brings logging along

        self.demand_open()
        return ThreadPoolExecutor(THREADS, thread_name_prefix="marklight")

    def _submit(self, task: Callable[[], Value]) -> Future[Value]:
        try:
            return self._pool.submit(task)
        except RuntimeError:  # closed by another thread meanwhile
            self.demand_open()
            raise
