"""How a command finds the daemon of its library and speaks to it; with as little loaded as can be."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from marklight import __version__
from marklight.surfaces.daemon.state import State, forget, own_settings, states

PROGRAM = (sys.executable, "-P", "-c", "from marklight.surfaces.cli import main; main()")
"""Ourselves, from wherever this package was loaded; -P, for a document may be called as a module of Python's."""
GREET_SECONDS = 5.0
"""For a daemon to answer at all: one that is stopped or stuck is not waited for, one on a busy machine is."""
SILENT_SECONDS = 20.0
"""Once it has answered; while it works it says every second that it lives."""
ENDING_SECONDS = 2.0
"""For a process that was killed to let go of its lock, which it may do after its port."""
LONGEST_GREETING = 65_536
ALONE = "this works alone; `marklight stop` ends it"
CROWDED = "hangs up at once and may have too many clients"
"""Said of one that lives; itself it says nothing before it knows who asks."""


class Gone(Exception):
    """The daemon does not answer, or no longer."""


class HungUp(Gone):
    """The daemon ended the conversation before it said anything: it has no room even for that, or it ends."""


class Stranger(Exception):
    """Nobody listens where a daemon was, or somebody else does."""


class Full(Exception):
    """The daemon lives, and has as many clients as it takes."""


class Elsewhere(Exception):
    """The daemon lives, and would answer by other settings than ours."""


class Line:
    """A connection to a daemon's door: JSON, a line each."""

    def __init__(self, state: State, wants: str) -> None:
        self.state = state
        # Not `create_connection`, which loads what international names are written with.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.settimeout(GREET_SECONDS)
        try:
            self._socket.connect(("127.0.0.1", state.port))
        except OSError as error:
            self._socket.close()
            raise (Gone if isinstance(error, TimeoutError) else Stranger) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reading = self._socket.makefile("rb")
        try:
            self.send({"secret": state.secret, "version": __version__, "wants": wants})
            told = json.loads(self._greeting())
            if not isinstance(told, dict) or told.get("proof") != state.proof:
                raise Stranger
            if told.get("full") and wants != "control":
                raise Full
            self._socket.settimeout(SILENT_SECONDS)
        except TimeoutError:
            self.close()
            raise Gone from None
        except (OSError, Gone):
            self.close()
            raise HungUp from None
        except (ValueError, RecursionError, Stranger):
            self.close()
            raise Stranger from None
        except Full:
            self.close()
            raise

    def _greeting(self) -> bytes:
        """The first line; whoever sends it sign by sign has no more time than others."""
        until, line = time.monotonic() + GREET_SECONDS, b""
        while not line.endswith(b"\n"):
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            more = self._socket.recv(LONGEST_GREETING)
            line += more
            if not more:
                raise HungUp
            if len(line) > LONGEST_GREETING:
                raise Stranger
        return line

    def settle(self, assignments: Sequence[str]) -> dict[str, Any]:
        """Tell by which settings we want to be answered; what the daemon says of its library."""
        self.send({"settings": own_settings(assignments)})
        told = self.receive()
        if "refused" in told:
            self.close()
            raise Elsewhere(told["refused"])
        return told

    def send(self, message: Any) -> None:
        """One line to the daemon."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def send_raw(self, line: bytes) -> None:
        """A line that is one already."""
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise Gone(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """One line from the daemon."""
        try:
            told: dict[str, Any] = json.loads(self.reading.readline())
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from None
        return told

    def wait_for_ever(self) -> None:
        """From now on silence means nothing."""
        self._socket.settimeout(None)

    def finish(self) -> None:
        """Nothing more will come; what is still said is heard."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.reading.close()
        self._socket.close()


def attach(
    folder: Path, assignments: Sequence[str], wants: str, say: Callable[[str], None]
) -> tuple[Line, dict[str, Any]] | None:
    """A line to the daemon of a library, if one runs that would answer as we would ourselves."""
    for file, state in list(states(folder)):
        try:
            if (line := greet(file, state, wants)) is None:
                continue
            if state.version == __version__:
                return line, line.settle(assignments)
            say(f"the daemon is Marklight {state.version} and this {__version__}: {ALONE}")
            line.close()
        except HungUp:
            say(f"the daemon, process {state.pid}, {CROWDED}: this works alone")
        except Gone:
            say(f"the daemon, process {state.pid}, does not answer: {ALONE}")
        except Full:
            say(
                f"the daemon, process {state.pid}, has as many clients as it takes: this works alone"
            )
        except Elsewhere:
            pass
    return None


def as_arguments(assignments: Sequence[str]) -> list[str]:
    """Settings for one call, as the command line takes them."""
    return [word for one in assignments for word in ("--set", one)]


def is_off() -> bool:
    """Whether the user wants every process to work alone."""
    return os.environ.get("MARKLIGHT_DAEMON") == "off"


def greet(file: Path, state: State, wants: str) -> Line | None:
    """A line to this daemon; a file that tells of one that is gone is removed."""
    try:
        return Line(state, wants)
    except Stranger:
        pass
    except HungUp:
        if lives(file, ENDING_SECONDS):
            raise
    except Gone:
        if lives(file, 0.0):
            raise
    forget(file, state)
    return None


def lives(file: Path, wait_seconds: float) -> bool:
    """Whether a daemon holds the lock of this file, as each does until it ends, however it does.

    The number of its process may be another's by now, and so may its port.
    """
    from filelock import FileLock, Timeout  # loads much, and nobody asks who is answered

    try:
        with FileLock(file.with_suffix(".lock"), timeout=wait_seconds, mode=0o600):
            return False
    except (Timeout, OSError):
        return True
