"""Follow the disk as long as a process serves: index at once, then whatever changes, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from marklight.errors import MarklightError, Stopped
from marklight.report import Report

if TYPE_CHECKING:
    from marklight.library import Library


@dataclass(frozen=True, slots=True)
class At:
    """How far a run is."""

    phase: str
    done: int
    total: int

    @property
    def percent(self) -> int:
        """Of this phase, rounded down: 100 is done."""
        return 100 * self.done // self.total if self.total else 0

    def __str__(self) -> str:
        return f"indexing, {self.percent} % ({self.phase.lower()}, {self.done} of {self.total})"


class Following:
    """One library's files, followed by one thread."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.at: At | None = None
        """How far the run is that goes on now; None when nothing is to do."""
        self.problem = ""
        """Why the last run failed, or why the system does not tell what changes; empty if all is well."""
        self.watching = False
        """Whether the system tells us what changes; else the disk is looked at now and then."""
        self.heard: list[Callable[[Report], None]] = []
        """Called after every run that changed something, in this thread."""
        self._over = Event()
        self._thread = Thread(target=self._run, name="marklight-following", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop; what was indexed so far is kept."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def to_dict(self) -> dict[str, Any]:
        """For `status`."""
        at = self.at
        return {
            "indexing": {"phase": at.phase, "done": at.done, "total": at.total} if at else None,
            "watching": self.watching,
            "problem": self.problem,
        }

    def _run(self) -> None:
        try:
            report = self.library.index(progress=self._tell)
            for each in self.heard:
                each(report)
        except Stopped:
            pass
        except MarklightError as error:
            self.problem = str(error)
        finally:
            self.at = None

    def _tell(self, phase: str, done: int, total: int) -> None:
        if self._over.is_set():
            raise Stopped("the process ends")
        self.at = At(phase, done, total)
