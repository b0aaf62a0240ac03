"""The vectors of a model as one file that only grows, mapped by readers, made from the tables."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from marklight.engines.embedded.session import Session
from marklight.engines.embedded.trouble import explain
from marklight.engines.unit import unit
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

    from marklight.model import Matrix

OURS = re.compile(r"[0-9a-f]{12}-\d+-\d+\.(f32|signs|[0-9a-f]{8}\.new)")
"""Names of such files, whole or begun; others may be the user's."""

HEADER_BYTES = 4096
"""One page of memory, so that the rows are aligned."""
_APPENDS = 64
"""Appends that the header names: so many commits may come while a reader holds an older snapshot."""
_BLOCK = 4096


class InUse(StoreError):
    """Windows lets nobody replace a file that a reader has mapped."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the vectors of one model stand in one view."""

    row: int
    name: str
    dimension: int
    epoch: int
    places: int
    last_append: str
    """The id of the append that made the file that long."""


def shelf(session: Session, model: str) -> Shelf | None:
    """The shelf of a model, None where nothing was ever embedded with it."""
    row = session.one(
        "SELECT row, name, dimension, epoch, places, last_append FROM models WHERE name = ?",
        [model],
    )
    return Shelf(*row) if row else None


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """One file; rows beyond those that a view counts are of no meaning to it."""

    path: Path
    library: str
    shelf: Shelf

    suffix: ClassVar[str] = "f32"
    what: ClassVar[str] = "vectors"
    number: ClassVar[str] = "<f4"

    @classmethod
    def at(cls, folder: Path, library: str, shelf: Shelf) -> Self:
        name = f"{digest(shelf.name, size=6)}-{shelf.row}-{shelf.epoch}.{cls.suffix}"
        return cls(folder / "vectors" / name, library, shelf)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.shelf.dimension

    def row_bytes(self, vectors: Matrix) -> bytes:
        """Vectors of length one as this file holds them."""
        return np.ascontiguousarray(vectors, dtype=self.number).tobytes()

    @property
    def stride(self) -> int:
        return np.dtype(self.number).itemsize * self.width

    @property
    def length(self) -> int:
        """As long as the view needs it."""
        return HEADER_BYTES + self.shelf.places * self.stride

    @property
    def title(self) -> str:
        """Names what the rows are, so that a file from elsewhere is not mistaken for ours."""
        shelf = self.shelf
        what = (self.library, digest(shelf.name), shelf.row, shelf.epoch, shelf.dimension)
        return f"marklight {self.what} 2\n" + " ".join(map(str, what)) + "\n"

    @property
    def last(self) -> str:
        """The line of the header for the append that the view needs."""
        return f"{self.shelf.places} {self.shelf.last_append}"

    def header(self, appends: Sequence[str]) -> bytes:
        """Return the header: what the rows are, then the history of the file, one append a line."""
        text = self.title + "".join(f"{line}\n" for line in appends[-_APPENDS:])
        return text.encode().ljust(HEADER_BYTES, b" ")

    def appends(self, head: bytes) -> list[str]:
        """Return the appends that a header names; none where it is of another file."""
        text = head.decode("ascii", "replace")
        title = self.title
        return text[len(title) :].split("\n")[:-1] if text.startswith(title) else []

    def is_whole(self) -> bool:
        """Return true for a file of this library and history that is at least as long as the view needs."""
        try:
            with open(open_private(self.path), "rb") as file:
                known = self.last in self.appends(file.read(HEADER_BYTES))
                return known and os.fstat(file.fileno()).st_size >= self.length
        except OSError:
            return False

    def map(self) -> NDArray[Any]:
        """The rows of the view, brought into memory by the system as they are read."""
        shape = (self.shelf.places, self.width)
        if not self.shelf.places:
            return np.zeros(shape, dtype=self.number)
        with open(open_private(self.path), "rb") as file:
            return np.asarray(
                np.memmap(file, dtype=self.number, mode="r", offset=HEADER_BYTES, shape=shape)
            )

    def append(self, rows: Matrix, id: str) -> None:
        """Write rows after the last one that counts, over what an aborted commit left there.

        The header comes first: from then on the file belongs to no history but this one.
        """
        try:
            with open(open_private(self.path, os.O_RDWR), "r+b") as file:
                known = self.appends(file.read(HEADER_BYTES))
                kept = known[: known.index(self.last) + 1]
                file.seek(0)
                file.write(self.header([*kept, f"{self.shelf.places + len(rows)} {id}"]))
                file.seek(self.length)
                file.write(self.row_bytes(unit(rows)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise explain(error, self.path) from error

    def rebuild(self, session: Session) -> None:
        """From the tables, in blocks; the old file is replaced when the new one is whole."""
        fresh = self.path.with_suffix(f".{secrets.token_hex(4)}.new")
        try:
            if not is_plain_folder(self.path.parent):
                remove(self.path.parent)  # a file or a link: nothing of ours
            make_private_folder(self.path.parent)
            with open(create_private(fresh), "wb") as file:
                file.write(self.header([self.last]))
                for start, block in self.blocks(session):
                    file.seek(HEADER_BYTES + start * self.stride)
                    file.write(self.row_bytes(block))
                file.truncate(self.length)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(fresh, self.path)
            except PermissionError as error:
                raise InUse(
                    f"{self.path} is in use by another process", "Try again when it is done"
                ) from error
        except OSError as error:
            raise explain(error, self.path) from error
        finally:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)

    def is_true(self, session: Session) -> bool:
        """Whole, and every row as it should be."""
        if not self.is_whole():
            return False
        rows = self.map()
        return all(
            rows[start : start + len(block)].tobytes() == self.row_bytes(block)
            for start, block in self.blocks(session)
        )

    def blocks(self, session: Session) -> Iterator[tuple[int, Matrix]]:
        """The vectors as they should be, with the place of each block's first."""
        for start in range(0, self.shelf.places, _BLOCK):
            end = min(start + _BLOCK, self.shelf.places)
            block = np.zeros((end - start, self.shelf.dimension), dtype=np.float32)
            for place, vector in session.all(
                "SELECT place, vector FROM vectors WHERE model = ? AND place >= ? AND place < ?"
                " AND length(vector) = ?",  # a damaged one is replaced by `doctor`
                [self.shelf.row, start, end, 4 * self.shelf.dimension],
            ):
                block[place - start] = np.frombuffer(vector, dtype="<f4")
            yield start, unit(block)

    def read(self, session: Session) -> Matrix:
        """All rows in memory, for a view whose file is gone and that may not make another."""
        return np.concatenate(
            [
                np.zeros((0, self.shelf.dimension), dtype=np.float32),
                *(block for _, block in self.blocks(session)),
            ]
        )
