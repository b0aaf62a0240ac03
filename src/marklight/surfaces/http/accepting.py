"""Accept loop with a bounded number of connections: the listener is paused while the limit is reached.

asyncio's own accept loop takes every connection. Without a free file descriptor it logs each failed attempt
and tries again, thousands of times per second. Here the number of connections is derived from the limit of
file descriptors, so that index files can still be opened; who comes later waits in the system's queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from marklight.surfaces.http.connection import Connection

MOST_SERVED = 500
"""Connections that are answered at once; further ones are told to come again."""
MOST_REFUSED = 100
"""Connections beyond, while they are told; further ones are not accepted yet."""
RESERVED_FILES = 32
"""File descriptors that are left for index files, their journals, git and the daemon's own connections."""
FEWEST = 4
PRESSED_SECONDS = 1.0
"""Time limit for an idle client while other clients wait for a connection."""
RETRY_SECONDS = 1.0
"""Pause before the next `accept` when no file descriptor is left."""

log = logging.getLogger(__name__)


class Room(NamedTuple):
    """Return the number of connections to serve, and the number of further ones to answer with 503."""

    served: int
    refused: int

    @property
    def open(self) -> int:
        """Return how many may be open at once."""
        return self.served + self.refused


def room() -> Room:
    """Return how many connections this process has file descriptors for."""
    left = _free_files()
    if left is None or left >= MOST_SERVED + MOST_REFUSED:
        return Room(MOST_SERVED, MOST_REFUSED)
    left = max(FEWEST, left)
    refused = max(1, left * MOST_REFUSED // (MOST_SERVED + MOST_REFUSED))
    return Room(left - refused, refused)


def _free_files() -> int | None:
    """Return how many file descriptors connections may take; None where there is no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    taken = 2 * RESERVED_FILES
    with suppress(OSError):
        taken = RESERVED_FILES + len(os.listdir("/dev/fd"))
    return soft - taken


class Accepting:
    """Accepts connections as long as there is room for them."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Connection],
        connections: set[Connection],
        most: int,
    ) -> None:
        self.listening = listening
        self.make = make
        self.connections = connections
        self.most = most
        self.left = asyncio.Event()
        """Set whenever a connection ends."""

    async def run(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        said = False
        while True:
            await self._room()
            try:
                accepted, _ = await loop.sock_accept(self.listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no file descriptor or no memory is left
                if not said:
                    log.warning("no connection can be accepted: %s", error.strerror or error)
                    said = True
                await asyncio.sleep(RETRY_SECONDS)
                continue
            said = False
            try:
                await loop.connect_accepted_socket(self.make, accepted)
            except OSError:
                accepted.close()

    async def _room(self) -> None:
        """Wait until a connection may be opened; close those whose client lets others wait."""
        while len(self.connections) >= self.most:
            self.left.clear()
            try:
                await asyncio.wait_for(self.left.wait(), PRESSED_SECONDS)
            except TimeoutError:
                for each in tuple(self.connections):
                    each.press(PRESSED_SECONDS)
