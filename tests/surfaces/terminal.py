"""Run a program on a pseudo-terminal and read its output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

_PATIENCE_SECONDS = 60.0
_SIGNS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;;[^\x1b]*\x1b\\")
_OWN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
"""Makes Ctrl-C reach the program as on a real terminal."""
PROGRAM = "from marklight.surfaces.cli import main; main()"


class Terminal:
    """Type lines and wait for output."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        program: str = PROGRAM,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL + program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # There is no terminal that could answer a request for the cursor position.
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, expected: str) -> str:
        """Return the output since the last call up to this text, without escape sequences."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            shown = self.shown()
            at = shown.find(expected, self._seen)
            if at >= 0:
                found = shown[self._seen : at + len(expected)]
                self._seen = at + len(expected)
                return found
            if not self._read(deadline):
                raise AssertionError(f"{expected!r} never came; there was {shown[self._seen :]!r}")

    def shown(self) -> str:
        return _SIGNS.sub("", self.raw).replace("\r\n", "\n")

    def end(self) -> int:
        """Wait for the program to exit and return its exit code."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(timeout=_PATIENCE_SECONDS)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)
