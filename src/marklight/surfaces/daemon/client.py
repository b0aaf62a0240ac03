"""Client of the daemon: the IPC connection, and a library whose operations the daemon executes.

The protocol is JSON lines over a loopback connection. The client sends the secret; the daemon answers with the proof.
Then the client sends its settings and calls; each call is answered by heartbeats, progress and one result or error.
For an assistant, the lines of MCP follow instead of calls. Every attached command loads this module, so it imports
neither anyio nor the library.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from marklight import __version__, errors
from marklight.operations import Operations
from marklight.place import Place, complete_commands
from marklight.private_files import lock_file
from marklight.surfaces.daemon import State, process_settings, remove_state, state_files

if TYPE_CHECKING:
    from marklight.library import Library

PROGRAM = (sys.executable, "-P", "-c", "from marklight.surfaces.cli import main; main()")
"""Command line of this program; -P, because a document can have the name of a Python module."""
HANDSHAKE_SECONDS = 5.0
"""Time limit for the first answer: long enough for a busy machine, short for a daemon that hangs."""
SILENCE_SECONDS = 20.0
"""Time limit for any later message; a working daemon sends a heartbeat every second."""
EXIT_SECONDS = 2.0
"""Time for a killed process to release its lock, which may happen after its port is closed."""
MAX_HANDSHAKE_BYTES = 65_536
NOT_USED = "This command works without it"
OVERLOADED = "closes connections at once, probably because it has too many clients"


class Unreachable(Exception):
    """The daemon does not answer, or the connection to it broke."""


class ClosedEarly(Unreachable):
    """The daemon closed the connection before its first message: it is overloaded or about to end."""


class WrongPeer(Exception):
    """Nothing listens on the daemon's port, or another program does."""


class Connection:
    """Client side of an IPC connection (blocking); the handshake is done when it is created."""

    def __init__(self, state: State) -> None:
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
        self.reader: BinaryIO = self._socket.makefile("rb")
        try:
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> None:
        try:
            self._socket.sendall(json.dumps({"secret": self.state.secret}).encode() + b"\n")
            reply = json.loads(self._first_line())
        except TimeoutError:
            raise Unreachable from None
        except OSError:
            raise ClosedEarly from None
        except (ValueError, RecursionError):
            raise WrongPeer from None
        if not isinstance(reply, dict) or reply.get("proof") != self.state.proof:
            raise WrongPeer
        self.is_rejected = bool(reply.get("full"))
        """True if the daemon serves its maximum number of clients."""
        self._socket.settimeout(SILENCE_SECONDS)

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

    def negotiate(self, assignments: Sequence[str], purpose: str) -> dict[str, Any] | None:
        """Send the settings of this process; return the daemon's description of its library, None if it has other settings."""
        self.send({"settings": process_settings(assignments), "purpose": purpose})
        reply = self.receive()
        return None if "mismatch" in reply else reply

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

    def disable_timeout(self) -> Connection:
        """Wait without a time limit from now on."""
        self._socket.settimeout(None)
        return self

    def is_alive(self) -> bool:
        """Return whether the daemon answers a new connection."""
        try:
            Connection(self.state).close()
        except (Unreachable, WrongPeer):
            return False
        return True

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


def attach(
    folder: Path, assignments: Sequence[str], purpose: str, notify: Callable[[str], None]
) -> tuple[Connection, dict[str, Any]] | None:
    """Connect to the daemon of a library; None without one of the same version and settings."""
    for file, state in list(state_files(folder)):
        problem = ""
        try:
            if (connection := connect(file, state)) is None:
                continue
            if connection.is_rejected:
                problem = "already has its maximum number of clients"
            elif state.version != __version__:
                problem = f"runs Marklight {state.version}, not {__version__}"
            elif description := connection.negotiate(assignments, purpose):
                return connection, description
            connection.close()
        except ClosedEarly:
            problem = OVERLOADED
        except Unreachable:
            problem = "does not answer"
        if problem:
            can_be_stopped = problem.startswith(("runs", "does not"))
            ends = "; `marklight serve --stop` ends it" if can_be_stopped else ""
            text = f"The daemon (process {state.pid}) {problem}. {NOT_USED}{ends}"
            notify(complete_commands(text, folder))
    return None


def connect(file: Path, state: State) -> Connection | None:
    """Connect to the daemon of a state file; remove the file and return None if that daemon has ended."""
    try:
        return Connection(state)
    except WrongPeer:
        pass
    except ClosedEarly:
        if _is_running(file, EXIT_SECONDS):
            raise
    except Unreachable:
        if _is_running(file, 0.0):
            raise
    remove_state(file, state)
    return None


def _is_running(file: Path, wait_seconds: float) -> bool:
    """Return true if a daemon holds the lock of this state file; its process ID and port may be reused by others."""
    try:
        lock_file(file.with_suffix(".lock"), wait_seconds).close()
        return False
    except OSError:
        return True


def set_options(assignments: Sequence[str]) -> list[str]:
    """Return assignments of settings as `--set` options."""
    return [argument for item in assignments for argument in ("--set", item)]


class RemoteLibrary(Operations):
    """The operations of a library, executed by its daemon; in this process should the connection break."""

    is_remote: Literal[True] = True

    def __init__(
        self,
        connection: Connection,
        description: Mapping[str, Any],
        place: Place,
        assignments: Sequence[str],
        per_call: Sequence[str],
        notify: Callable[[str], None],
    ) -> None:
        self.state = connection.state
        self.place = place
        self.collections = {
            name: Path(folder) for name, folder in description["collections"].items()
        }
        self.link_address: str = description["link_address"]
        self._connection: Connection | None = connection
        self._assignments, self._per_call = assignments, list(per_call)
        self._notify = notify
        self._local: Library | None = None

    def close(self) -> None:
        """Close the connection, and the local library if one was opened."""
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._local:
            self._local.close()

    def __enter__(self) -> RemoteLibrary:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call an operation of the daemon; in this process should the connection break."""
        if self._connection:
            try:
                return self._call_daemon(self._connection, name, dict(arguments))
            except Unreachable:
                self._connection.close()
                self._connection = None
                self._notify(f"The daemon ended. {NOT_USED}")
        if self._local is None:
            from marklight.library import Library

            folder = self.place.part or self.place.folder
            self._local = Library(folder, assignments=self._assignments)
        return self._local.run(name, arguments)

    def _call_daemon(
        self, connection: Connection, operation: str, arguments: dict[str, Any]
    ) -> Any:
        progress = arguments.pop("progress", None)
        # The daemon has another working directory.
        near = arguments.pop("near", None) or Path.cwd()
        connection.send(
            {
                "operation": operation,
                "arguments": arguments,
                "near": str(near),
                "part": str(self.place.part) if self.place.part else None,
                "assignments": self._per_call,
            }
        )
        while True:
            message = connection.receive()
            if "error" in message:
                raise _error(message["error"])
            if "result" in message:
                return decode(message["result"])
            if "progress" in message and progress:
                progress(*message["progress"])


def _error(fields: Mapping[str, str]) -> Exception:
    """Create the exception that the library in the daemon raised."""
    kind = getattr(errors, fields["type"], None)
    if kind is None:
        # An unexpected error, shown under its own name.
        unexpected: Exception = type(fields["type"], (Exception,), {})(fields["message"])
        return unexpected
    error: Exception = kind(fields["message"], fields["hint"])
    return error


# Encoding of results

LIST_TAG, MAPPING_TAG = "", "{"
"""First item of an encoded list or mapping; of other values it is the name of their type."""
MODULES = ("answer", "query", "model", "report", "results")
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
