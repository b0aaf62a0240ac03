"""An assistant's lines to the daemon and back; should the daemon go, to a server of our own, unnoticed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import BinaryIO

from marklight.place import locate
from marklight.surfaces.daemon.attach import PROGRAM, Gone, as_arguments, attach, is_off
from marklight.surfaces.daemon.peers import LAST_SECONDS, Alone, Attached, Peer
from marklight.surfaces.daemon.state import own_settings
from marklight.surfaces.daemon.talk import Message, Talk, as_line, is_own, messages

START_SECONDS = 20.0
"""For a daemon that we start to answer: on a busy machine it takes long, and to serve alone would take as long again."""
WATCH_SECONDS = 5.0
STUCK_SECONDS = 10.0
"""A request may take as long as it likes; after so long we ask whether the daemon still lives."""


def tunnel(
    folder: Path | None, assignments: Sequence[str], say: Callable[[str], None]
) -> Tunnel | None:
    """A way to the daemon of a library; None where none runs that would do as we would."""
    if is_off():
        return None
    place = locate(folder)
    if place.part:
        return None  # a daemon serves an assistant all of its library

    def reach() -> Attached | None:
        found = attach(place.folder, assignments, "mcp", say)
        return Attached(found[0]) if found else None

    def start() -> Attached | None:
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


class Tunnel:
    """Carries one assistant's session, with one server after the other."""

    def __init__(self, peer: Peer, another: Callable[[], Peer]) -> None:
        self._peer, self._another = peer, another
        self._talk = Talk()
        self._lock = Lock()
        """For the server that there is now, and the talk with it."""
        self._over, self._spoken = Event(), Event()

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

    def _carry(self, line: bytes) -> None:
        with self._lock:
            self._talk.said(line)
            with suppress(Gone):  # who carries back notices it, and sends what is open again
                self._peer.send_raw(line)
            self._spoken.set()

    def _carry_back(self, going: BinaryIO) -> None:
        able = True
        while True:
            for line in _lines(self._peer.reading):
                able = True
                with self._lock:
                    self._talk.answered(line)
                if not is_own(line):
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
        """Answer what no server will."""
        with self._lock:
            for line in self._talk.refused():
                _put(going, line)
            if not self._talk.open:
                self._spoken.clear()

    def _go_on(self) -> bool:
        """With another server, from where the last one left: it hears all that still matters.

        Whether it is able to serve, as far as it has been asked anything.
        """
        able = False
        with self._lock:
            self._peer.close()
            self._peer = self._another()
            self._talk.put_again()
            with suppress(Gone):  # it is gone as well, and is noticed as the first was
                if handshake := self._talk.handshake:
                    able = self._shake_hands(handshake)
                    if self._talk.begun:
                        self._peer.send_raw(self._talk.begun)
                for message in self._talk.standing:
                    self._peer.send_raw(as_line(message))
                for asked in self._talk.open.values():
                    self._peer.send_raw(asked.line)
        return able

    def _shake_hands(self, message: Message) -> bool:
        """The beginning once more; whether it was answered."""
        self._peer.send_raw(as_line(message))
        return any(
            each.get("id") == message["id"]
            for line in _lines(self._peer.reading)
            for each in messages(line)
        )

    def _watch(self) -> None:
        """A daemon that is stuck breaks no connection: after a while we look whether it lives."""
        while not self._over.wait(WATCH_SECONDS):
            with self._lock:
                oldest, peer = self._talk.oldest, self._peer
            if oldest and time.monotonic() - oldest > STUCK_SECONDS and not peer.lives():
                peer.close()


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
