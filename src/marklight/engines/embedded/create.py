"""Create an index: its folder, its ownership marker, and its tables.

The tables are made in a file under another name, which gets its own name when they are complete.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from marklight import ownership
from marklight.engines.embedded.schema import APPLICATION, TABLES, VERSION
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.sqlite_errors import explain
from marklight.errors import StoreError
from marklight.ownership import Origin
from marklight.place import INDEX_FOLDER
from marklight.private_files import create_private, is_plain_file, make_private_folder, remove
from marklight.text import vocabulary_fingerprint

HISTORY = "history"
"""Folder of another index that may be inside one from its beginning: that of commits."""
_DRAFTS = "library.db.*.new*"


def make_folder(folder: Path) -> None:
    """Create the folder of an index and claim it; git ignores it, unless it also holds what is not ours."""
    # A folder of documents that was moved away is not made anew: nobody could move it back.
    for beside in (folder, *folder.parents):
        if beside.name == INDEX_FOLDER and not beside.parent.is_dir():
            raise StoreError(f"{beside.parent} is not there", "Move it back, or name another")
    try:
        # An index of commits may come first: the folder around it is ours as well.
        for each in (folder.parent, folder) if folder.name == HISTORY else (folder,):
            make_private_folder(each)
            if ownership.origin(each) is not Origin.NONE:
                continue
            if all(entry.name == HISTORY for entry in each.iterdir()):
                ignore(each)
            ownership.claim(each)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made ({os.strerror(error.errno or 0)})",
            'Choose another place with the setting `engine = "file:PATH"`',
        ) from error


def ignore(folder: Path) -> None:
    """Let git ignore a folder."""
    with suppress(FileExistsError), open(create_private(folder / ".gitignore"), "wb") as file:
        file.write(b"*\n")


def create(path: Path, fill: Callable[[Session], None] | None = None) -> None:
    """Create the database of a claimed index; the writer lock must be held.

    With `fill`, which inserts the first rows, the database replaces another one and the index gets a new id.
    """
    folder = path.parent
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    id = ownership.new_id() if fill else ownership.owner_id(folder)
    try:
        for left in folder.glob(_DRAFTS):
            remove(left)
        os.close(create_private(draft))
        session = Session(draft, sqlite3.connect(draft, isolation_level=None))
        session.key = id.encode()
        try:
            # No journal: what is not complete is never used.
            session.run("PRAGMA journal_mode = MEMORY")
            with session.transaction():
                make_tables(session, id)
                if fill:
                    fill(session)
            session.run("PRAGMA journal_mode = WAL")
        finally:
            session.close()
        # From here until the file has its name the index counts as restored, so a killed process leaves nothing half done.
        ownership.record(folder, id, store=draft)
        if fill:
            ownership.mark(folder, id)
            for suffix in ("-wal", "-shm"):
                remove(path.with_name(path.name + suffix))
            if not is_plain_file(path):
                remove(path)
        os.replace(draft, path)
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    finally:
        for left in folder.glob(f"{draft.name}*"):
            remove(left)


def blank(path: Path) -> Session:
    """Open an empty index in memory: what a snapshot contains where no index has been made."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    session = Session(path, connection)
    make_tables(session, "")  # all such are the same, so what is kept of one serves the next
    return session


def make_tables(session: Session, library: str) -> None:
    """Create the tables of an index."""
    for statement in TABLES.split(";"):
        session.run(statement)
    session.run(
        "INSERT INTO state (one, library, vocabulary) VALUES (1, ?, ?)",
        [library, vocabulary_fingerprint()],
    )
    session.run(f"PRAGMA application_id = {APPLICATION}")
    session.run(f"PRAGMA user_version = {VERSION}")
