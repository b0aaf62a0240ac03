"""IPC protocol of the daemon: JSON lines over a loopback connection, and the encoding of values.

The client sends the secret and its purpose; the daemon answers with the proof. Then the client sends its settings
and calls; each call is answered by heartbeats, progress and one result or error. Every attached command loads this
module, so it imports neither anyio nor the library.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any

from marklight import __version__
from marklight.surfaces.daemon.discovery import State, process_settings

HANDSHAKE_SECONDS = 5.0
"""Time limit for the first answer: long enough for a busy machine, short for a daemon that hangs."""
SILENCE_SECONDS = 20.0
"""Time limit for any later message; a working daemon sends a heartbeat every second."""
MAX_HANDSHAKE_BYTES = 65_536


class Unreachable(Exception):
    """The daemon does not answer, or the connection to it broke."""


class ClosedEarly(Unreachable):
    """The daemon closed the connection before its first message: it is overloaded or about to end."""


class WrongPeer(Exception):
    """Nothing listens on the daemon's port, or another program does."""


class DaemonFull(Exception):
    """The daemon serves its maximum number of clients."""


class SettingsMismatch(Exception):
    """The daemon uses other settings than this process."""


class Connection:
    """Client side of an IPC connection (blocking); the handshake is done when it is created."""

    def __init__(self, state: State, purpose: str) -> None:
        self.state = state
        # socket.create_connection would import the codec of international domain names.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.settimeout(HANDSHAKE_SECONDS)
        try:
            self._socket.connect(("127.0.0.1", state.port))
        except OSError as error:
            self._socket.close()
            raise (Unreachable if isinstance(error, TimeoutError) else WrongPeer) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self._socket.makefile("rb")
        try:
            self.send({"secret": state.secret, "version": __version__, "purpose": purpose})
            reply = json.loads(self._first_line())
            if not isinstance(reply, dict) or reply.get("proof") != state.proof:
                raise WrongPeer
            if reply.get("full") and purpose != "control":
                raise DaemonFull
            self._socket.settimeout(SILENCE_SECONDS)
        except TimeoutError:
            self.close()
            raise Unreachable from None
        except (OSError, Unreachable):
            self.close()
            raise ClosedEarly from None
        except (ValueError, RecursionError, WrongPeer):
            self.close()
            raise WrongPeer from None
        except DaemonFull:
            self.close()
            raise

    def _first_line(self) -> bytes:
        """Read the first line; the time limit holds for the whole line, not for each byte."""
        deadline, line = time.monotonic() + HANDSHAKE_SECONDS, b""
        while not line.endswith(b"\n"):
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            received = self._socket.recv(MAX_HANDSHAKE_BYTES)
            line += received
            if not received:
                raise ClosedEarly
            if len(line) > MAX_HANDSHAKE_BYTES:
                raise WrongPeer
        return line

    def negotiate(self, assignments: Sequence[str]) -> dict[str, Any]:
        """Send the settings of this process; return the daemon's description of its library."""
        self.send({"settings": process_settings(assignments)})
        reply = self.receive()
        if "mismatch" in reply:
            self.close()
            raise SettingsMismatch(reply["mismatch"])
        return reply

    def send(self, message: Any) -> None:
        """Send one message."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def send_raw(self, line: bytes) -> None:
        """Send an encoded line."""
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise Unreachable(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        try:
            message: dict[str, Any] = json.loads(self.reader.readline())
        except (OSError, ValueError) as error:
            raise Unreachable(str(error)) from None
        return message

    def disable_timeout(self) -> None:
        """Wait without a time limit from now on."""
        self._socket.settimeout(None)

    def finish(self) -> None:
        """Close the sending side; the last answers can still be read."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.reader.close()
        self._socket.close()


LIST_TAG, MAPPING_TAG = "", "{"
"""First item of an encoded list or mapping; of other values it is the name of their type."""
MODULES = ("answer", "query", "model", "report", "commits", "batch", "listing")
"""Modules with the types that can be decoded, imported on demand; a search needs the first three."""


def encode(value: Any) -> Any:
    """Encode a result as JSON values: each list begins with its type, floats keep all digits."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum):
        return [type(value).__name__, value.value]
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        flat = (encode(item) for pair in value.items() for item in pair)
        return [MAPPING_TAG, *flat]
    if isinstance(value, (list, tuple)):
        # A named tuple is tagged with its type, like a dataclass.
        tag = type(value).__name__ if hasattr(value, "_fields") else LIST_TAG
        return [tag, *map(encode, value)]
    fields = (getattr(value, name) for name in value.__dataclass_fields__)
    return [type(value).__name__, *map(encode, fields)]


def decode(encoded: Any) -> Any:
    """Decode a result; only types defined in MODULES are ever created."""
    if not isinstance(encoded, list):
        return encoded
    tag, *items = encoded
    values = [decode(item) for item in items]
    if tag == LIST_TAG:
        return tuple(values)
    if tag == MAPPING_TAG:
        return dict(zip(values[::2], values[1::2], strict=True))
    return _result_type(tag)(*values)


@cache
def _result_type(name: str) -> Any:
    for module_name in MODULES:
        module = import_module(f"marklight.{module_name}")
        value = vars(module).get(name)
        if isinstance(value, type) and value.__module__ == module.__name__:
            return value
    raise ValueError(f"Not a result type: {name!r}")
