"""Vector arithmetic: unit vectors for cosines, 1-bit quantisation by sign (binary vectors), Hamming distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marklight.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.model import Matrix, Vector

    BinaryVectors = NDArray[np.uint64]

MIN_CANDIDATES, CANDIDATE_SHARE, CANDIDATES_PER_RESULT = 2000, 1 / 50, 60
"""Number of candidates that are scored exactly: a minimum, a share of all vectors, and a number for each
requested result. They contain 99 % of the best 20 and at least 98 % of the best 100 (benchmarks/binary_vectors.py)."""

_BLOCK_ROWS = 8192
"""Rows compared at once: bounds the temporary arrays to 450 KB with 384 numbers a vector."""


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


def top(scores: Vector, count: int) -> list[int]:
    """Return the positions of the best scores, with all that tie with the last of them."""
    if len(scores) <= count:
        return list(range(len(scores)))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    best: list[int] = np.nonzero(scores >= least)[0].tolist()
    return best
