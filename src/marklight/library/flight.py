"""One look at the disk for all who ask at once: who comes while one goes on shares the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition
from typing import Generic, TypeVar

Value = TypeVar("Value")
Other = TypeVar("Other")


class Flight(Generic[Value]):
    """What one thread does at a time; what it found serves all who asked before it began."""

    def __init__(self) -> None:
        self._turn = Condition()
        self._busy = False
        self._begun = self._done = 0
        self._last: Value | None = None
        self.waiting = 0
        """How many wait for their turn or for what another finds."""

    def share(self, act: Callable[[], Value], patience_seconds: float) -> Value | None:
        """What this or another thread finds from now on; None when that takes too long."""
        until = time.monotonic() + patience_seconds
        with self._turn:
            wanted = self._begun + 1  # the one that goes on may have passed what is asked for
            self.waiting += 1
            try:
                if not self._turn.wait_for(lambda: not self._busy, until - time.monotonic()):
                    return None
            finally:
                self.waiting -= 1
            if self._done >= wanted:
                return self._last
            self._busy = True
            self._begun = begun = self._begun + 1
        try:
            found = act()
            with self._turn:
                self._last, self._done = found, begun
            return found
        finally:
            self._land()

    def alone(self, act: Callable[[], Other]) -> Other:
        """Something else, while nobody looks."""
        with self._turn:
            self._turn.wait_for(lambda: not self._busy)
            self._busy = True
        try:
            return act()
        finally:
            self._land()

    def _land(self) -> None:
        with self._turn:
            self._busy = False
            self._turn.notify_all()
