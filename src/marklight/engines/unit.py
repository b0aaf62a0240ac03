"""Vectors of length one, so that a product is a cosine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from marklight.model import Matrix


def unit(matrix: Matrix) -> Matrix:
    """Each row at length one; a row without direction becomes zeros and resembles nothing."""
    rows = np.nan_to_num(np.asarray(matrix, dtype=np.float32), posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    at_length_one: Matrix = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return at_length_one
