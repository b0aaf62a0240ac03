"""Engine in memory: immutable states, one per commit, and a writer lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, cast

from marklight.errors import Busy
from marklight.model import Batch
from marklight.ports import Snapshot
from tests.oracle.blocks import MemoryBlocks
from tests.oracle.contents import MemoryContents
from tests.oracle.links import MemoryLinks
from tests.oracle.search import (
    MemoryLexical,
    MemoryVectors,
    MemoryVocabulary,
    vocabulary,
)
from tests.oracle.state import Known, State
from tests.oracle.tables import MemoryDocuments, MemoryMetadata, MemoryStatus


class MemorySnapshot:
    """Readers of one state, which never changes."""

    def __init__(self, state: State) -> None:
        self.generation = state.generation
        self.documents = MemoryDocuments(state)
        self.metadata = MemoryMetadata(state)
        self.lexical = MemoryLexical(state)
        self.vectors = MemoryVectors(state)
        self.links = MemoryLinks(state)
        self.vocabulary = MemoryVocabulary(state)
        self.status = MemoryStatus(state)
        self.blocks = MemoryBlocks(state)
        self.contents = MemoryContents(state)


def memory_snapshot(state: State) -> Snapshot:
    """Return a snapshot of a state; its readers have the methods of the relational ones, and other classes."""
    return cast(Snapshot, MemorySnapshot(state))


@dataclass(slots=True)
class MemoryEngine:
    """An index that is lost when its process ends; the reference for other engines."""

    state: State = field(default_factory=State)
    writer_lock: RLock = field(default_factory=RLock)
    holders: int = 0

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield memory_snapshot(self.state)

    @contextmanager
    def writing(self, wait_seconds: float) -> Iterator[None]:
        if not self.writer_lock.acquire(timeout=max(0.0, wait_seconds)):
            raise Busy("Another thread is writing to this library", "Try again when it is done")
        self.holders += 1
        try:
            yield
        finally:
            self.holders -= 1
            self.writer_lock.release()

    def commit(self, batch: Batch) -> int:
        if not self.holders:
            raise RuntimeError("A commit needs the writer lock: use writing()")
        if batch:
            self.state = self.state.after(batch)
        return self.state.generation

    def clean(self, keep: Iterable[str]) -> int:
        with self.writing(WAIT_SECONDS):
            kept, state = set(keep), self.state
            vectors = _used(state.vectors, kept, {chunk.digest for chunk in state.chunks()})
            concepts = _used(state.concepts, kept, set(vocabulary(state)))
            before = _total(state.vectors) + _total(state.concepts)
            dropped = before - _total(vectors) - _total(concepts)
            if dropped:
                generation = state.generation + 1
                self.state = replace(
                    state, generation=generation, vectors=vectors, concepts=concepts
                )
        return dropped

    def sizes(self) -> Mapping[str, int]:
        return {}

    def count_unused_vectors(self) -> int:
        used = {chunk.digest for chunk in self.state.chunks()}
        return sum(len(known.keys() - used) for known in self.state.vectors.values())

    def check(self) -> list[str]:
        return []

    def take_notices(self) -> list[str]:
        return []

    def describe(self) -> str:
        return "memory"

    def read_only(self) -> bool:
        return False

    def server(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """Do nothing: there are no files or connections."""


WAIT_SECONDS = 10.0
"""Time limit of cleaning that waits for another writer; a commit takes less."""


def _used(vectors: Known, models: set[str], used: set[str]) -> Known:
    return {
        model: {key: row for key, row in known.items() if key in used}
        for model, known in vectors.items()
        if model in models
    }


def _total(vectors: Known) -> int:
    return sum(len(known) for known in vectors.values())
