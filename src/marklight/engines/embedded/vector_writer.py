"""Vectors into the tables and their matrix, kept by what they are of and never made twice."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from marklight.engines.embedded.binary_vectors import BinaryVectorFile
from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.counters import ORPHAN
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.vector_files import (
    FILE_NAME,
    FileInUse,
    VectorFile,
    VectorFileInfo,
    vector_file_info,
)
from marklight.errors import StoreError
from marklight.model import Vectors
from marklight.private_files import is_plain_folder

_MOST_HOLES = 0.25
"""Share of dropped rows at which a matrix is written anew without them."""


def add(session: Session, folder: Path, library: str, vectors: Vectors, exact_most: int) -> None:
    """New vectors, appended to the matrix before the tables are committed."""
    if not vectors.digests:
        return
    place = model_file_info(session, vectors)
    known = {
        digest
        for (digest,) in session.all(
            "SELECT digest FROM vectors WHERE model = ? AND digest IN (SELECT value FROM json_each(?))",
            [place.model_row, json_list(vectors.digests)],
        )
    }
    at = {
        digest: index
        for index, digest in reversed(list(enumerate(vectors.digests)))
        if digest not in known
    }
    fresh = sorted(at, key=at.__getitem__)
    if not fresh:
        return
    rows = np.ascontiguousarray(vectors.matrix[[at[digest] for digest in fresh]], dtype="<f4")
    file = VectorFile.at(folder, library, place)
    if not file.is_complete():
        try:
            file.rebuild(session)
        except FileInUse:
            # Under another name, then; the old file is swept away when nobody has it any more.
            session.run("UPDATE models SET epoch = epoch + 1 WHERE row = ?", [place.model_row])
            place = model_file_info(session, vectors)
            file = VectorFile.at(folder, library, place)
            file.rebuild(session)
    append = secrets.token_hex(8)
    file.append(rows, append)
    if place.row_count + len(fresh) > exact_most:
        signs = BinaryVectorFile.at(folder, library, place)
        with suppress(FileInUse):  # damaged and mapped: without it, search is slower and as right
            if not signs.is_complete():
                signs.rebuild(session)
            signs.append(rows, append)
    session.many(
        "INSERT INTO vectors (model, digest, place, vector, checksum) VALUES (?, ?, ?, ?, ?)",
        (
            (
                *(place.model_row, digest, place.row_count + index, vector),
                vector_checksum(session.key, digest, vector),
            )
            for index, digest in enumerate(fresh)
            for vector in (rows[index].tobytes(),)
        ),
    )
    _advance(session, place, fresh, append)


def model_file_info(session: Session, vectors: Vectors) -> VectorFileInfo:
    """The shelf of their model, made where it is the first of them."""
    dimension = vectors.matrix.shape[1]
    session.run(
        "INSERT OR IGNORE INTO models (name, dimension) VALUES (?, ?)", [vectors.model, dimension]
    )
    place = vector_file_info(session, vectors.model)
    assert place
    if place.dimension != dimension:
        raise StoreError(
            f"Vectors of {vectors.model} have {dimension} numbers, those in the library"
            f" {place.dimension}",
            "A model that changed must have another fingerprint",
        )
    return place


def _advance(session: Session, place: VectorFileInfo, fresh: list[str], append: str) -> None:
    """Count the passages that have a vector now, and move up to the first that has none."""
    session.run(
        "UPDATE models SET places = places + ?, last_append = ?, embedded = embedded +"
        " (SELECT count(*) FROM chunks WHERE digest IN (SELECT value FROM json_each(?)))"
        " WHERE row = ?",
        [len(fresh), append, json_list(fresh), place.model_row],
    )
    session.run(
        "UPDATE models SET done = coalesce("
        " (SELECT c.row - 1 FROM chunks c WHERE c.row > models.done AND NOT EXISTS"
        "  (SELECT 1 FROM vectors v WHERE v.digest = c.digest AND v.model = models.row)"
        "  ORDER BY c.row LIMIT 1),"
        " (SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0) WHERE row = ?",
        [place.model_row],
    )


def clean(session: Session, folder: Path, library: str, keep: Iterable[str]) -> int:
    """Drop what nobody uses; a matrix with many holes is written anew under the next epoch."""
    kept = json_list(keep)
    dropped = 0
    for row, _ in session.all(
        "SELECT row, name FROM models WHERE name NOT IN (SELECT value FROM json_each(?))", [kept]
    ):
        dropped += session.run("DELETE FROM vectors WHERE model = ?", [row])
        session.run("DELETE FROM models WHERE row = ?", [row])
    dropped += session.run(f"DELETE FROM vectors WHERE {ORPHAN}")
    session.run("UPDATE state SET waste = 0")
    for name, row, places in session.all("SELECT name, row, places FROM models"):
        left = [
            each
            for (each,) in session.all(
                "SELECT row FROM vectors WHERE model = ? ORDER BY place", [row]
            )
        ]
        if places - len(left) > _MOST_HOLES * places:
            session.many(
                "UPDATE vectors SET place = ? WHERE row = ?",
                ((place, vector) for place, vector in enumerate(left)),
            )
            session.run(
                "UPDATE models SET epoch = epoch + 1, places = ?, last_append = ? WHERE row = ?",
                [len(left), secrets.token_hex(8), row],
            )
            moved = vector_file_info(session, name)
            assert moved
            VectorFile.at(folder, library, moved).rebuild(session)
    return dropped


def sweep(session: Session, folder: Path, library: str) -> int:
    """Delete matrix files that no model uses any more, as a killed run may leave them."""
    shelves = [
        vector_file_info(session, name) for (name,) in session.all("SELECT name FROM models")
    ]
    kinds = (VectorFile, BinaryVectorFile)
    used = {kind.at(folder, library, each).path.name for each in shelves if each for kind in kinds}
    swept = 0
    if not is_plain_folder(folder / "vectors"):
        return 0
    for path in (folder / "vectors").glob("*"):
        if path.name in used or not FILE_NAME.fullmatch(path.name):
            continue
        try:
            path.unlink(missing_ok=True)
            swept += 1
        except PermissionError:  # Windows keeps what someone has mapped: the next sweep takes it
            continue
    return swept
