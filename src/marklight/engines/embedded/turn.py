"""The one writer's place: a lock that the system itself gives back when a process dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from marklight.engines.embedded.trouble import explain
from marklight.errors import Busy

if TYPE_CHECKING:
    from filelock import BaseFileLock


class Turn:
    """Held by one thread of one process; the holder may take it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = RLock()
        self._file: BaseFileLock | None = None
        self._depth = 0

    @property
    def held(self) -> bool:
        """Whether this thread is the writer."""
        if not self._thread.acquire(blocking=False):
            return False
        try:
            return self._depth > 0
        finally:
            self._thread.release()

    @contextmanager
    def hold(self, wait_seconds: float) -> Iterator[bool]:
        """Wait for the place that long; yields whether this is the outermost hold."""
        until = time.monotonic() + max(0.0, wait_seconds)
        if not self._thread.acquire(timeout=max(0.0, wait_seconds)):
            raise self._busy(wait_seconds)
        try:
            outermost = self._depth == 0
            if outermost:
                self._lock(until, wait_seconds)
            self._depth += 1
            try:
                yield outermost
            finally:
                self._depth -= 1
                if outermost and self._file:
                    self._file.release()
        finally:
            self._thread.release()

    def _lock(self, until: float, wait_seconds: float) -> None:
        # Loaded only by a process that writes: it costs as much as a whole run over nothing new.
        from filelock import FileLock, Timeout

        if self._file is None:
            self._file = FileLock(self.path, thread_local=False)
        try:
            self._file.acquire(timeout=max(0.0, until - time.monotonic()), poll_interval=0.02)
        except Timeout:
            raise self._busy(wait_seconds) from None
        except (OSError, NotImplementedError) as error:
            raise explain(error, self.path) from error

    def _busy(self, wait_seconds: float) -> Busy:
        return Busy(
            f"Another process is writing to {self.path.parent} (waited {wait_seconds:g} s)",
            "Wait until it has finished, or search what is indexed with --no-refresh",
        )
