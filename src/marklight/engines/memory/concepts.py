"""The vocabulary of a library, counted afresh for every question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from marklight.engines.memory.state import State
from marklight.engines.unit import demand_dimension, unit
from marklight.ports import MOST_CONCEPTS, Concept
from marklight.text import vocabulary_terms as terms_of

if TYPE_CHECKING:
    from marklight.model import Vector


def nearest(state: State, vector: Vector, model: str, limit: int) -> list[Concept]:
    """Words by their cosine with this vector."""
    known, question = vectors(state, model, vocabulary(state)), unit(vector)
    for row in known.values():
        demand_dimension(question, len(row), model)
    found = [Concept(term, float(row @ question)) for term, row in known.items()]
    return sorted(found, key=lambda each: (-each.score, each.term))[: max(0, limit)]


def vectors(state: State, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
    """Of the words that are in the vocabulary and have one."""
    known, living = state.concepts.get(model, {}), set(vocabulary(state))
    return {term: known[term] for term in terms if term in known and term in living}


def centre(state: State, model: str) -> Vector | None:
    """The mean of all of them."""
    known = vectors(state, model, vocabulary(state))
    if not known:
        return None
    mean: Vector = np.mean([*known.values()], axis=0, dtype=np.float32)
    return mean


def unembedded(state: State, model: str, limit: int) -> list[str]:
    """Words without a vector, the commonest first."""
    known = state.concepts.get(model, {})
    return [term for term in vocabulary(state) if term not in known][: max(0, limit)]


def vocabulary(state: State) -> list[str]:
    """The words that most documents hold, ties in the order of the words."""
    return commonest(counted(state))[:MOST_CONCEPTS]


def like(state: State, start: str, least: int, most: int, limit: int) -> Mapping[str, int]:
    """Words that begin so, of so many letters."""
    every = counted(state)
    fit = {
        term: every[term] for term in every if term.startswith(start) and least <= len(term) <= most
    }
    return {term: fit[term] for term in commonest(fit)[: max(0, limit)]}


def counted(state: State) -> Mapping[str, int]:
    """Every word with the number of documents that hold it."""
    found: Counter[str] = Counter()
    for entry in state.entries.values():
        found.update(terms_of(entry.document.text))
    return found


def commonest(counts: Mapping[str, int]) -> list[str]:
    """In the order of how many documents hold them, then of the words."""
    return sorted(counts, key=lambda term: (-counts[term], term))
