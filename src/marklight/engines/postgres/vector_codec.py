"""Encode vectors and lists as parameters in PostgreSQL's binary format, and decode stored vectors, without loss.

numpy is imported by the functions that need it, so that opening a connection does not load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from marklight.model import Matrix, Vector

_BIGINT = 20
"""Object id of the type bigint, the same in every database."""
_ARRAY = Struct(">iiIii")
"""Header of an array: number of dimensions, whether it contains NULL, object id of the type, length, first subscript."""


class Packed(bytes):
    """A parameter that is in binary format already; a cast in the statement names its type, as in `?::vector`."""


class PackedDumper(Dumper):
    """Sends packed parameters unchanged, without a type."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: Packed) -> Buffer | None:
        return obj


def pack_vector(vector: Vector) -> Packed:
    """Encode a vector for `?::vector`, which accepts finite numbers only, in the format that `vector_send` returns."""
    return Packed(_records(vector[None], _layout(len(vector)))["vector"].tobytes())


def pack_vectors(matrix: Matrix, vector_type: int) -> Packed:
    """Encode the rows of a matrix for `?::vector[]`; `vector_type` is the object id of the type vector."""
    data = _records(matrix, _layout(matrix.shape[1])).tobytes()
    return Packed(_ARRAY.pack(1, 0, vector_type, len(matrix), 1) + data)


def pack_integers(numbers: Sequence[int]) -> Packed:
    """Encode integers for `?::bigint[]`: psycopg takes 2 µs for each, which is longer than a search of 10,000."""
    import numpy as np

    records = np.empty(len(numbers), dtype=[("bytes", ">i4"), ("number", ">i8")])
    records["bytes"] = 8
    records["number"] = numbers
    dimensions = 1 if len(numbers) else 0  # PostgreSQL's empty array has none
    header = _ARRAY.pack(dimensions, 0, _BIGINT, len(numbers), 1)
    return Packed(header[: 12 + 8 * dimensions] + records.tobytes())


def unpack(rows: Sequence[bytes], dimension: int) -> Matrix:
    """Return vectors as rows with the bits that were stored, from the bytes that `vector_send` returns."""
    import numpy as np

    numbers = np.frombuffer(b"".join(rows), dtype=_layout(dimension)["vector"])["numbers"]
    return np.ascontiguousarray(numbers.reshape(len(rows), dimension), dtype=np.float32)


def _layout(dimension: int) -> Any:
    """Return the type of an element in an array of vectors: its length, then the vector itself."""
    import numpy as np

    numbers: tuple[str, DTypeLike, tuple[int]] = ("numbers", ">f4", (dimension,))
    vector = np.dtype([("dimension", ">i2"), ("unused", ">i2"), numbers])
    return np.dtype([("bytes", ">i4"), ("vector", vector)])


def _records(matrix: Matrix, layout: Any) -> Any:
    import numpy as np

    records = np.zeros(len(matrix), dtype=layout)
    records["bytes"] = layout["vector"].itemsize
    records["vector"]["dimension"] = matrix.shape[1]
    records["vector"]["numbers"] = matrix
    return records
