"""An assistant's lines to the daemon and back; should the daemon go, to a server of our own, unnoticed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, BinaryIO, NamedTuple, Protocol

from marklight.place import locate
from marklight.surfaces.daemon.attach import (
    PROGRAM,
    Gone,
    Line,
    Stranger,
    as_arguments,
    attach,
    is_off,
)
from marklight.surfaces.daemon.state import own_settings

OWN = "marklight:again:"
"""Before the ids of what we ask a second time ourselves: whoever answers them answers us."""
LAST_SECONDS = 5.0
"""For the last answers, once the assistant has closed its side."""
START_SECONDS = 10.0
"""For a daemon that we start to answer; an assistant waits for a handshake several times as long."""
WATCH_SECONDS = 5.0
STUCK_SECONDS = 10.0
"""A request may take as long as it likes; after so long we ask whether the daemon still lives."""
MOST_SENT = 2
"""Servers that may end over one request; it is not put to a third."""
INTERNAL_ERROR = -32_603


def tunnel(
    folder: Path | None, assignments: Sequence[str], say: Callable[[str], None]
) -> Tunnel | None:
    """A way to the daemon of a library; None where none runs that would do as we would."""
    if is_off():
        return None
    place = locate(folder)
    if place.part:
        return None  # a daemon serves an assistant all of its library

    def reach() -> Daemon | None:
        found = attach(place.folder, assignments, "mcp", say)
        return Daemon(found[0]) if found else None

    def start() -> Daemon | None:
        from marklight.surfaces.daemon import starting

        if not starting.is_wanted(place.folder, assignments):
            return None
        process = starting.start_for_client(place.folder, assignments)
        file = starting.file_for(place.folder, own_settings(assignments))
        return reach() if starting.wait_for(file, process, START_SECONDS) else None

    def another() -> Peer:
        alone = [*PROGRAM, "mcp", "--in", str(place.folder), *as_arguments(assignments)]
        return reach() or start() or Alone(alone)

    first = reach() or start()
    return Tunnel(first, another) if first else None


class Peer(Protocol):
    """Whoever serves: the daemon, or a process that serves this assistant alone."""

    reading: BinaryIO

    def send_raw(self, line: bytes) -> None: ...
    def lives(self) -> bool: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


class Daemon:
    """The daemon's door."""

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


class Asked(NamedTuple):
    """A request that nobody has answered yet."""

    since: float
    line: bytes
    sent: int = 1


class Tunnel:
    """One assistant's session, and what of it another server must hear to go on with it."""

    def __init__(self, peer: Peer, another: Callable[[], Peer]) -> None:
        self._peer, self._another = peer, another
        self._lock = Lock()
        self._over, self._spoken = Event(), Event()
        self._begin: dict[str, Any] | None = None
        """The handshake, where there was one."""
        self._begun: bytes | None = None
        self._standing: dict[str, dict[str, Any]] = {}
        """What still counts after it was answered: subscriptions, how much is logged."""
        self._open: dict[str, Asked] = {}

    def run(self, coming: BinaryIO, going: BinaryIO) -> int:
        """Carry lines until the assistant closes its side."""
        back = Thread(target=self._carry_back, args=(going,), daemon=True)
        back.start()
        Thread(target=self._watch, daemon=True).start()
        for line in coming:
            if line.strip():
                self._carry(line if line.endswith(b"\n") else line + b"\n")
        self._over.set()
        self._spoken.set()
        self._peer.finish()
        back.join(LAST_SECONDS)
        self._peer.close()
        return 0

    # There

    def _carry(self, line: bytes) -> None:
        with self._lock:
            for message in _messages(line):
                self._note(message, line)
            with suppress(Gone):  # who carries back notices it, and sends what is open again
                self._peer.send_raw(line)
            self._spoken.set()

    def _note(self, message: dict[str, Any], line: bytes) -> None:
        method, id = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if method == "initialize":
            self._begin = message
        elif method == "notifications/initialized":
            self._begun = line
        elif method == "notifications/cancelled":
            self._open.pop(_key(params.get("requestId")), None)
        elif method in ("resources/subscribe", "logging/setLevel"):
            self._standing[f"{method}{params.get('uri', '')}"] = message
        elif method == "resources/unsubscribe":
            self._standing.pop(f"resources/subscribe{params.get('uri', '')}", None)
        if method is not None and id is not None:
            self._open[_key(id)] = Asked(time.monotonic(), json.dumps(message).encode() + b"\n")

    # Back

    def _carry_back(self, going: BinaryIO) -> None:
        able = True
        while True:
            for line in _lines(self._peer.reading):
                able = True
                with self._lock:
                    for message in _messages(line):
                        if "method" not in message:
                            self._open.pop(_key(message.get("id")), None)
                if not (OWN.encode() in line and _is_own(line)):
                    _put(going, line)
            if not self._over.is_set():
                self._give_up(going)
                if not able:
                    # One that ends before its first word would be followed by another such at once.
                    self._spoken.wait()
            if self._over.is_set():
                return
            able = self._go_on()

    def _give_up(self, going: BinaryIO) -> None:
        """Answer what nobody can, or what ends whoever tries."""
        with self._lock:
            for key, asked in list(self._open.items()):
                if asked.sent >= MOST_SENT:
                    del self._open[key]
                    _put(going, _refusal(json.loads(key)))
            if not self._open:
                self._spoken.clear()

    def _go_on(self) -> bool:
        """With another server, from where the last one left: it hears all that still matters.

        Whether it is able to serve, as far as it has been asked anything.
        """
        able = False
        with self._lock:
            self._peer.close()
            self._peer = self._another()
            for key, asked in self._open.items():
                self._open[key] = asked._replace(sent=asked.sent + 1)
            with suppress(Gone):  # it is gone as well, and is noticed as the first was
                answered = self._begin and _key(self._begin.get("id")) not in self._open
                if self._begin and answered:
                    able = self._say_again(self._begin, wait=True)
                    if self._begun:
                        self._peer.send_raw(self._begun)
                for message in self._standing.values():
                    if _key(message.get("id")) not in self._open:
                        self._say_again(message)
                for asked in self._open.values():
                    self._peer.send_raw(asked.line)
        return able

    def _say_again(self, message: dict[str, Any], *, wait: bool = False) -> bool:
        """What was answered before; the answer is for us. Whether there was one, where we wait for it."""
        id = f"{OWN}{message['id']}"
        self._peer.send_raw(json.dumps({**message, "id": id}).encode() + b"\n")
        if wait:
            for line in _lines(self._peer.reading):
                if any(each.get("id") == id for each in _messages(line)):
                    return True
        return False

    def _watch(self) -> None:
        """A daemon that is stuck breaks no connection: after a while we look whether it lives."""
        while not self._over.wait(WATCH_SECONDS):
            with self._lock:
                oldest = min((asked.since for asked in self._open.values()), default=None)
                peer = self._peer
            if oldest and time.monotonic() - oldest > STUCK_SECONDS and not peer.lives():
                peer.close()


def _messages(line: bytes) -> list[dict[str, Any]]:
    """What a line holds; nothing, if it is no JSON, which is for the server to tell."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [each for each in (told if isinstance(told, list) else [told]) if isinstance(each, dict)]


def _lines(reading: BinaryIO) -> Iterator[bytes]:
    """Whole lines, until it ends or breaks."""
    while True:
        try:
            line = reading.readline()
        except (OSError, ValueError):
            return
        if not line.endswith(b"\n"):
            return
        yield line


def _put(going: BinaryIO, line: bytes) -> None:
    try:
        going.write(line)
        going.flush()
    except OSError:
        os._exit(0)  # nobody reads us; the thread that reads cannot be woken


def _refusal(id: Any) -> bytes:
    said = "every server that tried to answer this ended; `marklight doctor` may tell why"
    told = {"jsonrpc": "2.0", "id": id, "error": {"code": INTERNAL_ERROR, "message": said}}
    return json.dumps(told).encode() + b"\n"


def _is_own(line: bytes) -> bool:
    return any(str(each.get("id", "")).startswith(OWN) for each in _messages(line))


def _key(id: Any) -> str:
    """1 and "1" are two ids."""
    return json.dumps(id)
