"""Progress of an indexing run: share done, time left, and a file by which other processes see it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from marklight.lazy import dataclass
from marklight.platforms import is_running
from marklight.ports import Progress
from marklight.private_files import read_private, write_private

FILE = "progress.json"
"""In the folder of an index, while a process indexes."""
INTERVAL_SECONDS = 1.0
"""Time between two writes of the file."""
STALE_SECONDS = 120.0
"""Age from which the file counts as left behind by a process that was killed."""


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """The progress of an indexing run."""

    phase: str
    done: int
    total: int
    seconds_left: float | None = None
    """Estimated time until the phase is over; None if nothing is done yet."""

    @property
    def percent(self) -> int:
        """Return the share of this phase that is done, rounded down."""
        return 100 * self.done // self.total if self.total else 0

    def __str__(self) -> str:
        if not self.total:
            return f"indexing ({self.phase.lower()})"
        return f"indexing, {self.percent} % ({self.phase.lower()}, {self.done} of {self.total})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return asdict(self)


class ProgressMeter:
    """Estimates the time left from the rate since a phase began."""

    def __init__(self) -> None:
        self._phase, self._began_at, self._began_with = "", 0.0, 0

    def __call__(self, phase: str, done: int, total: int) -> IndexingProgress:
        """Return the progress with the estimated time left."""
        now = time.monotonic()
        if phase != self._phase or done < self._began_with:
            self._phase, self._began_at, self._began_with = phase, now, done
        finished = done - self._began_with
        left = (now - self._began_at) / finished * (total - done) if finished > 0 else None
        return IndexingProgress(phase, done, total, left if left is None else round(left, 1))


@contextmanager
def published(folder: Path | None, progress: Progress) -> Iterator[Progress]:
    """Write the progress of this process into the folder of an index too, until the run is over."""
    if folder is None:
        yield progress
        return
    meter, written_at = ProgressMeter(), 0.0

    def publish(phase: str, done: int, total: int) -> None:
        nonlocal written_at
        current = meter(phase, done, total)
        now = time.monotonic()
        if now - written_at >= INTERVAL_SECONDS:
            written_at = now
            with suppress(OSError):
                values = {**current.to_dict(), "pid": os.getpid()}
                write_private(folder / FILE, json.dumps(values).encode())
        progress(phase, done, total)

    try:
        yield publish
    finally:
        with suppress(OSError):
            (folder / FILE).unlink()


def published_progress(folder: Path | None) -> IndexingProgress | None:
    """Return the progress of the process that indexes into a folder; None if there is none."""
    if folder is None:
        return None
    try:
        if time.time() - (folder / FILE).stat().st_mtime > STALE_SECONDS:
            return None
        values = json.loads(read_private(folder / FILE))
        if not is_running(int(values.pop("pid"))):
            return None
        return IndexingProgress(
            str(values["phase"]), int(values["done"]), int(values["total"]), values["seconds_left"]
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
