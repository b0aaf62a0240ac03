"""In-memory reader of everything that is stored, for copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from marklight.model import Entry, Vectors
from tests.oracle.search import vocabulary
from tests.oracle.state import Known, State


@dataclass(frozen=True, slots=True)
class MemoryContents:
    """Documents and vectors, ordered by key."""

    state: State

    def entries(self) -> Iterator[Entry]:
        for id in sorted(self.state.entries, key=lambda each: (each.path, each.collection)):
            entry = self.state.entries[id]
            yield replace(entry, chunks=tuple(sorted(entry.chunks, key=lambda each: each.ordinal)))

    def models(self) -> Mapping[str, int]:
        known = [*self.state.vectors.items(), *self.state.concepts.items()]
        return {model: len(next(iter(rows.values()))) for model, rows in known if rows}

    def vectors(self, model: str) -> Iterator[Vectors]:
        return _group(self.state.vectors, model, {chunk.digest for chunk in self.state.chunks()})

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        return _group(self.state.concepts, model, set(vocabulary(self.state)))


def _group(known: Known, model: str, used: set[str]) -> Iterator[Vectors]:
    rows = known.get(model, {})
    if keys := sorted(rows.keys() & used):
        yield Vectors(model, tuple(keys), np.stack([rows[key] for key in keys]))
