"""Open the database of an index without trusting it: plain files only, a known schema, no code in it.

SQLite follows symbolic links of its own files and obeys a rollback journal, which can name any file to delete. The database is
in WAL mode from the start, so a rollback journal is never ours.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marklight.engines.embedded.schema import TABLES, VERSION
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.sqlite_errors import explain
from marklight.errors import StoreError
from marklight.private_files import is_plain_file, remove

_KNOWN = frozenset(re.findall(r"^CREATE [^;]*\)(?: WITHOUT ROWID)?(?=;)", TABLES, re.MULTILINE)) | {
    "CREATE TABLE sqlite_sequence(name,seq)"
}
"""The statements of all tables and indexes, as SQLite keeps them."""
_STEPS = 100_000
"""Instructions of SQLite's virtual machine between two looks at the clock, about a millisecond."""


_SCHEMA_SECONDS = 5.0


class UnknownSchema(StoreError):
    """The database has other tables than this version makes."""


def connect(path: Path, parameters: str = "?mode=rw", wait_seconds: float = 0.0) -> Session:
    """Open a database; what is beside it under the names of SQLite's own files is made safe first."""
    try:
        _make_safe(path)
        connection = sqlite3.connect(
            path.absolute().as_uri() + parameters,
            uri=True,
            timeout=wait_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    session = Session(path, connection)
    try:
        session.run("PRAGMA trusted_schema = OFF")
        with time_limit(session, _SCHEMA_SECONDS):
            session.value("SELECT count(*) FROM sqlite_master")  # loads the schema
        if sys.version_info >= (3, 12):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    except BaseException:
        session.close()
        raise
    return session


def _make_safe(path: Path) -> None:
    """Delete a rollback journal, and what is no plain file at the path of the log or the shared memory."""
    remove(path.with_name(f"{path.name}-journal"))
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if not is_plain_file(beside):
            remove(beside)


def demand_known_schema(session: Session) -> None:
    """Raise UnknownSchema unless the tables and indexes are exactly those of this version: no view, no trigger."""
    version = session.value("PRAGMA user_version")
    if version > VERSION:
        raise StoreError(
            f"{session.path} was made by a newer Marklight (format {version}, known: {VERSION})",
            "Upgrade with `pip install --upgrade marklight`",
        )
    with time_limit(session, _SCHEMA_SECONDS):
        found = {sql for (sql,) in session.all("SELECT sql FROM sqlite_master") if sql is not None}
    if version != VERSION or found != _KNOWN:
        raise UnknownSchema(f"{session.path} has other tables than this version makes")


@contextmanager
def time_limit(session: Session, seconds: float) -> Iterator[None]:
    """Interrupt statements that take longer than this altogether."""
    until = time.monotonic() + seconds
    connection = session.connection
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
