"""MCP proxy with failover: passes an assistant's messages to the daemon, or to another server if that ends.

`SessionReplay` records what a new server needs to continue the session. The client of the mcp package does not
replace it: it does not re-send open requests after a reconnect, drops messages it does not know, and takes more than
a second to import.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, BinaryIO, NamedTuple

from marklight.place import locate
from marklight.surfaces.daemon import is_disabled, process_settings
from marklight.surfaces.daemon.client import (
    PROGRAM,
    Connection,
    Unreachable,
    attach,
    set_options,
)

START_SECONDS = 20.0
"""Time limit for a started daemon to answer: on a busy machine, starting a server of our own takes as long."""
CHECK_SECONDS = 5.0
STUCK_SECONDS = 10.0
"""A request may take any time; after this one we check whether the daemon still answers."""
EXIT_SECONDS = 5.0
"""Time limit for the last answers once the assistant has closed its side."""
REPLAY_PREFIX = "marklight:again:"
"""Prefix of the ids of replayed requests; their answers are not passed on."""
MAX_ATTEMPTS = 2
"""Servers that may end during one request; it is not sent to a third."""
INTERNAL_ERROR = -32_603
HANDSHAKE = "initialize"

Message = dict[str, Any]


class SubprocessServer:
    """`marklight mcp` without a daemon, as a child process that ends with this one."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "MARKLIGHT_DAEMON": "off"},
        )
        assert self._process.stdin
        assert self._process.stdout
        self._writer = self._process.stdin
        self.reader: BinaryIO = self._process.stdout  # type: ignore[assignment]

    def send_raw(self, line: bytes) -> None:
        """Send an encoded line."""
        try:
            self._writer.write(line)
            self._writer.flush()
        except (OSError, ValueError) as error:
            raise Unreachable(str(error)) from None

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def finish(self) -> None:
        """Close the sending side."""
        with suppress(OSError):
            self._writer.close()

    def close(self) -> None:
        """End the process."""
        self.finish()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.reader.close()


def make_proxy(
    folder: Path | None, assignments: Sequence[str], notify: Callable[[str], None]
) -> McpProxy | None:
    """Create a proxy to the daemon of a library; None if no daemon runs or can be started."""
    if is_disabled():
        return None
    place = locate(folder)
    if place.part:
        return None  # a daemon serves the whole library

    def connect() -> Connection | None:
        attached = attach(place.folder, assignments, "mcp", notify)
        return attached[0].disable_timeout() if attached else None

    def start() -> Connection | None:
        from marklight.surfaces.daemon import lifecycle

        if not lifecycle.is_autostart(place.folder, assignments):
            return None
        process = lifecycle.start_for_client(place.folder, assignments)
        file = lifecycle.state_file(place.folder, process_settings(assignments))
        return connect() if lifecycle.wait_until_ready(file, process, START_SECONDS) else None

    def next_server() -> Connection | SubprocessServer:
        command = [*PROGRAM, "mcp", "--in", str(place.folder), *set_options(assignments)]
        return connect() or start() or SubprocessServer(command)

    first = connect() or start()
    return McpProxy(first, next_server) if first else None


Server = Connection | SubprocessServer
"""An MCP server: the daemon, or a process for this assistant alone."""


class McpProxy:
    """Passes the lines of one MCP session on, to one server after another."""

    def __init__(self, server: Server, next_server: Callable[[], Server]) -> None:
        self._server, self._next_server = server, next_server
        self._session = SessionReplay()
        self._lock = Lock()
        """Protects the current server and the recorded session."""
        self._ended, self._request_sent = Event(), Event()

    def run(self, stdin: BinaryIO, stdout: BinaryIO) -> int:
        """Pass lines on until the assistant closes its side."""
        answers = Thread(target=self._pass_answers, args=(stdout,), daemon=True)
        answers.start()
        Thread(target=self._close_stuck_server, daemon=True).start()
        for line in stdin:
            if line.strip():
                self._pass_request(line if line.endswith(b"\n") else line + b"\n")
        self._ended.set()
        self._request_sent.set()
        self._server.finish()
        answers.join(EXIT_SECONDS)
        self._server.close()
        return 0

    def _pass_request(self, line: bytes) -> None:
        with self._lock:
            self._session.record_request(line)
            with suppress(Unreachable):  # the reading thread notices it and replays open requests
                self._server.send_raw(line)
            self._request_sent.set()

    def _pass_answers(self, stdout: BinaryIO) -> None:
        while True:
            answered = False
            for line in _lines(self._server.reader):
                answered = True
                with self._lock:
                    self._session.record_answer(line)
                if not is_replayed(line):
                    _write(stdout, line)
            if not self._ended.is_set():
                self._reject_hopeless(stdout)
                if not answered:
                    # Another server would probably end at once as well: wait for the next request.
                    self._request_sent.wait()
            if self._ended.is_set():
                return
            self._fail_over()

    def _reject_hopeless(self, stdout: BinaryIO) -> None:
        """Answer requests that no server could answer with an error."""
        with self._lock:
            for line in self._session.reject_hopeless():
                _write(stdout, line)
            if not self._session.open:
                self._request_sent.clear()

    def _fail_over(self) -> None:
        """Continue the session with another server."""
        with self._lock:
            self._server.close()
            self._server = self._next_server()
            with suppress(Unreachable):  # it ended as well, and is replaced in the same way
                for line in self._session.replay():
                    self._server.send_raw(line)

    def _close_stuck_server(self) -> None:
        """Check the server while a request takes long: a process that hangs breaks no connection."""
        while not self._ended.wait(CHECK_SECONDS):
            with self._lock:
                oldest, server = self._session.oldest, self._server
            if oldest and time.monotonic() - oldest > STUCK_SECONDS and not server.is_alive():
                server.close()


class OpenRequest(NamedTuple):
    """A request without an answer yet."""

    since: float
    line: bytes
    attempts: int = 1


class SessionReplay:
    """Record of an MCP session: handshake, subscriptions and open requests."""

    def __init__(self) -> None:
        self.open: dict[str, OpenRequest] = {}
        self._initialized: bytes | None = None
        """The notification that follows the handshake."""
        self._lasting: dict[str, Message] = {}
        """Requests that stay in effect once they are answered: handshake and subscriptions."""

    def record_request(self, line: bytes) -> None:
        """Record a line from the assistant."""
        for message in messages(line):
            self._record(message, line)

    def record_answer(self, line: bytes) -> None:
        """Record a line from the server."""
        for message in messages(line):
            if "method" not in message:
                self.open.pop(_key(message.get("id")), None)

    def reject_hopeless(self) -> list[bytes]:
        """Close the requests that have failed too often; return error answers for them."""
        failed = [key for key, request in self.open.items() if request.attempts >= MAX_ATTEMPTS]
        for key in failed:
            del self.open[key]
        return [_rejection(json.loads(key)) for key in failed]

    @property
    def oldest(self) -> float | None:
        """Return the time of the oldest open request."""
        return min((request.since for request in self.open.values()), default=None)

    def replay(self) -> list[bytes]:
        """Return the lines with which a new server continues the session; count an attempt of open requests."""
        answered = [
            {**message, "id": f"{REPLAY_PREFIX}{message['id']}"}
            for message in self._lasting.values()
            if "id" in message and _key(message["id"]) not in self.open
        ]
        lines = [as_line(message) for message in answered]
        if self._initialized and answered and answered[0]["method"] == HANDSHAKE:
            lines.insert(1, self._initialized)
        self.open = {
            key: request._replace(attempts=request.attempts + 1)
            for key, request in self.open.items()
        }
        return [*lines, *(request.line for request in self.open.values())]

    def _record(self, message: Message, line: bytes) -> None:
        method, id = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            self.open.pop(_key(params.get("requestId")), None)
        elif method in (HANDSHAKE, "resources/subscribe"):
            self._lasting[f"{method}{params.get('uri', '')}"] = message
        elif method == "resources/unsubscribe":
            self._lasting.pop(f"resources/subscribe{params.get('uri', '')}", None)
        if method is not None and id is not None:
            self.open[_key(id)] = OpenRequest(time.monotonic(), as_line(message))


def messages(line: bytes) -> list[Message]:
    """Parse the messages of a line; invalid JSON has none and is left for the server to reject."""
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return []
    items = parsed if isinstance(parsed, list) else [parsed]
    return [item for item in items if isinstance(item, dict)]


def as_line(message: Message) -> bytes:
    """Encode a message."""
    return json.dumps(message).encode() + b"\n"


def is_replayed(line: bytes) -> bool:
    """Return whether a line answers a replayed request."""
    return REPLAY_PREFIX.encode() in line and any(
        str(message.get("id", "")).startswith(REPLAY_PREFIX) for message in messages(line)
    )


def _rejection(id: Any) -> bytes:
    text = "The server ended while it answered this request. `marklight doctor` may show why"
    return as_line({"jsonrpc": "2.0", "id": id, "error": {"code": INTERNAL_ERROR, "message": text}})


def _key(id: Any) -> str:
    """Return an id as JSON: 1 and "1" are different ids."""
    return json.dumps(id)


def _lines(reader: BinaryIO) -> Iterator[bytes]:
    """Yield complete lines until the stream ends or breaks."""
    while True:
        try:
            line = reader.readline()
        except (OSError, ValueError):
            return
        if not line.endswith(b"\n"):
            return
        yield line


def _write(stdout: BinaryIO, line: bytes) -> None:
    try:
        stdout.write(line)
        stdout.flush()
    except OSError:
        os._exit(0)  # the assistant is gone, and the thread that reads cannot be woken
