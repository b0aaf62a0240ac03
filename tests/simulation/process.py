"""A process of the simulation: a fork that runs the real library and stops at its file and database calls.

The scheduler decides at which call a process stops, which call fails and where the process is killed. Time, time stamps of
files and random numbers are those of the simulation, so that a seed always gives the same run.
"""

from __future__ import annotations

import builtins
import errno
import mmap
import os
import random
import secrets
import signal
import sqlite3
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight import model, private_files
from marklight.engines.embedded import lexical_writer, session, vector_files
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.errors import Busy, MarklightError
from marklight.ingest.watch import Watch
from marklight.library.refresh import embed_for_seconds
from marklight.library.watching import Watcher
from marklight.ports import no_progress
from tests.faults.committing import answers
from tests.making import library

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from marklight.model import Batch

WORDS = "river castle engine garden harbour violin copper meadow".split()
MODEL = "fake-64"
QUERY = "garden engine"
KILL = -1
FAULTS = (errno.EIO, errno.ENOSPC, KILL)
UNLIMITED = 1 << 40
LOCK_ATTEMPTS = 3
"""Times that a process lets others run while it waits for the writer lock."""
OS_CALLS = (
    *("open", "read", "replace", "rename", "unlink", "link", "mkdir", "rmdir", "fsync"),
    *("stat", "lstat", "scandir", "listdir"),
)
"""Not `chmod`: it is called for each file of the lexical index, whose number depends on threads of tantivy."""


class Clock:
    """Wall clock and monotonic clock of the simulation, in memory that all processes share."""

    def __init__(self, now_ns: int) -> None:
        self._memory = mmap.mmap(-1, 16)
        self._write(now_ns, 10**9)

    def _write(self, wall: int, monotonic: int) -> None:
        self._memory[:] = struct.pack("qq", wall, monotonic)

    def _read(self) -> tuple[int, int]:
        wall, monotonic = struct.unpack("qq", self._memory[:])
        return wall, monotonic

    @property
    def now_ns(self) -> int:
        """Return the time of the wall clock."""
        return self._read()[0]

    def monotonic(self) -> float:
        """Return the time of the monotonic clock, which each call advances a little."""
        wall, monotonic = self._read()
        self._write(wall, monotonic + 20_000)
        return monotonic / 1e9

    def advance(self, nanoseconds: int) -> None:
        """Let time pass; a step back changes the wall clock only."""
        wall, monotonic = self._read()
        self._write(wall + nanoseconds, monotonic + max(0, nanoseconds))


class Status:
    """The result of `stat` with the time of the simulation, which is in `st_mtime`, as time of change too."""

    def __init__(self, status: os.stat_result) -> None:
        self._status = status
        self.st_ctime_ns = status.st_mtime_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._status, name)

    def __getitem__(self, number: int) -> Any:
        return self._status[number]


class Layer:
    """Stops the process, lets a call fail or kills the process, as the scheduler demands."""

    def __init__(self, scheduler: Connection, clock: Clock, seed: str) -> None:
        self.scheduler, self.clock, self.chance = scheduler, clock, random.Random(seed)
        self._left, self._fault, self._uncounted = UNLIMITED, 0, False
        self.batch: Batch | None = None

    def obey(self, command: tuple[int, int]) -> None:
        """Run this many calls, then let the next one fail, or stop there if there is no fault."""
        self._left, self._fault = command

    def stop(self, name: str) -> None:
        """Let others run until the scheduler resumes this process."""
        self.scheduler.send(("stopped", name))
        self.obey(self.scheduler.recv())

    def point(self, name: str) -> int:
        """Count a call; return the error number with which it fails, 0 if it is executed."""
        if self._uncounted:
            return 0
        self._left -= 1
        if self._left > 0:
            return 0
        fault = self._fault
        if fault == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        self.stop(name)
        return fault

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a system call that the scheduler sees."""

        def call(*args: Any, **named: Any) -> Any:
            if number := self.point(name):
                raise OSError(number, os.strerror(number), str(args[0]) if args else None)
            result = real(*args, **named)
            return Status(result) if name in ("stat", "lstat", "fstat") else result

        return call

    def statement(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of a session that the scheduler sees."""

        def call(sql_session: session.SqliteSession, sql: str, *values: Any) -> Any:
            if number := self.point(f"SQL {sql.strip()[:30]}"):
                error = sqlite3.OperationalError(os.strerror(number))
                full = number == errno.ENOSPC
                error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
                raise session.explain(error, sql_session.path) from error
            return real(sql_session, sql, *values)

        return call

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the engine before which the process may stop or be killed, but which does not fail."""

        def call(*args: Any, **named: Any) -> Any:
            self.point(real.__name__)
            return real(*args, **named)

        return call

    def uncounted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are not counted: how many files it reads or deletes depends on threads of tantivy."""

        def call(*args: Any) -> Any:
            self.point(real.__name__)
            self._uncounted = True
            try:
                return real(*args)
            finally:
                self._uncounted = False

        return call

    def open(self, file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        """Open a file; one that is written unbuffered may be left with a part of the data."""
        opened = builtins.open(file, mode, *args, **named)  # noqa: SIM115
        return PartialWrites(self, opened) if mode in ("wb", "r+b") else opened

    def lock_file(self, path: Path, wait_seconds: float) -> sqlite3.Connection:
        """Lock a file; while another process holds the lock, others run."""
        for _ in range(LOCK_ATTEMPTS if wait_seconds > 0 else 0):
            with suppress(TimeoutError):
                return private_files.lock_file(path, 0)
            self.stop("waiting for the lock")
        return private_files.lock_file(path, 0)

    def commit(self, engine: EmbeddedEngine, batch: Batch) -> int:
        """Commit, and report the batch before and the generation after."""
        if not batch:
            return COMMIT(engine, batch)
        self.batch = batch
        self._announce(engine._writer_session(), batch)
        generation = COMMIT(engine, batch)
        self.batch = None
        self.scheduler.send(("committed", generation))
        return generation

    def clean(self, engine: EmbeddedEngine, keep: Any) -> int:
        """Delete unused vectors, and report it before."""
        if not engine._parts.store.exists:
            return 0
        with engine.writing(10):
            self._announce(engine._writer_session(), tuple(keep))
            return CLEAN(engine, keep)

    def discard(
        self, sql_session: session.SqliteSession, info: vector_files.VectorFileInfo
    ) -> None:
        """Discard the vectors of a model, and report it before; the batch of the same transaction follows."""
        base = self._announce(sql_session, info.model)
        if self.batch:
            self.scheduler.send(("intent", base + 1, self.batch))
        DISCARD(sql_session, info)

    def _announce(self, sql_session: session.SqliteSession, change: object) -> int:
        (base,) = sql_session.connection.execute("SELECT generation FROM state").fetchone()
        self.scheduler.send(("intent", base, change))
        return int(base)

    def install(self) -> None:
        """Replace the calls of this process; it ends without putting them back."""
        for name in OS_CALLS:
            setattr(os, name, self.wrap(name, getattr(os, name)))
        fstat = os.fstat
        for name in ("run", "all", "one", "many"):
            real = getattr(session.SqliteSession, name)
            setattr(session.SqliteSession, name, self.statement(real))
        for name in ("add", "finish", "rebuild", "_open_writer", "_fill"):
            setattr(lexical_writer, name, self.before(getattr(lexical_writer, name)))
        for name in ("remove", "verify_files"):
            setattr(lexical_writer, name, self.uncounted(getattr(lexical_writer, name)))
        for module in (private_files, vector_files):
            module.open = self.open  # type: ignore[attr-defined]
        replacements: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (session, "lock_file", self.lock_file),
            (EmbeddedEngine, "commit", lambda engine, batch: self.commit(engine, batch)),
            (EmbeddedEngine, "clean", lambda engine, keep: self.clean(engine, keep)),
            (vector_files, "discard", self.discard),
            (time, "time_ns", lambda: self.clock.now_ns),
            (time, "time", lambda: self.clock.now_ns / 1e9),
            (time, "monotonic", self.clock.monotonic),
            (time, "sleep", lambda seconds: self.clock.advance(int(seconds * 1e9))),
            (secrets, "token_hex", lambda size: self.chance.randbytes(size).hex()),
            (os, "urandom", self.chance.randbytes),
            (os, "fstat", lambda handle: Status(fstat(handle))),
            (model, "_stamps", lambda status: (status.st_mtime_ns, status.st_mtime_ns)),
        )
        for owner, name, replacement in replacements:
            setattr(owner, name, replacement)


COMMIT, CLEAN, DISCARD = EmbeddedEngine.commit, EmbeddedEngine.clean, vector_files.discard


class PartialWrites:
    """A file whose writes may fail, or end with the process, after a part of the data."""

    def __init__(self, layer: Layer, file: Any) -> None:
        self._layer, self._file = layer, file

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        if number := self._layer.point("write"):
            raise OSError(number, os.strerror(number))
        self._file.write(data[len(data) // 2 :])
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> PartialWrites:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Process:
    """The scheduler's side of a process."""

    def __init__(self, number: int, seed: str, clock: Clock, folder: Path, index: Path) -> None:
        self.number, self.operation, self.faulty = number, "", False
        self.started: Any = None
        """Record the start of an operation."""
        self._pipe, child = Pipe()
        self.id = os.fork()
        if not self.id:
            self._pipe.close()
            try:
                serve(Layer(child, clock, seed), folder, index)
            finally:
                os._exit(1)
        child.close()

    def start(self, operation: str, *arguments: object) -> None:
        """Begin an operation; it stops before its first call."""
        self.operation, self.faulty = operation, False
        self._pipe.send((operation, arguments))

    def resume(self, calls: int, fault: int = 0) -> Iterator[tuple[Any, ...]]:
        """Run a number of calls; yield all reports, the last one of which is `stopped`, `done`, `failed` or `killed`."""
        self.faulty = self.faulty or fault > 0
        self._pipe.send((calls, fault))
        try:
            while True:
                report = self._pipe.recv()
                yield report
                if report[0] in ("stopped", "done", "failed"):
                    return
        except (EOFError, ConnectionResetError):
            self.kill()
            yield ("killed",)

    def kill(self) -> None:
        """Kill the process wherever it is."""
        with suppress(ProcessLookupError):
            os.kill(self.id, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.id, 0)
        self._pipe.close()


def serve(layer: Layer, folder: Path, index: Path) -> None:
    """Execute the operations that the scheduler sends, until it closes the pipe."""
    layer.install()
    worker: Worker | None = None
    while True:
        name, arguments = layer.scheduler.recv()
        layer.obey(layer.scheduler.recv())
        try:
            current = worker or Worker(folder, index)
            worker = None if name == "close" else current  # the next operation opens it again
            layer.scheduler.send(("done", getattr(current, name)(*arguments)))
        except Busy as error:
            layer.scheduler.send(("failed", "busy", str(error)))
        except MarklightError as error:
            layer.scheduler.send(("failed", "clear", f"{type(error).__name__}: {error}"))
        except OSError as error:  # surfaces print it as one line
            kind = "clear" if error.errno in FAULTS else "OSError"
            layer.scheduler.send(("failed", kind, traceback.format_exc()))
        except BaseException as error:
            layer.scheduler.send(("failed", type(error).__name__, traceback.format_exc()))


class Worker:
    """Operations of a process on its library."""

    def __init__(self, folder: Path, index: Path) -> None:
        self.library = library(folder, engine=f"file:{index}")
        self.watcher: Watcher | None = None
        self.events: Watch | None = None

    def index(self, rebuild: bool) -> None:
        self.library.index(rebuild=rebuild)

    def search(
        self, text: str, mode: str, refresh: bool
    ) -> tuple[int, list[tuple[Any, str]], list[str]]:
        """Return the generation, the passages with their text, and the notices."""
        found = self.library.search(text, mode=mode, refresh=refresh, limit=50, min_confidence=0.0)  # type: ignore[arg-type]
        hits = [(hit.chunk.document, hit.chunk.text) for hit in found.hits]
        return found.index.generation, hits, list(map(str, found.notices))

    def dump(self) -> tuple[int, object]:
        """Return all content of a snapshot, with its generation."""
        with self.library.engine.snapshot() as snapshot:
            return snapshot.generation, content(snapshot)

    def embed(self) -> None:
        embed_for_seconds(self.library.ingest, self.library.embedding, no_progress, 2.0)

    def watch(self) -> None:
        """Do one round of the watcher: changed folders by their events, then embedding; a failed round starts it again."""
        if self.watcher is None:
            self.watcher = self.library.watcher = Watcher(self.library)
        watcher, everything = self.watcher, self.events is None
        self.events = self.events or watcher._open_watch()
        try:
            if everything or self.events._poll(0) or self.events._changed:
                watcher._index(everything=everything)
            watcher._update_state(self.events)
            watcher._embed()
        except MarklightError as error:  # as in the watcher's thread
            watcher.problem, watcher.watching = str(error), False
            self.library.text_ingest.scans.watch = None
            self.events.close()
            self.events = None
            raise

    def check(self) -> list[str]:
        return self.library.engine.check()

    def clean(self) -> None:
        self.library.engine.clean([MODEL])

    def close(self) -> None:
        self.library.close()


def content(snapshot: Any) -> object:
    """Return all content of a snapshot in a form that can be compared between engines."""
    from marklight.models.fake import FakeEmbedder

    return answers(snapshot, WORDS, MODEL, FakeEmbedder().embed_query(QUERY))
