"""How much of a question's words a passage has, each word by how rare it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from marklight.ports import Covered

MOST_WORDS = 36
"""Words of a question that are looked for; a pasted text says with these what it is about."""


BACKGROUND = 100
"""Passages that one thinks of beside the library's own, without any of the words."""


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


def covered(
    rarities: Mapping[str, float], held: Collection[str], titled: Collection[str]
) -> Covered:
    """The shares of all that there is to tell."""
    whole = math.fsum(rarities.values())
    return Covered(
        math.fsum(rarities[word] for word in held) / whole,
        math.fsum(rarities[word] for word in titled) / whole,
    )
