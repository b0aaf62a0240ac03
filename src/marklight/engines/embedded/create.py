"""Create the database of an index, or replace one that must not be trusted by a new one with the same vectors.

The tables are made in a file under another name, which is renamed when they are complete. A database that was moved, copied or
restored, or has an unknown schema, is not trusted: documents are read again from their files. The same is done with a database of the
format before this one. Only vectors are copied, if their checksum matches with the id of the index as the key. They are read from a
private copy of the database, with a time limit.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from marklight import ownership
from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.schema import APPLICATION, TABLES, VERSION
from marklight.engines.embedded.session import (
    OlderFormat,
    SqliteSession,
    check_schema,
    connect,
    time_limit,
)
from marklight.engines.embedded.sqlite_errors import explain
from marklight.errors import StoreError
from marklight.ownership import Provenance
from marklight.place import INDEX_FOLDER
from marklight.private_files import (
    create_private,
    is_plain_file,
    make_private_folder,
    open_private,
    remove,
)
from marklight.text import vocabulary_fingerprint

HISTORY = "history"
"""Folder of another index that may be inside one from its beginning: the history index."""
_DRAFTS = "library.db.*.new*"
"""Databases and copies that a killed process left incomplete."""
_COPY_SECONDS = 300.0
"""Time limit for copying all vectors; a million takes about 30 s."""
_BLOCK_ROWS = 4096
"""Vectors copied with one statement: 6 MB with 384 numbers each."""
_MAX_DIMENSION = 65_536
"""Numbers of a vector; no embedding model has so many."""


def make_folder(folder: Path) -> None:
    """Create the folder of an index and claim it; git ignores it, unless it also contains files of the user."""
    # A folder of documents that was moved away is not created again: the user could not move it back.
    for parent in (folder, *folder.parents):
        if parent.name == INDEX_FOLDER and not parent.parent.is_dir():
            raise StoreError(
                f"The folder {parent.parent} does not exist",
                "Move it back, or name another folder",
            )
    try:
        # The history index may be created first: the folder around it is an index of this user as well.
        for path in (folder.parent, folder) if folder.name == HISTORY else (folder,):
            make_private_folder(path)
            if ownership.origin(path) is not Provenance.NONE:
                continue
            if all(entry.name == HISTORY for entry in path.iterdir()):
                _write_gitignore(path)
            ownership.claim(path)
    except OSError as error:
        raise StoreError(
            f"Cannot create the index folder {folder} ({os.strerror(error.errno or 0)})",
            'Choose another folder with the setting `engine = "file:PATH"`',
        ) from error


def _write_gitignore(folder: Path) -> None:
    with suppress(FileExistsError), open(create_private(folder / ".gitignore"), "wb") as file:
        file.write(b"*\n")


def create(path: Path, fill: Callable[[SqliteSession], None] | None = None) -> None:
    """Create the database of a claimed index; the writer lock must be held.

    With `fill`, which inserts the first rows, the database replaces another one and the index gets a new id.
    """
    folder = path.parent
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    id = ownership.new_id() if fill else ownership.owner_id(folder)
    try:
        for leftover in folder.glob(_DRAFTS):
            remove(leftover)
        os.close(create_private(draft))
        session = SqliteSession(draft, sqlite3.connect(draft, isolation_level=None))
        session.key = id.encode()
        try:
            # No journal: an incomplete database is never used.
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


def replace_untrusted(folder: Path, reason: str) -> str:
    """Replace the database by a new one with the same vectors, and return a notice; the writer lock must be held."""
    old_id = ownership.owner_id(folder)
    path = folder / ownership.STORE
    copy = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new-copy")
    copied = 0

    def fill(session: SqliteSession) -> None:
        nonlocal copied
        copied = _copy_vectors(path, copy, old_id, session)

    try:
        create(path, fill)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            remove(copy.with_name(copy.name + suffix))
    recorded = ownership.place_of(old_id)
    if recorded is None or ownership.origin(recorded) is not Provenance.OWN:
        ownership.release(old_id)
    reused = f"; {copied:,} of its vectors are reused" if copied else ""
    return f"The index in {folder} {reason}, so it is rebuilt from the documents{reused}"


def _copy_vectors(path: Path, copy: Path, id: str, target: SqliteSession) -> int:
    """Copy a database and insert its vectors; return how many, 0 where it cannot be read."""
    try:
        for suffix in ("", "-wal"):
            _copy_file(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
        source = connect(copy)
        source.key = id.encode()
        try:
            term_vectors = _term_vector_table(source)
            with time_limit(source, _COPY_SECONDS):
                models = source.all("SELECT row, name, dimension FROM models")
                return sum(_copy_model(source, target, term_vectors, *model) for model in models)
        finally:
            source.close()
    except (OSError, StoreError):
        target.run("DELETE FROM models")
        target.run("DELETE FROM vectors")
        target.run("DELETE FROM term_vectors")
        target.run("UPDATE state SET unused_vectors = 0")
        return 0


def _term_vector_table(source: SqliteSession) -> str:
    """Return the name of the table of term vectors; raise UnknownSchema for a format whose vectors cannot be copied."""
    try:
        check_schema(source)
        return "term_vectors"
    except OlderFormat:
        return "concept_vectors"


def _copy_file(source: Path, target: Path) -> None:
    """Copy a regular file; do nothing where there is none, and raise OSError for a link."""
    try:
        descriptor = open_private(source)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as read, open(create_private(target), "wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)


def _copy_model(
    source: SqliteSession,
    target: SqliteSession,
    term_vectors: str,
    row: int,
    name: str,
    dimension: int,
) -> int:
    if (
        not isinstance(name, str)
        or not isinstance(dimension, int)
        or not 0 < dimension < _MAX_DIMENSION
    ):
        raise StoreError(f"{source.path} contains an invalid model")
    target.run("INSERT INTO models (name, dimension) VALUES (?, ?)", [name, dimension])
    model = target.value("SELECT row FROM models WHERE name = ?", [name])
    count = 0
    for block in _valid_vectors(source, target, "vectors", "digest", row, dimension):
        target.many(
            "INSERT OR IGNORE INTO vectors (model, digest, file_row, vector, checksum)"
            " VALUES (?, ?, ?, ?, ?)",
            ((model, key, count + index, *value) for index, (key, *value) in enumerate(block)),
        )
        count += len(block)
    for block in _valid_vectors(source, target, term_vectors, "term", row, dimension):
        target.many(
            "INSERT OR IGNORE INTO term_vectors (model, term, vector, checksum) VALUES (?, ?, ?, ?)",
            ((model, *columns) for columns in block),
        )
    target.run(
        "UPDATE models SET file_rows = ?, last_append = ? WHERE row = ?",
        [count, secrets.token_hex(8), model],
    )
    target.run("UPDATE state SET unused_vectors = unused_vectors + ?", [count])
    return count


def _valid_vectors(
    source: SqliteSession, target: SqliteSession, table: str, key: str, model: int, dimension: int
) -> Iterator[list[tuple[str, bytes, int]]]:
    """Yield the valid vectors of a model in blocks, each with its text digest or term and its new checksum."""
    import numpy as np

    rows = source.each(f"SELECT {key}, vector, checksum FROM {table} WHERE model = ?", [model])
    # A crafted table may yield rows without end, but no more rows than fit into the file are valid.
    remaining = os.path.getsize(source.path) // (4 * dimension)
    while block := list(islice(rows, _BLOCK_ROWS)):
        remaining -= len(block)
        if remaining < 0:
            raise StoreError(f"{source.path} has more vectors than fit into the file")
        yield [
            (name, vector, vector_checksum(target.key, name, vector))
            for name, vector, checksum in block
            if isinstance(name, str)
            and isinstance(vector, bytes)
            and len(vector) == 4 * dimension
            and vector_checksum(source.key, name, vector) == checksum
            and np.isfinite(np.frombuffer(vector, dtype="<f4")).all()
        ]
