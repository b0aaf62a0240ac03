"""Who may serve an assistant: the daemon, or a process that serves it alone."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import BinaryIO, Protocol

from marklight.surfaces.daemon.attach import Gone, Line, Stranger

LAST_SECONDS = 5.0
"""For the last answers, once the assistant has closed its side."""


class Peer(Protocol):
    """Whoever serves: the daemon, or a process that serves this assistant alone."""

    reading: BinaryIO

    def send_raw(self, line: bytes) -> None: ...
    def lives(self) -> bool: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


class Attached:
    """The daemon, through its door."""

    def __init__(self, line: Line) -> None:
        line.wait_for_ever()
        self._line = line
        self.reading: BinaryIO = line.reading
        self.send_raw, self.finish, self.close = line.send_raw, line.finish, line.close

    def lives(self) -> bool:
        """Whether it answers at all."""
        try:
            Line(self._line.state, "control").close()
        except (Gone, Stranger):
            return False
        return True


class Alone:
    """`marklight mcp` once more, without a daemon: with us it ends."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "MARKLIGHT_DAEMON": "off"},
        )
        assert self._process.stdin
        assert self._process.stdout
        self._writing = self._process.stdin
        self.reading: BinaryIO = self._process.stdout  # type: ignore[assignment]

    def send_raw(self, line: bytes) -> None:
        """A line with its end."""
        try:
            self._writing.write(line)
            self._writing.flush()
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from None

    def lives(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def finish(self) -> None:
        """Nothing more will come."""
        with suppress(OSError):
            self._writing.close()

    def close(self) -> None:
        """End it."""
        self.finish()
        try:
            self._process.wait(LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.reading.close()
