"""A progress bar on standard error, so that standard output holds results only."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType

from marklight.escaping import one_line

_REDRAW_SECONDS = 0.1
_WIDTH = 28


class Bar:
    """Show phase, share and time to go on a terminal; elsewhere print one line for each phase.

    The folder of the library is named first, once.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._terminal = sys.stderr.isatty()
        self._phase = ""
        self._drawn_at = 0.0
        self._began_at = 0.0
        self._began_with = 0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._finish()
            if self._folder:
                print(one_line(f"Indexing {self._folder} …"), file=sys.stderr, flush=True)
                self._folder = None
            self._phase, self._began_at, self._began_with, self._drawn_at = phase, now, done, 0.0
            if not self._terminal:
                print(f"{phase} …", file=sys.stderr, flush=True)
        if self._terminal and (now - self._drawn_at >= _REDRAW_SECONDS or done >= total):
            self._drawn_at = now
            self._draw(done, total, now)

    def _draw(self, done: int, total: int, now: float) -> None:
        share = done / total if total else 1.0
        filled = round(share * _WIDTH)
        bar = "━" * filled + "─" * (_WIDTH - filled)
        line = f"{self._phase} {bar} {done}/{total}{self._left(done, total, now)}"
        from shutil import get_terminal_size  # loads archives, which `--help` has no use for

        width = get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{line[:width]}")
        sys.stderr.flush()

    def _left(self, done: int, total: int, now: float) -> str:
        fresh = done - self._began_with
        if fresh <= 0 or done >= total:
            return ""
        seconds = (now - self._began_at) / fresh * (total - done)
        return f", {seconds / 60:.0f} min to go" if seconds > 90 else f", {seconds:.0f} s to go"

    def _finish(self) -> None:
        if self._terminal and self._phase:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._phase = ""

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._finish()
