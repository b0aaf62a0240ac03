"""The database of an index: a pool of SQLite connections that read, and one that writes.

The first writer creates the folder and the database: the tables are made in a file under another name, which is renamed when
they are complete. Outside the data directory a database is opened only if this user created it in this place.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock

from marklight.engines.embedded import APPLICATION, TABLES, VERSION
from marklight.engines.embedded.session import (
    SqliteSession,
    UnknownSchema,
    check_schema,
    connect,
    damaged,
    explain,
)
from marklight.errors import StoreError
from marklight.place import needs_record, record_database, recorded_ids, remember
from marklight.platforms import replace_file
from marklight.private_files import (
    create_private,
    is_own,
    make_private_folder,
    remove,
    sync_folder,
    write_private,
)
from marklight.text.analyzer import vocabulary_fingerprint

BUSY_SECONDS = 10.0
"""Time limit of a statement that waits for another process's lock on the database."""
_MAX_SNAPSHOTS = 1_000
"""Snapshots of one connection, which keeps some hundred bytes for every passage that was read with it (`blobopen`)."""
_MAX_IDLE = 4
"""Connections that stay open for the next snapshots: as many as usually read at once."""
_CACHE_SETTING = "cache_size = -16000"
"""Page cache of a connection: 16 MB. With twice as much for the one that writes, indexing is no faster."""
_WRITER_SETTINGS = (
    "synchronous = NORMAL",  # a killed process loses nothing, a power cut the last commits at most
    "foreign_keys = ON",
    "journal_size_limit = 67108864",
)
_READ_WRITE = "?mode=rw"
_IMMUTABLE = "?mode=ro&immutable=1"
"""Parameters with which SQLite reads the database file alone and needs no files beside it."""
_CANNOT_WRITE = (
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
)
"""Error codes of a folder that cannot be written, or of a full disk."""
OTHER_VERSION = "has other tables than this version creates"
"""Reason to replace the database, as the end of a sentence that starts with "The index …"."""
_HISTORY = "history"
"""Folder of another index that may be inside one from its beginning: the history index."""
_DRAFTS = "library.db.*.new*"
"""Databases that a killed process left incomplete."""


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None where there is none."""
    try:
        status = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class Store:
    """Connections to the database of one index: one that writes, and as many as there are readers."""

    def __init__(self, folder: Path, documents: Path | None = None) -> None:
        self.folder = folder
        self.documents = documents
        """Folder of the documents, if the index belongs to one."""
        self.path = folder / "library.db"
        self._idle: list[SqliteSession] = []
        self._guard = Lock()
        self._writer: SqliteSession | None = None
        self._parameters = _READ_WRITE
        self._closed = False
        self._file: tuple[int, int] | None = None
        self._outdated = False
        self._key = b""
        self.notices: deque[str] = deque()
        """Notices about automatic repairs, until they are read."""
        self._created = self._is_usable()

    @property
    def exists(self) -> bool:
        """Return true if this process or another has created the database."""
        self._created = self._created or self._is_usable()
        return self._created

    @property
    def is_outdated(self) -> bool:
        """Return true if the next writer replaces the database, which has other tables."""
        return not self.exists and self._outdated

    def forget_if_replaced(self) -> bool:
        """Close all connections if the database was deleted or replaced while it was open; return true then."""
        if not self._created:
            return False
        try:
            current = _file_identity(self.path)
        except OSError:
            return False
        with self._guard:
            if current == self._file or self._file is None or self._closed:
                self._file = self._file or current
                return False
            self._forget()
        return True

    def _forget(self) -> None:
        """Close the connections to a file that is no longer the database of the index."""
        for session in self._idle:
            session.close()
        self._idle.clear()
        self._file, self._created = None, False

    def make_folder(self) -> None:
        """Create the folder, which contains the writer lock."""
        if not self.exists:
            _make_folder(self.folder, self.documents)

    def make_database(self) -> None:
        """Create the database, or replace one with other tables; the writer lock must be held."""
        if not self.exists:
            self._key = _create_database(self.path).encode()
            if self._outdated:
                self.notices.append(
                    f"The index in {self.folder} {OTHER_VERSION}, so it is rebuilt from the documents"
                )
            with self._guard:
                self._forget()
            self._outdated, self._created = False, True
        self.writer_session()

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSession]:
        """Open a connection that sees one commit, that of its first statement, for as long as it is held."""
        if not self.exists:
            with closing(_empty_database(self.path)) as session:
                yield session
            return
        session = self._acquire()
        try:
            session.run("BEGIN")
            yield session
        finally:
            self._release(session)

    def _acquire(self) -> SqliteSession:
        """Return an idle connection or a new one; it must be released."""
        with self._guard:
            self._require_open()
            if self._idle:
                return self._idle.pop()
        if self._parameters == _IMMUTABLE:
            return self._first_connection()
        return self._connect(self._parameters)

    def _release(self, session: SqliteSession) -> None:
        """End a snapshot; its connection serves the next one."""
        if session.connection.in_transaction:
            session.connection.rollback()
        with self._guard:
            # An immutable connection would not see what is written as soon as the disk has space again.
            reusable = self._parameters != _IMMUTABLE and session.file == self._file
            session.snapshots += 1
            session.forget_text()
            reusable = reusable and session.snapshots < _MAX_SNAPSHOTS
            if len(self._idle) < _MAX_IDLE and not self._closed and reusable:
                self._idle.append(session)
                return
        session.close()

    def writer_session(self) -> SqliteSession:
        """Return the connection that writes; the writer lock must be held."""
        self._require_open()
        if self._writer is not None and self._writer.file != self._file:
            self._writer.close()
            self._writer = None
        if self._writer is None:
            session = self._connect(_READ_WRITE)
            try:
                for setting in _WRITER_SETTINGS:
                    session.run(f"PRAGMA {setting}")
            except BaseException:
                session.close()
                raise
            self._writer = session
        return self._writer

    def close(self) -> None:
        """Close idle connections now, and those of open snapshots when they end."""
        with self._guard:
            self._closed = True
            for session in (*self._idle, *([self._writer] if self._writer else [])):
                session.close()
            self._idle.clear()
            self._writer = None

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"The index {self.folder} has been closed", "Open the library again")

    def _connect(self, parameters: str) -> SqliteSession:
        session = connect(self.path, parameters, BUSY_SECONDS)
        session.key = self._key
        try:
            with suppress(OSError):
                session.file = self._file = self._file or _file_identity(self.path)
            session.run(f"PRAGMA {_CACHE_SETTING}")
        except StoreError:
            session.close()
            raise
        return session

    def _is_usable(self) -> bool:
        """Return true for an index of this user; open a first connection to find out how it can be opened."""
        self._outdated = False
        try:
            status = os.lstat(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            # An index that cannot be read now must not be replaced by an empty one.
            raise explain(error, self.folder) from error
        if not (stat.S_ISDIR(status.st_mode) and is_own(status)):
            raise self._foreign()
        if _file_identity(self.path) is None:
            others = any((self.folder / part).exists() for part in ("lexical", "vectors"))
            # A first writer may have created the database meanwhile, and the others after it.
            if others and _file_identity(self.path) is None:
                raise StoreError(
                    f"The database {self.path} is missing, but other parts of the index exist",
                    f"Put it back, or move {self.folder} away and run `marklight index`",
                )
            return False
        recorded = needs_record(self.folder)
        ids = recorded_ids(self.folder) if recorded else set()
        if recorded and not ids:
            raise self._foreign()
        if os.path.getsize(self.path) == 0:
            raise damaged(self.path, "it is empty")
        session = self._first_connection()
        try:
            check_schema(session)
            id = str(session.value("SELECT library FROM state"))
            if recorded and id not in ids:
                raise self._foreign()
            session.key = self._key = id.encode()
        except UnknownSchema:
            self._outdated = True
        finally:
            self._release(session)
        return not self._outdated

    def _foreign(self) -> StoreError:
        return StoreError(
            f"The index {self.folder} was not created by you on this machine, so it is not used",
            "Delete it, or choose another place with the settings `index.place` or `engine`",
        )

    def _first_connection(self) -> SqliteSession:
        """Open the database with the most rights that the folder and the disk allow."""
        failure: StoreError | None = None
        # Where nothing can be written, or the disk is full, SQLite cannot create its own files beside the database.
        for parameters in self._parameters_to_try():
            session: SqliteSession | None = None
            try:
                session = self._connect(parameters)
                session.value("SELECT count(*) FROM sqlite_master")
                self._parameters = parameters
                return session
            except StoreError as error:
                if session:
                    session.close()
                failure = failure or error
                code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
                if code not in _CANNOT_WRITE:
                    raise
        assert failure
        raise failure

    def _parameters_to_try(self) -> Iterator[str]:
        """Yield parameters with ever fewer rights; the last read the file alone, which is correct only when the WAL is empty."""
        yield from (_READ_WRITE, "?mode=ro")
        try:
            is_empty = os.path.getsize(f"{self.path}-wal") == 0
        except FileNotFoundError:  # the last process that had the database open has deleted it
            is_empty = True
        if is_empty:
            yield _IMMUTABLE


def _make_folder(folder: Path, documents: Path | None) -> None:
    """Create the folder of an index and record its documents; outside the data directory, git ignores it."""
    if documents is not None and not documents.is_dir():
        raise StoreError(
            f"The folder {documents} does not exist", "Move it back, or name another folder"
        )
    try:
        if documents is not None:
            remember(documents)
        # The history index may be created first, in the folder of the index of documents.
        for path in (folder.parent, folder) if folder.name == _HISTORY else (folder,):
            make_private_folder(path)
            if needs_record(path) and not os.listdir(path):
                write_private(path / ".gitignore", b"*\n")
    except OSError as error:
        raise StoreError(
            f"Cannot create the index folder {folder} ({os.strerror(error.errno or 0)})",
            "Choose another folder with the variable MARKLIGHT_DATA_DIR or the setting `engine`",
        ) from error


def _create_database(path: Path) -> str:
    """Create the database of an index, or replace it by an empty one, and return its id; the writer lock must be held."""
    folder = path.parent
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}.new")
    id = os.urandom(16).hex()
    try:
        for leftover in folder.glob(_DRAFTS):
            remove(leftover)
        os.close(create_private(draft))
        session = SqliteSession(draft, sqlite3.connect(draft, isolation_level=None))
        try:
            # No journal: an incomplete database is never used.
            session.run("PRAGMA journal_mode = MEMORY")
            with session.transaction():
                _make_tables(session, id)
            session.run("PRAGMA journal_mode = WAL")
        finally:
            session.close()
        for suffix in ("-wal", "-shm"):
            remove(path.with_name(path.name + suffix))
        if needs_record(folder):
            record_database(folder, draft, id)
        replace_file(draft, path)
        # Before other parts are created: without its database an index is refused.
        sync_folder(folder)
        return id
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    finally:
        for leftover in folder.glob(f"{draft.name}*"):
            with suppress(OSError):  # the error that is raised matters more
                remove(leftover)


def _empty_database(path: Path) -> SqliteSession:
    """Open an empty index in memory: the content of a snapshot where no index has been created."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    session = SqliteSession(path, connection)
    _make_tables(session, "")  # the same id for all of them, so that they share cached results
    return session


def _make_tables(session: SqliteSession, library: str) -> None:
    """Create the tables of an index."""
    for statement in TABLES.split(";"):
        session.run(statement)
    session.run(
        "INSERT INTO state (id, library, vocabulary) VALUES (1, ?, ?)",
        [library, vocabulary_fingerprint()],
    )
    session.run(f"PRAGMA application_id = {APPLICATION}")
    session.run(f"PRAGMA user_version = {VERSION}")
