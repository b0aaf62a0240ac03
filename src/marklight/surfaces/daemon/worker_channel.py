"""Communication between a supervisor and its worker processes: messages over socket pairs, and shared connection counts."""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from marklight.library.progress import IndexingProgress
from marklight.library.watching import SCANNING
from marklight.report import Report

SEND_SECONDS = 5
"""Time limit to send a message; a process that reads none for that long is stuck."""
_LENGTH = struct.Struct("!Q")
_COUNT = struct.Struct("!I")
NOT_RUNNING = 2**32 - 1
"""Count of a worker process that accepts no connections."""


SCAN_BEGINS = IndexingProgress(SCANNING, 0, 0)


# Messages


@dataclass(frozen=True, slots=True)
class Start:
    """First message to a worker process: what it serves and how."""

    number: int
    folder: str
    options: Mapping[str, Any]
    """Settings of the table `serve`."""
    assignments: Sequence[str]
    ports: Sequence[int]
    """Port on loopback at which each process receives forwarded requests."""
    keys: Mapping[str, str]
    """Keys of the address: of the login cookie and of forwarded requests."""
    state_file: Path
    supervisor: int
    """Process ID of the supervisor."""


@dataclass(frozen=True, slots=True)
class Started:
    """A worker process answers requests; the first one sends the state of the daemon."""

    state: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker process could not start."""

    error: str
    """Name of the error's class."""
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class WatcherState:
    """State of the watcher, which runs in the first worker process, for the others."""

    progress: IndexingProgress | None = SCAN_BEGINS
    problem: str = ""
    remark: str = ""
    watching: bool = False
    text_tried: bool = False
    """True if the first indexing run is over."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A worker process has changed the index; all others notify their clients."""

    report: Report


@dataclass(frozen=True, slots=True)
class Wake:
    """There may be passages to embed."""


Message = Start | Started | Failed | WatcherState | Indexed | Wake


class Channel:
    """One end of a socket pair that carries pickled messages; no other process can open it."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._sending = Lock()
        timeout = struct.pack("@ll", SEND_SECONDS, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def send(self, message: Message) -> bool:
        """Send a message; return false if the other process has ended or does not read."""
        data = pickle.dumps(message)
        with self._sending:
            try:
                self.socket.sendall(_LENGTH.pack(len(data)) + data)
            except OSError:
                return False
        return True

    def receive(self) -> Message | None:
        """Return the next message; None if the other process has ended."""
        try:
            head = self._read(_LENGTH.size)
            body = self._read(*_LENGTH.unpack(head)) if head else b""
            return pickle.loads(body) if body else None
        except OSError:
            return None

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close this end; a thread that waits in `receive` continues."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class SharedLoads:
    """Number of open connections of each worker process, in memory that all of them share."""

    def __init__(self, file: int, workers: int, number: int = 0) -> None:
        self.file, self.workers, self.number = file, workers, number
        self._memory = mmap.mmap(file, workers * _COUNT.size)

    @classmethod
    def create(cls, workers: int) -> SharedLoads:
        """Create the memory, without a running process."""
        with tempfile.TemporaryFile() as file:
            file.write(_COUNT.pack(NOT_RUNNING) * workers)
            file.flush()
            return cls(os.dup(file.fileno()), workers)

    def report(self, connections: int) -> None:
        """Store the number of open connections of this process."""
        self.set(self.number, connections)

    def set(self, worker: int, connections: int) -> None:
        """Store the number of open connections of a process."""
        _COUNT.pack_into(self._memory, worker * _COUNT.size, connections)

    def is_busier(self) -> bool:
        """Return true if another running process has fewer open connections than this one."""
        counts = [self._count(worker) for worker in range(self.workers)]
        return counts[self.number] > min(counts)

    def is_running(self, worker: int) -> bool:
        """Return true if this worker process accepts connections."""
        return self._count(worker) != NOT_RUNNING

    def _count(self, worker: int) -> int:
        (count,) = _COUNT.unpack_from(self._memory, worker * _COUNT.size)
        return int(count)
