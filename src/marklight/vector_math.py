"""Vector arithmetic: quantisation to 8 bits and to 1 bit a number, unit vectors for cosines, Hamming distance.

Vectors are stored as 8-bit integers, a quarter of the bytes of float32. Only the direction of a vector counts, so no scale is
stored: rows are scaled to a largest number of ±127 and rounded, and decoded rows have length one. Decoded rows encode to
the same integers again, so copies of them are exact. On five development sets nDCG@10 differs by −.0016 to +.0010 from that
of float32, which is one query in each. The module loads numpy, so functions import it: opening an engine must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marklight.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.model import Matrix, Vector

    BinaryVectors = NDArray[np.uint64]

_LARGEST = 127
_DECODED_ROWS = 512
"""Rows decoded at once: they stay in the processor's cache, 1.3 ms for 8,431 rows of 384 numbers."""

MIN_CANDIDATES, CANDIDATE_SHARE, CANDIDATES_PER_RESULT = 2000, 1 / 50, 60
"""Number of candidates that are scored exactly: a minimum, a share of all vectors, and a number for each
requested result. They contain 99 % of the best 20 and at least 98 % of the best 100 (benchmarks/binary_vectors.py)."""

_COMPARED_ROWS = 8192
"""Rows compared at once: bounds the temporary arrays to 450 KB with 384 numbers a vector."""


def encode_vectors(matrix: Matrix) -> NDArray[np.int8]:
    """Quantise rows; one of zeros or with numbers that are not finite becomes zeros."""
    rows = np.asarray(matrix, dtype=np.float32)
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0)
    usable = np.isfinite(largest) & (largest > 0)
    scaled = np.divide(rows, largest, out=np.zeros_like(rows), where=usable)
    quantised: NDArray[np.int8] = np.rint(scaled * _LARGEST).astype(np.int8)
    return quantised


def decode_vectors(rows: NDArray[np.int8]) -> Matrix:
    """Return quantised rows at length one; the same bits on every machine, as the lengths are square roots of integers."""
    matrix = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _DECODED_ROWS):
        block = matrix[start : start + _DECODED_ROWS]
        block[:] = rows[start : start + _DECODED_ROWS]
        # Sums of squares of up to 1,040 numbers are integers below 2 ** 24: exact in any order of addition.
        lengths = np.sqrt(np.vecdot(block, block))
        block /= np.where(lengths > 0, lengths, 1)[:, np.newaxis]
    return matrix


def round_vectors(matrix: Matrix) -> Matrix:
    """Return the vectors that are stored for these: unit vectors that quantise without loss."""
    return decode_vectors(encode_vectors(matrix))


def unit_rows(matrix: Matrix) -> Matrix:
    """Return the rows at length one; a row of zeros or without finite values becomes zeros."""
    rows = np.asarray(matrix, dtype=np.float32)
    # `isfinite` first and plain sums: for one query vector that takes a third of the time.
    if not np.isfinite(rows).all():
        rows = np.nan_to_num(rows, posinf=0.0, neginf=0.0)
    lengths = np.sqrt(np.add.reduce(rows * rows, axis=-1, keepdims=True))
    normalised: Matrix = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return normalised


def check_dimension(query: Vector, dimension: int, model: str) -> None:
    """Raise StoreError if a query vector has another dimension than the vectors of a model."""
    if len(query) != dimension:
        raise StoreError(
            f"The query vector has {len(query)} dimensions, the vectors of {model} have {dimension}",
            "A changed model must have another fingerprint",
        )


def check_model_dimension(model: str, dimension: int, stored: int) -> None:
    """Raise StoreError if new vectors of a model have another dimension than its stored ones."""
    if dimension != stored:
        raise StoreError(
            f"The model {model} produces vectors of {dimension} numbers, but the index"
            f" contains vectors of {stored} numbers under this name",
            "Give a model that changed another fingerprint",
        )


def sign_bits(vectors: NDArray[np.float32] | NDArray[np.int8]) -> BinaryVectors:
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
    signs = sign_bits(query[np.newaxis]).T
    distances = np.empty(len(binary), dtype=np.uint16)
    # Word by word along the rows: the other way round, numpy takes ten times as long.
    words = np.empty((len(signs), _COMPARED_ROWS), dtype=np.uint64)
    counts = np.empty(words.shape, dtype=np.uint8)
    for start in range(0, len(binary), _COMPARED_ROWS):
        block = binary[start : start + _COMPARED_ROWS].T
        size = block.shape[1]
        np.bitwise_xor(block, signs, out=words[:, :size])
        np.bitwise_count(words[:, :size], out=counts[:, :size])
        np.add.reduce(
            counts[:, :size], axis=0, dtype=np.uint16, out=distances[start : start + size]
        )
    return distances


def top(scores: Vector, count: int) -> list[int]:
    """Return the positions of the best scores, with all that tie with the last of them."""
    if len(scores) <= count:
        return list(range(len(scores)))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    best: list[int] = np.nonzero(scores >= least)[0].tolist()
    return best
