"""Write vectors: insert them into the tables by text digest, append them to the vector files, delete unused ones."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.session import SqliteSession
from marklight.engines.embedded.vector_files import (
    FILE_NAME,
    BinaryVectorFile,
    FileInUse,
    VectorFile,
    VectorFileInfo,
    vector_file_info,
)
from marklight.engines.relational import vocabulary
from marklight.engines.relational.write import UNUSED_VECTOR, AddedVectors
from marklight.engines.vector_math import check_model_dimension
from marklight.model import Vectors
from marklight.private_files import is_plain_folder

_MAX_DELETED_SHARE = 0.25
"""Share of deleted rows above which a vector file is rewritten without them: every search reads them too."""


def add(
    session: SqliteSession, folder: Path, library: str, vectors: Vectors, max_exact_vectors: int
) -> list[AddedVectors]:
    """Insert the vectors that are new and return them; the files are written before the tables are committed."""
    if not vectors.digests:
        return []
    info = model_file_info(session, vectors)
    known = {
        digest
        for (digest,) in session.all(
            "SELECT digest FROM vectors WHERE model = ? AND digest IN (SELECT value FROM json_each(?))",
            [info.model_row, list(vectors.digests)],
        )
    }
    # Reversed, so that of equal digests the first counts.
    position = {
        digest: index
        for index, digest in reversed(list(enumerate(vectors.digests)))
        if digest not in known
    }
    fresh = sorted(position, key=position.__getitem__)
    if not fresh:
        return []
    rows = np.ascontiguousarray(vectors.matrix[[position[digest] for digest in fresh]], dtype="<f4")
    file = VectorFile.at(folder, library, info)
    if not file.is_complete():
        try:
            file.rebuild(session)
        except FileInUse:
            # Use another name; the old file is deleted when no process has it mapped.
            session.run("UPDATE models SET epoch = epoch + 1 WHERE row = ?", [info.model_row])
            info = model_file_info(session, vectors)
            file = VectorFile.at(folder, library, info)
            file.rebuild(session)
    append_id = secrets.token_hex(8)
    file.append(rows, append_id)
    if info.row_count + len(fresh) > max_exact_vectors:
        binary = BinaryVectorFile.at(folder, library, info)
        with suppress(FileInUse):  # damaged and mapped: without it, search is slower but correct
            if not binary.is_complete():
                binary.rebuild(session)
            binary.append(rows, append_id)
    session.many(
        "INSERT INTO vectors (model, digest, file_row, vector, checksum) VALUES (?, ?, ?, ?, ?)",
        (
            (
                *(info.model_row, digest, info.row_count + index, vector),
                vector_checksum(session.key, digest, vector),
            )
            for index, digest in enumerate(fresh)
            for vector in (rows[index].tobytes(),)
        ),
    )
    _update_model(session, info, len(fresh), append_id)
    return [AddedVectors(info.model_row, fresh)]


def add_term_vectors(session: SqliteSession, vectors: Vectors) -> None:
    """Insert term vectors; existing ones stay as they are."""
    if vectors.digests:
        row = model_file_info(session, vectors).model_row
        vocabulary.add_vectors(session, row, vectors, partial(vector_checksum, session.key))


def model_file_info(session: SqliteSession, vectors: Vectors) -> VectorFileInfo:
    """Return the state of the model's vector file; the row of a new model is inserted."""
    dimension = vectors.matrix.shape[1]
    session.run(
        "INSERT OR IGNORE INTO models (name, dimension) VALUES (?, ?)", [vectors.model, dimension]
    )
    info = vector_file_info(session, vectors.model)
    assert info
    check_model_dimension(vectors.model, dimension, info.dimension)
    return info


def _update_model(session: SqliteSession, info: VectorFileInfo, added: int, append_id: str) -> None:
    """Update the row count of the file, and the last row before which all passages have a vector."""
    session.run(
        "UPDATE models SET file_rows = file_rows + ?, last_append = ? WHERE row = ?",
        [added, append_id, info.model_row],
    )
    session.run(
        "UPDATE models SET embedded_to = coalesce("
        " (SELECT c.row - 1 FROM chunks c WHERE c.row > models.embedded_to AND c.digest <> '' AND NOT EXISTS"
        "  (SELECT 1 FROM vectors v WHERE v.digest = c.digest AND v.model = models.row)"
        "  ORDER BY c.row LIMIT 1),"
        " (SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0) WHERE row = ?",
        [info.model_row],
    )


def clean(session: SqliteSession, folder: Path, library: str, keep: Iterable[str]) -> int:
    """Delete unused vectors and all of models not in `keep`; return how many.

    A vector file with many deleted rows is rewritten under the next epoch.
    """
    deleted = 0
    for row, _ in session.all(
        "SELECT row, name FROM models WHERE name NOT IN (SELECT value FROM json_each(?))",
        [list(keep)],
    ):
        deleted += session.run("DELETE FROM vectors WHERE model = ?", [row])
        session.run("DELETE FROM models WHERE row = ?", [row])
    deleted += session.run(f"DELETE FROM vectors WHERE {UNUSED_VECTOR}")
    session.run("UPDATE state SET unused_vectors = 0")
    for name, row, count in session.all("SELECT name, row, file_rows FROM models"):
        remaining = [
            vector
            for (vector,) in session.all(
                "SELECT row FROM vectors WHERE model = ? ORDER BY file_row", [row]
            )
        ]
        if count - len(remaining) > _MAX_DELETED_SHARE * count:
            session.many(
                "UPDATE vectors SET file_row = ? WHERE row = ?",
                ((place, vector) for place, vector in enumerate(remaining)),
            )
            session.run(
                "UPDATE models SET epoch = epoch + 1, file_rows = ?, last_append = ? WHERE row = ?",
                [len(remaining), secrets.token_hex(8), row],
            )
            info = vector_file_info(session, name)
            assert info
            VectorFile.at(folder, library, info).rebuild(session)
    return deleted


def sweep(session: SqliteSession, folder: Path, library: str) -> int:
    """Delete vector files that no model uses, such as those that a killed process leaves; return how many."""
    infos = [vector_file_info(session, name) for (name,) in session.all("SELECT name FROM models")]
    used = {
        kind.at(folder, library, info).path.name
        for info in infos
        if info
        for kind in (VectorFile, BinaryVectorFile)
    }
    deleted = 0
    if not is_plain_folder(folder / "vectors"):
        return 0
    for path in (folder / "vectors").glob("*"):
        if path.name in used or not FILE_NAME.fullmatch(path.name):
            continue
        try:
            path.unlink(missing_ok=True)
            deleted += 1
        except (
            PermissionError
        ):  # Windows deletes no file that is mapped: the next sweep tries again
            continue
    return deleted
