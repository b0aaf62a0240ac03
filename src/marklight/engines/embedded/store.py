"""The database of an index: made by its first writer, opened only if this user made it here, never emptied."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock

from marklight import ownership
from marklight.engines.embedded.connect import UnknownSchema, connect, demand_known_schema
from marklight.engines.embedded.create import blank, create, make_folder
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.sqlite_errors import damaged
from marklight.engines.metadata_filters import matches_any_glob
from marklight.errors import StoreError
from marklight.ownership import Origin

BUSY_SECONDS = 10.0
_IDLE = 4
"""Connections kept open for the next snapshots."""
_WRITING = (
    "synchronous = NORMAL",  # a killed process loses nothing, a power cut the last commits at most
    "foreign_keys = ON",
    "cache_size = -32000",
    "journal_size_limit = 67108864",
)
_AS_IT_IS = "?mode=ro&immutable=1"
_NO_ROOM = (
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
)

_globs = lru_cache(maxsize=64)(json.loads)


def _any_glob(path: str, globs: str) -> bool:
    return matches_any_glob(path, _globs(globs))


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path; None where there is none."""
    try:
        status = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class Store:
    """Connections to one library: one that writes, and as many as there are readers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "library.db"
        self._idle: list[Session] = []
        self._guard = Lock()
        self._writer: Session | None = None
        self._suffix = "?mode=rw"
        self._closed = False
        self._file: tuple[int, int] | None = None
        self._replaced = ""
        """Reason to replace the index in the folder before writing; empty if there is none."""
        self.news: deque[str] = deque()
        """Notices about repairs that nobody requested, until they are read."""
        self._made = self._has_tables()

    @property
    def exists(self) -> bool:
        """Whether the library has been made, by this process or another."""
        self._made = self._made or self._has_tables()
        return self._made

    def lost(self) -> bool:
        """Whether the library was deleted or replaced while it was open; what is opened next is another."""
        if not self._made:
            return False
        try:
            now = _identity(self.path)
        except OSError:
            return False
        with self._guard:
            if now == self._file or self._file is None or self._closed:
                self._file = self._file or now
                return False
            self._forget()
        return True

    def _forget(self) -> None:
        """Close connections to a file that is no longer the one of the index."""
        for session in self._idle:
            session.close()
        self._idle.clear()
        self._file, self._made = None, False

    def make_room(self) -> None:
        """Create the folder, in which the writer lock is."""
        if not self.exists and not self._replaced:
            make_folder(self.folder)

    def make(self) -> None:
        """Create the database, or replace one that must not be used; the writer lock must be held."""
        if not self.exists:
            if self._replaced:
                from marklight.engines.embedded.adopt import adopt

                self.news.append(adopt(self.folder, self._replaced))
                with self._guard:
                    self._forget()
                self._replaced = ""
            else:
                create(self.path)
            self._made = True
        self.writing()

    def reading(self) -> Session:
        """A connection to read with, to be given back."""
        with self._guard:
            self._demand_open()
            if self._idle:
                return self._idle.pop()
        return self._first_look() if self._suffix == _AS_IT_IS else self._connect(self._suffix)

    def give_back(self, session: Session) -> None:
        """End a view; its connection serves the next one."""
        if session.connection.in_transaction:
            session.connection.rollback()
        with self._guard:
            # Who reads the one file alone would not see what is written as soon as there is room.
            lasting = self._suffix != _AS_IT_IS and session.file == self._file
            if len(self._idle) < _IDLE and not self._closed and lasting:
                self._idle.append(session)
                return
        session.close()

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """A connection that sees one commit for as long as it is held."""
        if not self.exists:
            session = blank(self.path)
            session.connection.create_function("any_glob", 2, _any_glob, deterministic=True)
            try:
                yield session
            finally:
                session.close()
            return
        session = self.reading()
        try:
            session.run("BEGIN")
            session.value("SELECT generation FROM state")  # the first look fixes what is seen
            yield session
        finally:
            self.give_back(session)

    @property
    def replaced(self) -> str:
        """Return the reason why the next writer replaces the index in the folder; empty if the index is in use."""
        return "" if self.exists else self._replaced

    def writing(self) -> Session:
        """The connection that writes; only the holder of the writer's place may use it."""
        self._demand_open()
        if self._writer is not None and self._writer.file != self._file:
            self._writer.close()
            self._writer = None
        if self._writer is None:
            session = self._connect("?mode=rw")
            try:
                for setting in _WRITING:
                    session.run(f"PRAGMA {setting}")
            except BaseException:
                session.close()
                raise
            self._writer = session
        return self._writer

    def close(self) -> None:
        """Close what is idle now, and what views still hold when they end."""
        with self._guard:
            self._closed = True
            for session in (*self._idle, *([self._writer] if self._writer else [])):
                session.close()
            self._idle.clear()
            self._writer = None

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path} has been closed", "Open the library again")

    def _connect(self, suffix: str) -> Session:
        session = connect(self.path, suffix, BUSY_SECONDS)
        session.connection.create_function("any_glob", 2, _any_glob, deterministic=True)
        try:
            with suppress(OSError):
                session.file = self._file = self._file or _identity(self.path)
            session.key = ownership.owner_id(self.folder).encode()
            session.run("PRAGMA cache_size = -16000")
        except StoreError:
            session.close()
            raise
        return session

    def _has_tables(self) -> bool:
        """Return true where there is an index that this user made here; the first connection decides how it can be opened."""
        origin = ownership.origin(self.folder)
        self._replaced = _REASONS.get(origin, "")
        if origin is Origin.NONE:
            return False
        if origin is Origin.FOREIGN:
            raise foreign(self.folder)
        if _identity(self.path) is None:
            if self._has_more():
                raise StoreError(
                    f"{self.path} is missing, but other parts of the index are there",
                    f"Put it back, or move {self.folder} away and run `marklight index` again",
                )
            return False
        return not self._replaced and self._opens()

    def _opens(self) -> bool:
        """Return true where the database is the one that belongs to the folder."""
        if self.path.stat().st_size == 0:
            raise damaged(self.path, "it is empty")
        session = self._first_look()
        try:
            demand_known_schema(session)
            if session.value("SELECT library FROM state") == ownership.owner_id(self.folder):
                return True
            self._replaced = "holds the database of another index"
        except UnknownSchema:
            self._replaced = "has other tables than this version makes"
        finally:
            self.give_back(session)
        return False

    def _first_look(self) -> Session:
        failure: StoreError | None = None
        # Where nothing may be written, or the disk is full, SQLite's own files beside the store have no room.
        for suffix in ("?mode=rw", "?mode=ro", *self._as_it_is()):
            session: Session | None = None
            try:
                session = self._connect(suffix)
                session.value("SELECT count(*) FROM sqlite_master")
                self._suffix = suffix
                return session
            except StoreError as error:
                if session:
                    session.close()
                failure = failure or error
                code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
                if code not in _NO_ROOM:
                    raise
        assert failure
        raise failure

    def _as_it_is(self) -> list[str]:
        """Reading the one file alone, which is only right when all commits have reached it."""
        log = self.path.with_name(self.path.name + "-wal")
        settled = not log.exists() or log.stat().st_size == 0
        return [_AS_IT_IS] if settled else []

    def _has_more(self) -> bool:
        return any((self.folder / part).exists() for part in ("words", "vectors"))


_REASONS = {
    Origin.MOVED: "was moved or copied here",
    Origin.RESTORED: "was restored from a copy",
}


def foreign(folder: Path) -> StoreError:
    """Return the error for an index that this user did not make on this machine."""
    return StoreError(
        f"{folder} was not made by you on this machine, so it is not used",
        "Delete it, or name another folder with the setting `engine`",
    )
