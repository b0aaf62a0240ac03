"""Concurrency: a thread-safe cached property, single-flight calls, a limit of searches, a retry for lost connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Condition, RLock
from typing import Any, Generic, ParamSpec, TypeVar, overload

from marklight.errors import ConnectionLost

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 - used as a decorator, like `property`
    """A cached property; `functools.cached_property` since Python 3.12 lets two threads compute it twice.

    The value is stored in the instance, so reading it again takes no lock. All properties of an instance share one
    re-entrant lock, since they may depend on each other.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> once[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> once[Value] | Value:
        if instance is None:
            return self
        values = instance.__dict__
        with values.setdefault(_LOCK, RLock()):
            if self._name not in values:
                values[self._name] = self._compute(instance)
            value: Value = values[self._name]
            return value


def pop_cached(instance: object, name: str) -> Any:
    """Remove a cached value from its instance and return it, after waiting for its computation; None if there is none."""
    values = instance.__dict__
    with values.setdefault(_LOCK, RLock()):
        return values.pop(name, None)


_LOCK = "_once"


MAX_SEARCHES = os.cpu_count() or 1
"""Searches that run at once; others wait. More would compete for the interpreter lock: on two cores eight of
them answer 45 queries a second, two of them 80, one 60."""

Arguments = ParamSpec("Arguments")


def repeat_if_lost(operation: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Repeat an operation that only reads, once, if the connection to a server ended during it."""

    @wraps(operation)
    def repeated(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        try:
            return operation(*args, **kwargs)
        except ConnectionLost:
            return operation(*args, **kwargs)

    return repeated


class SingleFlight(Generic[Value]):
    """Single flight: concurrent callers share one run of a function, the first that begins after their call."""

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

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until no shared run is active; none starts in this context."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running)
            self._running = True
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        with self._idle:
            self._running = False
            self._idle.notify_all()
