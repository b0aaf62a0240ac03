"""How much texts have in common, by the runs of three characters that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BITS = 2039
"""Of a sketch. A passage of 1,000 characters holds some 450 different runs, so most have a bit of their
own; a prime, so that what remains of a run spreads evenly."""
_WORDS = -(-_BITS // 64)
_NARROW = 1024
"""Three characters below it fit a number of half the size, which sorts in half the time."""


def trigrams(text: str) -> frozenset[str]:
    """The runs of three characters of a flat text; a shorter text is its own only one."""
    if len(text) < 3:
        return frozenset([text])
    return frozenset(map("".join, zip(text, text[1:], text[2:], strict=False)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """What both hold, out of what either holds."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


class Sketches(NamedTuple):
    """Of several texts: the number of runs in each, and for every pair how many bits they share.

    Every run sets one bit. A bit that only one of two texts has set stands for a run that only this
    one holds, so two texts differ in no more bits than runs.
    """

    sizes: NDArray[np.int64]
    set: NDArray[np.float32]
    shared: NDArray[np.float32]

    @property
    def differing(self) -> NDArray[np.float32]:
        """In how many bits each pair differs."""
        return self.set[:, None] + self.set - 2 * self.shared


def sketch(texts: Sequence[str]) -> Sketches:
    """All pairs of these flat texts, 64 bits of both at a time."""
    import numpy as np

    padded = [text.ljust(3) for text in texts]
    signs = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32)
    if signs.max(initial=0) < _NARROW:
        runs = (signs[:-2] << 20) | (signs[1:-1] << 10) | signs[2:]
    else:
        signs = signs.astype(np.uint64)
        runs = (signs[:-2] << 42) | (signs[1:-1] << 21) | signs[2:]
    sizes = np.zeros(len(padded), np.int64)
    bits = np.zeros((len(padded), _WORDS * 64), np.bool_)
    start = 0
    for at, text in enumerate(padded):
        own = runs[start : start + len(text) - 2]
        own.sort()
        sizes[at] = 1 + np.count_nonzero(own[1:] != own[:-1])
        bits[at, own % _BITS] = 1
        start += len(text)
    # As a product of matrices it would be shared among threads, which wait for each other where
    # others work too: 87 ms in place of 2 for 200 passages on busy cores.
    shared = np.zeros((len(padded), len(padded)), np.uint16)
    for words in np.packbits(bits, axis=1).view(np.uint64).T:
        shared += np.bitwise_count(words[:, None] & words)
    alike = shared.astype(np.float32)
    return Sketches(sizes, alike.diagonal(), alike)
