"""Replace a database that was moved, copied or restored, or has other tables, by a new one.

The old database is not trusted. Documents are read again from their files. Only vectors are copied, if their checksum matches with the
id of the index as the key. They are read from a private copy of the database, with a time limit.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from marklight import ownership
from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.connect import connect, demand_known_schema, time_limit
from marklight.engines.embedded.create import create
from marklight.engines.embedded.session import Session
from marklight.errors import StoreError
from marklight.ownership import Origin
from marklight.private_files import create_private, open_private, remove

_LIMIT_SECONDS = 300.0
"""For reading all vectors; a million takes about 30 s."""
_BLOCK = 4096
_WIDEST = 65_536
"""Numbers of a vector; no model has so many."""


def adopt(folder: Path, reason: str) -> str:
    """Create a new database with the vectors of the old one, and return a notice; the writer lock must be held."""
    before = ownership.owner_id(folder)
    path = folder / ownership.STORE
    copy = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new-copy")
    kept = 0

    def fill(session: Session) -> None:
        nonlocal kept
        kept = _copy_vectors(path, copy, before, session)

    try:
        create(path, fill)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            remove(copy.with_name(copy.name + suffix))
    place = ownership.place_of(before)
    if place is None or ownership.origin(place) is not Origin.OWN:
        ownership.release(before)
    reused = f"; {kept:,} of its vectors are used again" if kept else ""
    return f"the index in {folder} {reason}, so it is rebuilt from the documents{reused}"


def _copy_vectors(path: Path, copy: Path, id: str, into: Session) -> int:
    """Insert the vectors of the database of an index that is copied first; return how many, 0 where it cannot be read."""
    try:
        for suffix in ("", "-wal"):
            _copy_file(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
        source = connect(copy)
        source.key = id.encode()
        try:
            demand_known_schema(source)
            with time_limit(source, _LIMIT_SECONDS):
                models = source.all("SELECT row, name, dimension FROM models")
                return sum(_copy_model(source, into, *model) for model in models)
        finally:
            source.close()
    except (OSError, StoreError):
        into.run("DELETE FROM models")
        into.run("DELETE FROM vectors")
        into.run("DELETE FROM concept_vectors")
        into.run("UPDATE state SET waste = 0")
        return 0


def _copy_file(source: Path, target: Path) -> None:
    """Copy a regular file; nothing is copied where there is none, and OSError is raised for a link."""
    try:
        descriptor = open_private(source)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as read, open(create_private(target), "wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)


def _copy_model(source: Session, into: Session, row: int, name: str, dimension: int) -> int:
    if not isinstance(name, str) or not isinstance(dimension, int) or not 0 < dimension < _WIDEST:
        raise StoreError(f"{source.path} names no model")
    into.run("INSERT INTO models (name, dimension) VALUES (?, ?)", [name, dimension])
    model = into.value("SELECT row FROM models WHERE name = ?", [name])
    places = 0
    for block in _vectors(source, into, "vectors", "digest", row, dimension):
        into.many(
            "INSERT OR IGNORE INTO vectors (model, digest, place, vector, checksum)"
            " VALUES (?, ?, ?, ?, ?)",
            ((model, key, places + at, *value) for at, (key, *value) in enumerate(block)),
        )
        places += len(block)
    for block in _vectors(source, into, "concept_vectors", "term", row, dimension):
        into.many(
            "INSERT OR IGNORE INTO concept_vectors (model, term, vector, checksum) VALUES (?, ?, ?, ?)",
            ((model, *each) for each in block),
        )
    into.run(
        "UPDATE models SET places = ?, last_append = ? WHERE row = ?",
        [places, secrets.token_hex(8), model],
    )
    into.run("UPDATE state SET waste = waste + ?", [places])
    return places


def _vectors(
    source: Session, into: Session, table: str, key: str, model: int, dimension: int
) -> Iterator[list[tuple[str, bytes, int]]]:
    """Yield the sound vectors of a model in blocks, each with the text or digest that it belongs to and its new checksum."""
    rows = source.each(f"SELECT {key}, vector, checksum FROM {table} WHERE model = ?", [model])
    # A crafted table may have no end, but no more rows than fit into the file.
    left = os.path.getsize(source.path) // (4 * dimension)
    while block := list(islice(rows, _BLOCK)):
        left -= len(block)
        if left < 0:
            raise StoreError(f"{source.path} has more vectors than fit into it")
        yield [
            (name, vector, vector_checksum(into.key, name, vector))
            for name, vector, checksum in block
            if isinstance(name, str)
            and isinstance(vector, bytes)
            and len(vector) == 4 * dimension
            and vector_checksum(source.key, name, vector) == checksum
            and np.isfinite(np.frombuffer(vector, dtype="<f4")).all()
        ]
