"""Binary vectors: 1-bit quantisation by sign, and a first pass by Hamming distance over many vectors.

The sign bits are in a file beside the float32 vectors, a thirtieth of its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from marklight.engines.embedded.vector_files import VectorFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.model import Matrix, Vector

    BinaryVectors = NDArray[np.uint64]

MIN_CANDIDATES, CANDIDATE_SHARE, CANDIDATES_PER_RESULT = 2000, 1 / 50, 60
"""How many candidates are scored exactly: at least so many, this share of all vectors, and so many for each
requested result. They contain 99 % of the best 20 and at least 98 % of the best 100 (benchmarks/binary_vectors.py)."""

_BLOCK_ROWS = 8192
"""Rows compared at once: bounds the temporary arrays to 450 KB with 384 numbers a vector."""
_WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class BinaryVectorFile(VectorFile):
    """A file with one sign bit for each number of each vector; appended and rebuilt like the vector file."""

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
        return sign_bits(vectors).tobytes()


def sign_bits(vectors: Matrix) -> BinaryVectors:
    """Quantise each row to its sign bits; the last word is padded with zeros."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
    return padded.view("<u8")


def hamming_candidates(
    binary: BinaryVectors, query: Vector, limit: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the rows nearest to a query by Hamming distance, enough of them to contain the best by cosine."""
    distances = _hamming_distances(binary, query)
    if among is not None:
        distances = distances[among]
    count = max(
        MIN_CANDIDATES, int(len(distances) * CANDIDATE_SHARE), limit * CANDIDATES_PER_RESULT
    )
    if len(distances) <= count:
        return np.arange(len(binary)) if among is None else among
    # Distances are small integers: a histogram is faster than sorting.
    cut = np.searchsorted(np.cumsum(np.bincount(distances)), count)
    near = np.nonzero(distances <= cut)[0]
    return near if among is None else among[near]


def _hamming_distances(binary: BinaryVectors, query: Vector) -> NDArray[np.uint16]:
    """Return the count of differing sign bits of each row."""
    own = sign_bits(query[np.newaxis]).T
    distances = np.empty(len(binary), dtype=np.uint16)
    # Word by word along the rows: the other way round, numpy takes ten times as long.
    words = np.empty((len(own), _BLOCK_ROWS), dtype=np.uint64)
    counts = np.empty(words.shape, dtype=np.uint8)
    for start in range(0, len(binary), _BLOCK_ROWS):
        block = binary[start : start + _BLOCK_ROWS].T
        size = block.shape[1]
        np.bitwise_xor(block, own, out=words[:, :size])
        np.bitwise_count(words[:, :size], out=counts[:, :size])
        np.add.reduce(
            counts[:, :size], axis=0, dtype=np.uint16, out=distances[start : start + size]
        )
    return distances
