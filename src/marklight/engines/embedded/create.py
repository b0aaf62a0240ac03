"""Create an index: its folder, and the database with its tables.

The tables are made in a file under another name, which is renamed when they are complete.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

from marklight.engines.embedded.schema import APPLICATION, TABLES, VERSION
from marklight.engines.embedded.session import SqliteSession, explain
from marklight.errors import StoreError
from marklight.place import needs_record, record_database, remember
from marklight.private_files import create_private, make_private_folder, remove, write_private
from marklight.text import vocabulary_fingerprint

HISTORY = "history"
"""Folder of another index that may be inside one from its beginning: the history index."""
_DRAFTS = "library.db.*.new*"
"""Databases that a killed process left incomplete."""


def make_folder(folder: Path, documents: Path | None) -> None:
    """Create the folder of an index and record its documents; outside the data directory, git ignores it."""
    if documents is not None and not documents.is_dir():
        raise StoreError(
            f"The folder {documents} does not exist", "Move it back, or name another folder"
        )
    try:
        if documents is not None:
            remember(documents)
        # The history index may be created first, in the folder of the index of documents.
        for path in (folder.parent, folder) if folder.name == HISTORY else (folder,):
            make_private_folder(path)
            if needs_record(path) and not os.listdir(path):
                write_private(path / ".gitignore", b"*\n")
    except OSError as error:
        raise StoreError(
            f"Cannot create the index folder {folder} ({os.strerror(error.errno or 0)})",
            "Choose another folder with the variable MARKLIGHT_DATA_DIR or the setting `engine`",
        ) from error


def create(path: Path) -> str:
    """Create the database of an index, or replace it by an empty one, and return its id; the writer lock must be held."""
    folder = path.parent
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    id = secrets.token_hex(16)
    try:
        for leftover in folder.glob(_DRAFTS):
            remove(leftover)
        os.close(create_private(draft))
        session = SqliteSession(draft, sqlite3.connect(draft, isolation_level=None))
        try:
            # No journal: an incomplete database is never used.
            session.run("PRAGMA journal_mode = MEMORY")
            with session.transaction():
                make_tables(session, id)
            session.run("PRAGMA journal_mode = WAL")
        finally:
            session.close()
        for suffix in ("-wal", "-shm", ""):
            remove(path.with_name(path.name + suffix))
        if needs_record(folder):
            record_database(folder, draft, id)
        os.replace(draft, path)
        return id
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    finally:
        for leftover in folder.glob(f"{draft.name}*"):
            remove(leftover)


def empty_database(path: Path) -> SqliteSession:
    """Open an empty index in memory: the content of a snapshot where no index has been created."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    session = SqliteSession(path, connection)
    make_tables(session, "")  # the same id for all of them, so that they share cached results
    return session


def make_tables(session: SqliteSession, library: str) -> None:
    """Create the tables of an index."""
    for statement in TABLES.split(";"):
        session.run(statement)
    session.run(
        "INSERT INTO state (id, library, vocabulary) VALUES (1, ?, ?)",
        [library, vocabulary_fingerprint()],
    )
    session.run(f"PRAGMA application_id = {APPLICATION}")
    session.run(f"PRAGMA user_version = {VERSION}")
