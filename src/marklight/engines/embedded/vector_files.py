"""Vector files: the vectors of a model as one append-only matrix on disk, memory-mapped by readers.

They are derived from the tables and are rebuilt from them where one is missing or damaged. A commit inserts vectors into the tables
by text digest and appends them to the files. numpy is imported by the functions that need it: opening an engine must not load it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.session import explain
from marklight.errors import StoreError
from marklight.private_files import (
    create_private,
    is_plain_folder,
    make_private_folder,
    open_private,
    remove,
)
from marklight.text import digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.engines.embedded.session import SqliteSession, WriterLock
    from marklight.engines.embedded.store import Store
    from marklight.engines.relational.write import AddedVectors
    from marklight.model import Matrix, Vectors

_FILE_NAME = re.compile(r"[0-9a-f]{12}-\d+-\d+\.(f32|signs|[0-9a-f]{8}\.new)")
"""Names of vector files, complete or being written; files with other names may be the user's."""

HEADER_BYTES = 4096
"""One page of memory, so that the rows are aligned."""
_HEADER_APPENDS = 64
"""Appends that the header lists: so many commits may follow while a reader holds an older snapshot."""
_WORD_BITS = 64
_BLOCK_ROWS = 4096
"""Rows read from the tables at once: 6 MB with 384 numbers each."""
_MAX_DELETED_SHARE = 0.25
"""Share of deleted rows above which a vector file is rewritten without them: every search reads them too."""


class FileInUse(StoreError):
    """Raised on Windows, which does not replace a file that a reader has mapped."""


@dataclass(frozen=True, slots=True)
class VectorFileInfo:
    """State of the vector file of one model in one snapshot: a row of the table `models`."""

    model_row: int
    model: str
    dimension: int
    epoch: int
    """Number of the file: raised when the rows are compacted into a new one."""
    row_count: int
    """Rows of the file that the snapshot contains, deleted ones included; the column `file_rows`."""
    last_append: str
    """Random id of the append that made the file that long."""


def vector_file_info(session: SqliteSession, model: str) -> VectorFileInfo | None:
    """Return the state of a model's vector file; None where nothing was ever embedded with it."""
    row = session.one(
        "SELECT row, name, dimension, epoch, file_rows, last_append FROM models WHERE name = ?",
        [model],
    )
    return VectorFileInfo(*row) if row else None


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file of float32 vectors of unit length; rows beyond the count of a snapshot are no part of it."""

    path: Path
    library: str
    info: VectorFileInfo

    label: ClassVar[str] = "vector file"
    suffix: ClassVar[str] = "f32"
    header_kind: ClassVar[str] = "vectors"
    number: ClassVar[str] = "<f4"
    number_bytes: ClassVar[int] = 4

    @classmethod
    def at(cls, folder: Path, library: str, info: VectorFileInfo) -> Self:
        """Return the file of a model in the folder of an index."""
        name = f"{digest(info.model, size=6)}-{info.model_row}-{info.epoch}.{cls.suffix}"
        return cls(folder / "vectors" / name, library, info)

    @property
    def width(self) -> int:
        """Return the count of numbers in a row."""
        return self.info.dimension

    def row_bytes(self, vectors: Matrix) -> bytes:
        """Encode vectors of unit length as rows of this file."""
        import numpy as np

        return np.ascontiguousarray(vectors, dtype=self.number).tobytes()

    @property
    def stride(self) -> int:
        """Return the bytes of a row."""
        return self.number_bytes * self.width

    @property
    def length(self) -> int:
        """Return the bytes that the snapshot needs."""
        return HEADER_BYTES + self.info.row_count * self.stride

    @property
    def title(self) -> str:
        """Return the first lines of the header: they identify the rows, so that a foreign file is detected."""
        info = self.info
        parts = (self.library, digest(info.model), info.model_row, info.epoch, info.dimension)
        return f"marklight {self.header_kind} 2\n" + " ".join(map(str, parts)) + "\n"

    @property
    def last_line(self) -> str:
        """Return the header line of the append that the snapshot needs."""
        return f"{self.info.row_count} {self.info.last_append}"

    def header(self, appends: Sequence[str]) -> bytes:
        """Return the header: the title, then the history of the file, one append a line."""
        text = self.title + "".join(f"{line}\n" for line in appends[-_HEADER_APPENDS:])
        return text.encode().ljust(HEADER_BYTES, b" ")

    def appends(self, header: bytes) -> list[str]:
        """Return the appends that a header lists; none where it is of another file."""
        text = header.decode("ascii", "replace")
        title = self.title
        return text[len(title) :].split("\n")[:-1] if text.startswith(title) else []

    def is_complete(self) -> bool:
        """Return true for a file of this library and history that is at least as long as the snapshot needs."""
        try:
            with open(open_private(self.path), "rb") as file:
                known = self.last_line in self.appends(file.read(HEADER_BYTES))
                return known and os.fstat(file.fileno()).st_size >= self.length
        except OSError:
            return False

    def map(self) -> NDArray[Any]:
        """Map the rows of the snapshot into memory; the system reads them on access."""
        import numpy as np

        shape = (self.info.row_count, self.width)
        if not self.info.row_count:
            return np.zeros(shape, dtype=self.number)
        with open(open_private(self.path), "rb") as file:
            return np.asarray(
                np.memmap(file, dtype=self.number, mode="r", offset=HEADER_BYTES, shape=shape)
            )

    def append(self, rows: Matrix, id: str) -> None:
        """Write rows after the last committed one, over what an aborted commit left there.

        The header is written first: from then on the file belongs to no history but this one.
        """
        from marklight.engines.vector_math import unit_rows

        try:
            with open(open_private(self.path, os.O_RDWR), "r+b") as file:
                known = self.appends(file.read(HEADER_BYTES))
                committed = known[: known.index(self.last_line) + 1]
                file.seek(0)
                file.write(self.header([*committed, f"{self.info.row_count + len(rows)} {id}"]))
                file.seek(self.length)
                file.write(self.row_bytes(unit_rows(rows)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise explain(error, self.path) from error

    def rebuild(self, session: SqliteSession) -> None:
        """Write the file from the tables, in blocks; the old one is replaced when the new one is complete."""
        draft = self.path.with_suffix(f".{secrets.token_hex(4)}.new")
        try:
            if not is_plain_folder(self.path.parent):
                remove(self.path.parent)  # a file or a link: not created by this program
            make_private_folder(self.path.parent)
            with open(create_private(draft), "wb") as file:
                file.write(self.header([self.last_line]))
                for start, block in self.blocks(session):
                    file.seek(HEADER_BYTES + start * self.stride)
                    file.write(self.row_bytes(block))
                file.truncate(self.length)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(draft, self.path)
            except PermissionError as error:
                raise FileInUse(
                    f"{self.path} is in use by another process, so it cannot be replaced",
                    "Try again when that process has finished",
                ) from error
        except OSError as error:
            raise explain(error, self.path) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def matches_tables(self, session: SqliteSession) -> bool:
        """Return true for a complete file of which every row equals the vector in the tables."""
        if not self.is_complete():
            return False
        rows = self.map()
        return all(
            rows[start : start + len(block)].tobytes() == self.row_bytes(block)
            for start, block in self.blocks(session)
        )

    def blocks(self, session: SqliteSession) -> Iterator[tuple[int, Matrix]]:
        """Yield the vectors of the tables in blocks, each with the row number of its first."""
        import numpy as np

        from marklight.engines.vector_math import unit_rows

        for start in range(0, self.info.row_count, _BLOCK_ROWS):
            end = min(start + _BLOCK_ROWS, self.info.row_count)
            block = np.zeros((end - start, self.info.dimension), dtype=np.float32)
            for place, vector in session.all(
                "SELECT file_row, vector FROM vectors WHERE model = ? AND file_row >= ? AND file_row < ?"
                " AND length(vector) = ?",  # a damaged one is replaced by `doctor`
                [self.info.model_row, start, end, 4 * self.info.dimension],
            ):
                block[place - start] = np.frombuffer(vector, dtype="<f4")
            yield start, unit_rows(block)

    def read_tables(self, session: SqliteSession) -> Matrix:
        """Return all rows in memory, for a snapshot whose file is gone and must not be rebuilt now."""
        import numpy as np

        return np.concatenate(
            [
                np.zeros((0, self.info.dimension), dtype=np.float32),
                *(block for _, block in self.blocks(session)),
            ]
        )


@dataclass(frozen=True, slots=True)
class BinaryVectorFile(VectorFile):
    """A file with one sign bit for each number of each vector, a thirtieth of the size of the vector file."""

    label: ClassVar[str] = "binary vector file"
    # Names on disk are older than the term "binary vectors".
    suffix: ClassVar[str] = "signs"
    header_kind: ClassVar[str] = "signs"
    number: ClassVar[str] = "<u8"
    number_bytes: ClassVar[int] = 8

    @property
    def width(self) -> int:
        return -(-self.info.dimension // _WORD_BITS)

    def row_bytes(self, vectors: Matrix) -> bytes:
        from marklight.engines.vector_math import sign_bits

        return sign_bits(vectors).tobytes()


class MappedVectors:
    """Cache of memory-mapped vector files, shared by all snapshots of an engine.

    Mapped files are read without a lock; one thread maps or rebuilds a file while others wait for it.
    """

    def __init__(self, writer_lock: WriterLock, store: Store) -> None:
        self._writer_lock = writer_lock
        self._store = store
        self._guard = Lock()
        self._files: dict[Path, NDArray[Any]] = {}

    def rows(self, file: VectorFile) -> NDArray[Any] | None:
        """Return the rows of the snapshot; None where the file is unusable and cannot be rebuilt now."""
        rows = self._cached(file)
        if rows is None:
            with self._guard:
                rows = self._cached(file)
                if rows is None:
                    rows = self._map(file)
        return rows

    def clear(self) -> None:
        """Drop all mappings; the next reader maps its file again."""
        with self._guard:  # else a thread that maps a file right now would put it back
            self._files = {}

    def _cached(self, file: VectorFile) -> NDArray[Any] | None:
        mapped, count = self._files.get(file.path), file.info.row_count
        return mapped[:count] if mapped is not None and len(mapped) >= count else None

    def _map(self, file: VectorFile) -> NDArray[Any] | None:
        if not file.is_complete():
            self._rebuild(file)
        if not file.is_complete():
            return None
        rows = file.map()
        # Files of other models and epochs are dropped: Windows deletes none that is mapped.
        same = {path: other for path, other in self._files.items() if path.stem == file.path.stem}
        self._files = {**same, file.path: rows}
        return rows

    def _rebuild(self, file: VectorFile) -> None:
        """Rebuild a file where no other process holds the writer lock."""
        try:
            with self._writer_lock.hold(0):
                session = self._store.writer_session()
                newest = vector_file_info(session, file.info.model)
                if newest and newest.epoch == file.info.epoch:
                    type(file)(file.path, file.library, newest).rebuild(session)
        except StoreError:
            return


def add(
    session: SqliteSession, folder: Path, library: str, vectors: Vectors, max_exact_vectors: int
) -> list[AddedVectors]:
    """Insert the vectors that are new and return them; the files are written before the tables are committed."""
    if not vectors.digests:
        return []
    import numpy as np

    from marklight.engines.relational.write import AddedVectors

    info = _model_file_info(session, vectors)
    stored = {
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
        if digest not in stored
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
            info = _model_file_info(session, vectors)
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
        from marklight.engines.relational import vocabulary

        row = _model_file_info(session, vectors).model_row
        vocabulary.add_vectors(session, row, vectors, partial(vector_checksum, session.key))


def _model_file_info(session: SqliteSession, vectors: Vectors) -> VectorFileInfo:
    """Return the state of the model's vector file; the row of a new model is inserted."""
    from marklight.engines.vector_math import check_model_dimension

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
    from marklight.engines.relational.write import UNUSED_VECTOR

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
        if path.name in used or not _FILE_NAME.fullmatch(path.name):
            continue
        try:
            path.unlink(missing_ok=True)
            deleted += 1
        except PermissionError:
            continue  # Windows deletes no file that is mapped: the next sweep tries again
    return deleted
