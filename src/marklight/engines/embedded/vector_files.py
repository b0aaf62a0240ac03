"""Vector files: the vectors of a model, quantised, as one append-only matrix that readers map into memory.

They are the only place of the vectors. The table `vectors` contains the row of each digest in the file, and a checksum. A commit appends
to the file before it commits the tables, so rows beyond the count of a snapshot are no part of it. Vectors of a file that is missing,
damaged or of another history of the index are deleted, and computed again. numpy is imported by the functions that need it: opening an
engine must not load it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

from marklight.engines.embedded.session import check_schema, connect, explain
from marklight.engines.embedded.stored_rows import vector_checksum
from marklight.errors import StoreError
from marklight.lazy import dataclass
from marklight.model import digest
from marklight.platforms import replace_file
from marklight.private_files import (
    create_private,
    is_plain_file,
    is_plain_folder,
    make_private_folder,
    open_private,
    remove_foreign,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marklight.engines.embedded.session import SqliteSession, WriterLock
    from marklight.engines.embedded.store import Store
    from marklight.engines.relational.write import AddedVectors
    from marklight.model import Vector, Vectors

    Rows = NDArray[np.int8]

_FILE_NAME = re.compile(r"[0-9a-f]{12}-\d+-\d+\.(int8|bits|[0-9a-f]{8}\.new)")
"""Names of vector files, complete or being written; files with other names may be the user's."""

HEADER_BYTES = 4096
"""One page of memory, so that the rows are aligned."""
_HEADER_APPENDS = 64
"""Appends that the header lists: so many commits may follow while a reader holds an older snapshot."""
_WORD_BITS = 64
_BLOCK_ROWS = 4096
"""Rows copied or checked at once: 1.5 MB with 384 numbers each."""
_MAX_DELETED_SHARE = 0.25
"""Share of deleted rows above which a vector file is rewritten without them: every search reads them too."""
_GRACE_SECONDS = 60.0
"""Seconds that a rewritten file is kept for snapshots that are older."""
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)
"""Errors of a file that is missing, or of something else in its place. With any other one the file may be intact."""
UNUSABLE = "The vector file is missing, damaged or of another index"
_REUSE_WAIT_SECONDS = 1.0
"""Time limit for waiting while another process locks the database of another index."""


@dataclass(frozen=True, slots=True)
class VectorFileInfo:
    """State of the vector file of one model in one snapshot: a row of the table `models`."""

    model_row: int
    model: str
    dimension: int
    epoch: int
    """Number of the file: raised when its rows are compacted into a new one, or discarded."""
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
    """A file of quantised vectors; rows beyond the count of a snapshot are no part of it."""

    path: Path
    library: str
    info: VectorFileInfo

    suffix: ClassVar[str] = "int8"
    number: ClassVar[str] = "<i1"
    number_bytes: ClassVar[int] = 1

    @classmethod
    def at(cls, folder: Path, library: str, info: VectorFileInfo) -> Self:
        """Return the file of a model in the folder of an index."""
        name = f"{digest(info.model, size=6)}-{info.model_row}-{info.epoch}.{cls.suffix}"
        return cls(folder / "vectors" / name, library, info)

    @property
    def width(self) -> int:
        """Return the count of numbers in a row."""
        return self.info.dimension

    def row_bytes(self, rows: Rows) -> bytes:
        """Encode quantised vectors as rows of this file."""
        return rows.tobytes()

    @property
    def length(self) -> int:
        """Return the bytes that the snapshot needs."""
        return HEADER_BYTES + self.info.row_count * self.number_bytes * self.width

    @property
    def title(self) -> str:
        """Return the first lines of the header: they identify the rows, so that a foreign file is detected."""
        info = self.info
        parts = (self.library, digest(info.model), info.model_row, info.epoch, info.dimension)
        return f"marklight {self.suffix} 1\n" + " ".join(map(str, parts)) + "\n"

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
        """Return true for a file of this library and history that is at least as long as the snapshot needs.

        Raises StoreError where it cannot be read for a reason that may pass.
        """
        try:
            with open(open_private(self.path), "rb") as file:
                listed = self.last_line in self.appends(file.read(HEADER_BYTES))
                return listed and os.fstat(file.fileno()).st_size >= self.length
        except OSError as error:
            if error.errno in _NO_FILE:
                return False
            raise explain(error, self.path) from error

    def map(self) -> NDArray[Any]:
        """Map the rows of the snapshot into memory; the system reads them on access."""
        import numpy as np

        shape = (self.info.row_count, self.width)
        if not self.info.row_count:
            return np.zeros(shape, dtype=self.number)
        try:
            with open(open_private(self.path), "rb") as file:
                return np.asarray(
                    np.memmap(file, dtype=self.number, mode="r", offset=HEADER_BYTES, shape=shape)
                )
        except OSError as error:
            raise explain(error, self.path) from error

    def append(self, rows: Rows, id: str) -> None:
        """Write rows after the last committed one, over what an aborted commit left there.

        The header is written first: from then on the file belongs to no history but this one.
        """
        try:
            with open(open_private(self.path, os.O_RDWR), "r+b") as file:
                listed = self.appends(file.read(HEADER_BYTES))
                committed = listed[: listed.index(self.last_line) + 1]
                file.seek(0)
                file.write(self.header([*committed, f"{self.info.row_count + len(rows)} {id}"]))
                file.seek(self.length)
                file.write(self.row_bytes(rows))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise explain(error, self.path) from error

    def write(self, blocks: Iterable[Rows] = ()) -> None:
        """Write the file with these rows, all that the snapshot needs; an old one is replaced when it is complete."""
        draft = self.path.with_suffix(f".{os.urandom(4).hex()}.new")
        try:
            remove_foreign(self.path.parent, stat.S_ISDIR)
            make_private_folder(self.path.parent)
            with open(create_private(draft), "wb") as file:
                file.write(self.header([self.last_line]))
                for block in blocks:
                    file.write(self.row_bytes(block))
                file.flush()
                os.fsync(file.fileno())
            replace_file(draft, self.path)
        except OSError as error:
            raise explain(error, self.path) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class BinaryVectorFile(VectorFile):
    """A file with one sign bit for each number of each vector, an eighth of the vector file, which it is derived from."""

    suffix: ClassVar[str] = "bits"
    number: ClassVar[str] = "<u8"
    number_bytes: ClassVar[int] = 8

    @property
    def width(self) -> int:
        return -(-self.info.dimension // _WORD_BITS)

    def row_bytes(self, rows: Rows) -> bytes:
        from marklight.vector_math import sign_bits

        return sign_bits(rows).tobytes()

    def matches(self, vectors: Rows) -> bool:
        """Return true for a complete file of which every row has the signs of the vector."""
        if not self.is_complete():
            return False
        rows = self.map()
        return all(
            rows[start : start + len(block)].tobytes() == self.row_bytes(block)
            for start, block in blocks(vectors)
        )


_SUFFIXES = (VectorFile.suffix, BinaryVectorFile.suffix)


def blocks(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield parts of a matrix, each with the number of its first row."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        yield start, rows[start : start + _BLOCK_ROWS]


class MappedVectors:
    """Cache of memory-mapped vector files, shared by all snapshots of an engine; a small one is decoded in memory.

    Mapped files are read without a lock; one thread maps or rebuilds a file while others wait for it.
    """

    def __init__(self, writer_lock: WriterLock, store: Store, max_exact_vectors: int) -> None:
        self._writer_lock = writer_lock
        self._store = store
        self._max_exact_vectors = max_exact_vectors
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
            self._repair(file)
            if not file.is_complete():
                if isinstance(file, BinaryVectorFile):
                    return None  # without them, search is slower but correct
                self._store.notices.append(
                    f"{UNUSABLE}: passages are found by their words alone until they are embedded again"
                )
                return None
        rows = file.map()
        if file.info.row_count <= self._max_exact_vectors:
            from marklight.vector_math import decode_vectors

            rows = decode_vectors(rows)  # every search reads all of them
        # Files of other epochs are dropped: Windows deletes none that is mapped.
        model = file.path.stem.rpartition("-")[0]
        kept = {
            path: other
            for path, other in self._files.items()
            if path.stem == file.path.stem or path.stem.rpartition("-")[0] != model
        }
        self._files = {**kept, file.path: rows}
        return rows

    def _repair(self, file: VectorFile) -> None:
        """Rebuild binary vectors, or discard vectors, where no other process holds the writer lock."""
        with suppress(StoreError), self._writer_lock.hold(0):
            session = self._store.writer_session()
            newest = vector_file_info(session, file.info.model)
            if newest is None or newest.epoch != file.info.epoch:
                return
            source = VectorFile(
                file.path.with_suffix(f".{VectorFile.suffix}"), file.library, newest
            )
            if not source.is_complete():
                with session.transaction():
                    discard(session, newest)
            elif isinstance(file, BinaryVectorFile):
                derived = BinaryVectorFile(file.path, file.library, newest)
                derived.write(block for _, block in blocks(source.map()))


def discard(session: SqliteSession, info: VectorFileInfo) -> None:
    """Delete the vectors of a model whose file is unusable: they are computed again, into a file with another name."""
    from marklight.engines.relational.write import UNUSED_VECTOR

    session.run("DELETE FROM vectors WHERE model = ?", [info.model_row])
    session.run(
        "UPDATE models SET epoch = epoch + 1, file_rows = 0, last_append = '', embedded = 0, embedded_to = 0"
        " WHERE row = ?",
        [info.model_row],
    )
    session.run(
        "UPDATE state SET generation = generation + 1,"
        f" unused_vectors = (SELECT count(*) FROM vectors WHERE {UNUSED_VECTOR})"
    )


def add(
    session: SqliteSession, folder: Path, library: str, vectors: Vectors, max_exact_vectors: int
) -> AddedVectors | None:
    """Insert the vectors that are new and return them; None if all are stored. The files are written before the tables are committed."""
    if not vectors.digests:
        return None
    from marklight.engines.relational.write import AddedVectors
    from marklight.vector_math import encode_vectors

    info = _model_file_info(session, vectors)
    if info.row_count and not VectorFile.at(folder, library, info).is_complete():
        discard(session, info)
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
        return None
    rows = encode_vectors(vectors.matrix[[position[digest] for digest in fresh]])
    file, append_id = VectorFile.at(folder, library, info), os.urandom(8).hex()
    if not info.row_count:
        file.write()
    file.append(rows, append_id)
    if info.row_count + len(fresh) > max_exact_vectors:
        binary = BinaryVectorFile.at(folder, library, info)
        with suppress(StoreError):  # damaged and mapped: without it, search is slower but correct
            if not binary.is_complete():
                binary.write(block for _, block in blocks(file.map()))
            binary.append(rows, append_id)
    session.insert(
        "vectors",
        "model, file_row, digest, checksum",
        (
            (info.model_row, place, digest, vector_checksum(session.key, digest, row.tobytes()))
            for place, (digest, row) in enumerate(zip(fresh, rows, strict=True), info.row_count)
        ),
    )
    _update_model(session, info, len(fresh), append_id)
    return AddedVectors(info.model_row, fresh)


def damaged_rows(session: SqliteSession, info: VectorFileInfo, rows: Rows) -> list[int]:
    """Return the rows of a file that do not match the checksums in the tables."""
    return [
        place
        for place, name, stored in session.each(
            "SELECT file_row, digest, checksum FROM vectors WHERE model = ?", [info.model_row]
        )
        if place >= len(rows) or vector_checksum(session.key, name, rows[place].tobytes()) != stored
    ]


def stored_vectors(folder: Path, model: str, digests: Sequence[str]) -> dict[str, Vector]:
    """Return vectors of another index by text digest; those that are missing or damaged are left out."""
    from marklight.vector_math import decode_vectors

    if not is_plain_file(folder / "library.db"):
        return {}
    try:
        session = connect(folder / "library.db", wait_seconds=_REUSE_WAIT_SECONDS)
    except StoreError:
        return {}
    try:
        check_schema(session)
        library = str(session.value("SELECT library FROM state"))
        info = vector_file_info(session, model)
        if info is None:
            return {}
        file = VectorFile.at(folder, library, info)
        if not file.is_complete():
            return {}
        rows, key = file.map(), library.encode()
        places = {
            name: place
            for name, place, checksum in session.all(
                "SELECT v.digest, v.file_row, v.checksum FROM json_each(?) d CROSS JOIN vectors v"
                " ON v.digest = d.value AND v.model = ? AND v.file_row < ?",
                [list(digests), info.model_row, info.row_count],
            )
            if vector_checksum(key, name, rows[place].tobytes()) == checksum
        }
        return dict(zip(places, decode_vectors(rows[list(places.values())]), strict=True))
    except (StoreError, OSError):
        return {}
    finally:
        session.close()


def add_term_vectors(session: SqliteSession, vectors: Vectors) -> None:
    """Insert term vectors; existing ones stay as they are."""
    if vectors.digests:
        from marklight.engines.relational import vocabulary

        row = _model_file_info(session, vectors).model_row
        vocabulary.add_vectors(session, row, vectors, partial(vector_checksum, session.key))


def _model_file_info(session: SqliteSession, vectors: Vectors) -> VectorFileInfo:
    """Return the state of the model's vector file; the row of a new model is inserted."""
    from marklight.vector_math import check_model_dimension

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
    from marklight.engines.relational.write import update_embedded_to

    session.run(
        "UPDATE models SET file_rows = file_rows + ?, last_append = ? WHERE row = ?",
        [added, append_id, info.model_row],
    )
    update_embedded_to(session, info.model_row)


def compact(session: SqliteSession, folder: Path, library: str) -> None:
    """Rewrite the vector files with many deleted rows under the next epoch."""
    for name, row, count in session.all("SELECT name, row, file_rows FROM models"):
        remaining = [
            place
            for (place,) in session.all(
                "SELECT file_row FROM vectors WHERE model = ? ORDER BY file_row", [row]
            )
        ]
        if count - len(remaining) > _MAX_DELETED_SHARE * count:
            _compact(session, folder, library, name, remaining)


def _compact(
    session: SqliteSession, folder: Path, library: str, model: str, remaining: Sequence[int]
) -> None:
    """Write the remaining rows of a vector file, in order, into one of the next epoch."""
    info = vector_file_info(session, model)
    assert info
    old = VectorFile.at(folder, library, info)
    if not old.is_complete():
        discard(session, info)
        return
    session.many(
        "UPDATE vectors SET file_row = ? WHERE model = ? AND file_row = ?",
        ((new, info.model_row, place) for new, place in enumerate(remaining) if new != place),
    )
    session.run(
        "UPDATE models SET epoch = epoch + 1, file_rows = ?, last_append = ? WHERE row = ?",
        [len(remaining), os.urandom(8).hex(), info.model_row],
    )
    new_info = vector_file_info(session, model)
    assert new_info
    rows = old.map()
    starts = range(0, len(remaining), _BLOCK_ROWS)
    VectorFile.at(folder, library, new_info).write(
        rows[remaining[start : start + _BLOCK_ROWS]] for start in starts
    )
    os.utime(old.path)


def sweep(session: SqliteSession, folder: Path, library: str) -> int:
    """Delete vector files that no model uses, such as those that a killed process leaves; return how many."""
    infos = [vector_file_info(session, name) for (name,) in session.all("SELECT name FROM models")]
    files = [VectorFile.at(folder, library, info) for info in infos if info]
    used = {file.path.with_suffix(f".{suffix}").name for file in files for suffix in _SUFFIXES}
    used |= {old for file in files if (old := _replaced_lately(file))}
    deleted = 0
    if not is_plain_folder(folder / "vectors"):
        return 0
    for path in (folder / "vectors").glob("*"):
        if path.name in used or not _FILE_NAME.fullmatch(path.name):
            continue
        try:
            path.unlink(missing_ok=True)
            deleted += 1
        except OSError:
            continue  # Windows deletes no file that is mapped: the next sweep tries again
    return deleted


def _replaced_lately(file: VectorFile) -> str:
    """Return the name of the file before a compaction of less than a minute ago, else an empty text."""
    old = VectorFile.at(
        file.path.parent.parent, file.library, replace(file.info, epoch=file.info.epoch - 1)
    )
    try:
        age = time.time() - old.path.stat().st_mtime
    except OSError:
        return ""
    return old.path.name if age < _GRACE_SECONDS else ""
