"""A new library: its folder, and its tables in one transaction."""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

from marklight.engines.embedded.schema import APPLICATION, TABLES, VERSION
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.trouble import explain
from marklight.errors import StoreError
from marklight.place import INDEX_FOLDER
from marklight.text import terms_recipe

HISTORY = "history"
"""The folder of another library that may stand in one from its beginning: that of commits."""


def create(path: Path) -> None:
    """Make the tables, or find that another process has just made them; the writer's place is held."""
    try:
        session = Session(path, sqlite3.connect(path, isolation_level=None))
    except sqlite3.Error as error:
        raise explain(error, path) from error
    try:
        session.run("PRAGMA journal_mode = WAL")
        with session.transaction():
            if session.value("PRAGMA user_version") == 0:
                _make_tables(session, secrets.token_hex(8))
    finally:
        session.close()


def blank(path: Path) -> Session:
    """A library without anything, in memory: what is seen where none has been made."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    session = Session(path, connection)
    _make_tables(session, "")  # all such are the same, so what is kept of one serves the next
    return session


def make_folder(folder: Path) -> None:
    """Where the library will be; git ignores it, unless it also holds what is not ours."""
    # A folder of documents that was moved away is not made anew: nobody could move it back.
    for beside in (folder, *folder.parents):
        if beside.name == INDEX_FOLDER and not beside.parent.is_dir():
            raise StoreError(f"{beside.parent} is not there", "Move it back, or name another")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if all(each.name == HISTORY for each in folder.iterdir()):
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made ({os.strerror(error.errno or 0)})",
            'Choose another place with the setting `engine = "file:PATH"`',
        ) from error


def _make_tables(session: Session, library: str) -> None:
    for statement in TABLES.split(";"):
        session.run(statement)
    session.run(
        "INSERT INTO state (one, library, vocabulary) VALUES (1, ?, ?)",
        [library, terms_recipe()],
    )
    session.run(f"PRAGMA application_id = {APPLICATION}")
    session.run(f"PRAGMA user_version = {VERSION}")
