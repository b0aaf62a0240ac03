"""Add words of the library that mean nearly the same as the question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from marklight.answer import Mode, Query
from marklight.errors import SettingsError
from marklight.ports import Concept, Tools
from marklight.text import words

FORMS = 8
"""Nearest words looked at for each one added: most of them are forms of one that is there already."""


@dataclass(frozen=True, slots=True)
class Expand:
    """The nearest words of the vocabulary, for the search by meaning; a hypothesis needs none."""

    most: int = 3
    """Words added at most."""
    least: float = 0.5
    """How near a word must be: a cosine without what all words of the library have in common."""

    def __post_init__(self) -> None:
        if not 0 <= self.most <= 20:
            raise SettingsError(f"search.expand.most must be 0 to 20, but is {self.most}")
        if not 0 <= self.least <= 1:
            raise SettingsError(f"search.expand.least must be 0 to 1, but is {self.least}")

    def __call__(self, query: Query, tools: Tools) -> Query:
        model = tools.embedder
        by_meaning = query.mode in (Mode.HYBRID, Mode.SEMANTIC)
        if model is None or not by_meaning or query.hypothesis or not self.most:
            return query
        vector = model.embed_query(query.text)
        near = tools.reader.concepts(vector, model.fingerprint, FORMS * self.most)
        close = (each for each in near if each.score >= self.least)
        added = islice(_new(close, set(words(query.text))), self.most)
        return replace(query, expanded_with=tuple(added))


def _new(concepts: Iterable[Concept], stems: set[str]) -> Iterator[str]:
    """Words that are no other form of a word that is there."""
    for each in concepts:
        own = set(words(each.term))
        if own - stems:
            stems |= own
            yield each.term
