"""Numbers as servers write them to vectors of length one, or a word on what is wrong with them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marklight.errors import ModelServerError

if TYPE_CHECKING:
    from marklight.model import Matrix

ODD = "Is it an embedding model, and the address that of its server?"


def rows(found: Sequence[Any], count: int, server: str) -> Matrix:
    """One row of length one for each of so many texts."""
    import numpy as np

    if len(found) != count:
        raise ModelServerError(f"{server} gives {len(found)} vectors for {count} texts", ODD)
    read = [_decoded(one, server) if isinstance(one, str) else one for one in found]
    try:
        matrix = np.array(read)
    except ValueError:  # rows of several lengths
        raise ModelServerError(f"{server} gives vectors of several lengths", ODD) from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.shape[1]:
        raise ModelServerError(f"{server} gives something else than vectors", ODD)
    matrix = matrix.astype(np.float64)
    # Lengths first, of what is made small: a number may be finite and its square not.
    most = np.abs(matrix).max(axis=1, keepdims=True)
    if not np.isfinite(most).all():
        raise ModelServerError(f"{server} gives a vector with something that is no number", ODD)
    if not most.all():
        raise ModelServerError(f"{server} gives a vector of nothing but zeros", ODD)
    matrix /= most
    unit: Matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _decoded(text: str, server: str) -> Any:
    """Base64 of 32-bit numbers, as OpenAI gives them to its own clients."""
    import numpy as np

    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    except (binascii.Error, ValueError):
        raise ModelServerError(f"{server} gives something else than vectors", ODD) from None
