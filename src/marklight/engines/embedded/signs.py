"""A first look at many vectors: only their signs, in a file beside the matrix, a thirtieth of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from marklight.engines.embedded.matrix import MatrixFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.model import Matrix, Vector

    Signs = NDArray[np.uint64]

LEAST, SHARE, FOR_EACH = 2000, 1 / 50, 60
"""How many are looked at closely: so many at least, this share of all, and so many for each that is
wanted. Of the best 20, 99 % are among them, of the best 100 98 % or more (benchmarks/signs.py)."""

_BLOCK = 8192
_BITS = 64


@dataclass(frozen=True, slots=True)
class SignsFile(MatrixFile):
    """One bit for each number of each vector; grown, mended and dropped as the matrix is."""

    suffix: ClassVar[str] = "signs"
    what: ClassVar[str] = "signs"
    number: ClassVar[str] = "<u8"

    @property
    def width(self) -> int:
        return -(-self.shelf.dimension // _BITS)

    def row_bytes(self, vectors: Matrix) -> bytes:
        return signs_of(vectors).tobytes()


def signs_of(vectors: Matrix) -> Signs:
    """The signs of each row; the last word is filled up with zeros."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
    return padded.view("<u8")


def likely(
    signs: Signs, question: Vector, limit: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The places whose signs differ least from the question's, enough to find the best among them."""
    far = _differences(signs, question)
    if among is not None:
        far = far[among]
    count = max(LEAST, int(len(far) * SHARE), limit * FOR_EACH)
    if len(far) <= count:
        return np.arange(len(signs)) if among is None else among
    # Distances are small whole numbers: counting them is quicker than putting them in order.
    cut = np.searchsorted(np.cumsum(np.bincount(far)), count)
    near = np.nonzero(far <= cut)[0]
    return near if among is None else among[near]


def _differences(signs: Signs, question: Vector) -> NDArray[np.uint16]:
    """In how many signs each row differs."""
    own = signs_of(question[np.newaxis]).T
    far = np.empty(len(signs), dtype=np.uint16)
    # Word by word along the rows: the other way round, numpy takes ten times as long.
    words = np.empty((len(own), _BLOCK), dtype=np.uint64)
    counts = np.empty(words.shape, dtype=np.uint8)
    for start in range(0, len(signs), _BLOCK):
        block = signs[start : start + _BLOCK].T
        size = block.shape[1]
        np.bitwise_xor(block, own, out=words[:, :size])
        np.bitwise_count(words[:, :size], out=counts[:, :size])
        np.add.reduce(counts[:, :size], axis=0, dtype=np.uint16, out=far[start : start + size])
    return far
