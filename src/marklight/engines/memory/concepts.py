"""The vocabulary of a library, counted afresh for every question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.engines.memory.state import State
from marklight.ports import Concept

if TYPE_CHECKING:
    from marklight.model import Vector


def nearest(state: State, vector: Vector, model: str, limit: int) -> list[Concept]:
    """Words by their cosine with this vector."""
    raise NotImplementedError


def vectors(state: State, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
    """Of the words that have one."""
    raise NotImplementedError


def unembedded(state: State, model: str, limit: int) -> list[str]:
    """Words without a vector, the commonest first."""
    raise NotImplementedError
