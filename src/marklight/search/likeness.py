"""Which texts are the same, and how much others have in common, by the runs of three characters that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BITS = 2039
"""Of a sketch. A passage of 1,000 characters holds some 450 different runs, so most have a bit of their
own; a prime, so that what remains of a run spreads evenly."""
_WORDS = -(-_BITS // 64)
_NARROW = 1024
"""Three characters below it fit a number of half the size, which sorts in half the time."""

_BEGINNING = 12
"""Words by which texts are told apart before they are compared whole."""


def distinct(texts: Sequence[str]) -> list[int]:
    """The places of those that are not, but for white space, the same as one before."""
    starts = [tuple(text.split(None, _BEGINNING)[:_BEGINNING]) for text in texts]
    shared = Counter(starts)
    first: dict[object, int] = {}
    for at, (text, start) in enumerate(zip(texts, starts, strict=True)):
        # Most begin like no other, and need not be looked at further.
        first.setdefault(start if shared[start] == 1 else " ".join(text.split()), at)
    return list(first.values())


@dataclass(frozen=True, slots=True)
class Sketches:
    """Of several texts: the runs in each, and for every pair how many bits they share.

    Every run sets one bit. A bit that only one of two texts has set stands for a run that only this
    one holds, so two texts differ in no more bits than runs.
    """

    runs: Sequence[NDArray[np.integer[Any]]]
    """As they stand in each text, some several times."""
    set: NDArray[np.float32]
    shared: NDArray[np.float32]
    _once: dict[int, NDArray[np.integer[Any]]] = field(default_factory=dict)

    @property
    def differing(self) -> NDArray[np.float32]:
        """In how many bits each pair differs."""
        return self.set[:, None] + self.set - 2 * self.shared

    def runs_of(self, at: int) -> NDArray[np.integer[Any]]:
        """The runs of a text in order and each once; few texts are looked at so closely."""
        import numpy as np

        if at not in self._once:
            own = np.sort(self.runs[at])
            first = np.ones(len(own), np.bool_)
            np.not_equal(own[1:], own[:-1], out=first[1:])
            self._once[at] = own[first]
        return self._once[at]

    def jaccard(self, one: int, other: int) -> float:
        """What both texts hold, out of what either holds."""
        import numpy as np

        first, second = self.runs_of(one), self.runs_of(other)
        shared = len(np.intersect1d(first, second, assume_unique=True))
        return shared / (len(first) + len(second) - shared)


def sketch(texts: Sequence[str]) -> Sketches:
    """All pairs of these flat texts, 64 bits of both at a time."""
    import numpy as np

    # With a sign that no text holds: a short one must not be like a longer one with a blank there.
    padded = [text.ljust(3, "\0") for text in texts]
    signs = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32)
    if signs.max(initial=0) < _NARROW:
        runs = (signs[:-2] << 20) | (signs[1:-1] << 10) | signs[2:]
    else:
        signs = signs.astype(np.uint64)
        runs = (signs[:-2] << 42) | (signs[1:-1] << 21) | signs[2:]
    ends = list(accumulate(map(len, padded)))
    # The last two that begin in a text reach into the next.
    spans = [slice(end - len(text), end - 2) for text, end in zip(padded, ends, strict=True)]
    bits = np.zeros((len(padded), _WORDS * 64), np.bool_)
    places = (runs % _BITS).astype(np.int64)
    for own, span in zip(bits, spans, strict=True):
        own[places[span]] = True
    # As a product of matrices it would be shared among threads, which wait for each other where
    # others work too: 87 ms in place of 2 for 200 passages on busy cores.
    shared = np.zeros((len(padded), len(padded)), np.uint16)
    for words in np.packbits(bits, axis=1).view(np.uint64).T:
        shared += np.bitwise_count(words[:, None] & words)
    alike = shared.astype(np.float32)
    return Sketches([runs[span] for span in spans], alike.diagonal(), alike)
