"""The nouns of measuring: questions, what answers them, and the documents they are asked of."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

SEED = 4
"""Any number will do; it is always the same, so that samples and significance are."""

Value = TypeVar("Value")


class Judgement(NamedTuple):
    """How relevant something is, 1 or more, and the line that says so."""

    grade: int
    where: str


class Text(NamedTuple):
    """A document of a dataset that brings its own."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and what answers it under the names that its dataset uses."""

    id: str
    text: str
    answers: Mapping[str, Judgement]
    sources: tuple[str, ...] = ()
    """Documents that hold the question word for word, where it was taken from them."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions with judgements; documents are either texts or a folder."""

    name: str
    questions: tuple[Question, ...]
    texts: tuple[Text, ...] = ()
    folder: Path | None = None
    references: bool = False
    """Whether answers are references as for `marklight get`, else exact names of documents."""
    drop_sources: bool = False
    off_topic: tuple[str, ...] = ()
    """Questions that nothing here answers."""
    notices: tuple[str, ...] = field(default=())

    def sampled(self, count: int | None) -> Dataset:
        """The same with so many of its questions, always the same ones, in their order."""
        if count is None or count >= len(self.questions):
            return self
        return replace(self, questions=tuple(some(self.questions, count)))


def some(values: Sequence[Value], count: int) -> list[Value]:
    """So many of these, always the same ones, in their order."""
    chosen = random.Random(SEED).sample(range(len(values)), min(count, len(values)))
    return [values[index] for index in sorted(chosen)]
