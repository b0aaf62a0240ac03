"""BM25 in numpy, for the engines that compute scores in Python: rounded lengths, norms, and scores of term frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marklight.lexical import K1, B

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SATURATION = K1 + 1
"""The score that a term approaches the more often it occurs."""


def _distinct_lengths() -> Ints:
    """Return the lengths that a code represents: as tantivy stores them, exact below 40, then with 4 significant bits above 24."""
    exact = range(40)
    rounded = (24 + (mantissa << step) for step in range(1, 28) for mantissa in range(8, 16))
    return np.array([*exact, *rounded], np.int64)


LENGTHS = _distinct_lengths()
"""Length of a field by its code, which has one byte."""


def length_codes(lengths: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the codes of lengths, each rounded down to one that has a code."""
    return (np.searchsorted(LENGTHS, lengths, "right") - 1).astype(np.uint8)


def norms(lengths: NDArray[Any], means: NDArray[Any]) -> Floats:
    """Return the norms of fields with these lengths, given the mean lengths."""
    result: Floats = K1 * (1 - B + B * lengths / means)
    return result


def term_scores(frequencies: NDArray[Any], norms: Floats) -> Floats:
    """Return the scores of term frequencies, before idf and boosts."""
    result: Floats = SATURATION * frequencies / (frequencies + norms)
    return result
