"""The one writer's place: a lock that the system itself gives back when a process dies."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from marklight.engines.embedded.sqlite_errors import explain
from marklight.errors import Busy
from marklight.private_files import create_private, is_plain_file, remove


class WriterLock:
    """Held by one thread of one process; the holder may take it again.

    An empty SQLite file is locked: filelock does the same, but loading it takes 50 ms, five times
    as long as a whole run over a library in which nothing changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = RLock()
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
            lock = self._lock(until, wait_seconds) if self._depth == 0 else None
            self._depth += 1
            try:
                yield lock is not None
            finally:
                self._depth -= 1
                if lock:
                    lock.close()
        finally:
            self._thread.release()

    def _lock(self, until: float, wait_seconds: float) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            self._make_file()
            left = max(0.0, until - time.monotonic())
            connection = sqlite3.connect(
                self.path, timeout=left, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = MEMORY")  # no file beside the lock
            connection.execute("BEGIN EXCLUSIVE")
            return connection
        except OSError as error:
            raise explain(error, self.path) from error
        except sqlite3.Error as error:
            if connection:
                connection.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise self._busy(wait_seconds) from None
            raise explain(error, self.path) from error

    def _make_file(self) -> None:
        """Create the file that is locked; one that is not as we make it, plain and empty, is replaced."""
        with suppress(FileExistsError):
            os.close(create_private(self.path))
        if not is_plain_file(self.path) or os.lstat(self.path).st_size:
            remove(self.path)
            with suppress(FileExistsError):
                os.close(create_private(self.path))
        remove(self.path.with_name(f"{self.path.name}-journal"))

    def _busy(self, wait_seconds: float) -> Busy:
        return Busy(
            f"Another process is writing to {self.path.parent} (waited {wait_seconds:g} s)",
            "Wait until it has finished, or search what is indexed with --no-refresh",
        )
