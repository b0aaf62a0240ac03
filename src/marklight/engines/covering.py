"""How much of a question's words a passage has, each word by how rare it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from marklight.ports import TermCoverage

MOST_WORDS = 36
"""Words of a question that are looked for; a pasted text says with these what it is about."""


BACKGROUND = 100
"""Passages that one thinks of beside the library's own, without any of the words."""


FEW, OF_SOME, OF_MANY = 3, 80, 1000
"""Passages that a rare word stands in at the most, one in eighty at that, or one in a thousand if that
is more: `quince` stands on a day or two of a diary. Five in a thousand cost CoSQA .01, which asks in words
that mislead; in a library of thirty passages nearly every word stands once, and none is rare."""


def looked_for(words: Sequence[str]) -> list[str]:
    """Each word once, in the order of the question."""
    return list(dict.fromkeys(words))[:MOST_WORDS]


def rarity(passages: int, holders: int) -> float:
    """What finding a word tells, as BM25 has it: much for one that few passages hold."""
    return math.log(1 + (passages - min(holders, passages) + 0.5) / (holders + 0.5))


def weight(passages: int, holders: int) -> float:
    """What a word of a question counts: its rarity, as if the library were a part of a larger one.

    In a library of ten passages a word that two of them hold does not tell little.
    """
    return rarity(passages + BACKGROUND, max(1, holders))


def rare(passages: int) -> float:
    """What a word counts at the least that hardly any passage holds."""
    few = max(min(FEW, passages // OF_SOME), passages // OF_MANY)
    return weight(passages, few) if few else math.inf


def covered(
    rarities: Mapping[str, float], held: Collection[str], titled: Collection[str], rare: float
) -> TermCoverage:
    """The shares of all that there is to tell."""
    whole = math.fsum(rarities.values())
    return TermCoverage(
        math.fsum(rarities[word] for word in held) / whole,
        math.fsum(rarities[word] for word in titled) / whole,
        math.fsum(rarities[word] for word in held if rarities[word] >= rare) / whole,
    )
