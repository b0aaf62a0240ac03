"""Protocols of the four kinds of search stages, the tools that they receive, and the callback for progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from marklight.answer import Hit, Hits, Why
from marklight.model import DocumentId
from marklight.ports.engine import ScoredChunk, Snapshot
from marklight.ports.models import Embedder, Reranker
from marklight.query import Query


@dataclass(frozen=True, slots=True)
class Tools:
    """Run-time dependencies of stages; the fields of a stage are settings only."""

    snapshot: Snapshot
    embedder: Embedder | None = None
    multilingual: Embedder | None = None
    """Model for documents in languages that `embedder` does not know, if there are any."""
    reranker: Reranker | None = None
    exists: Callable[[DocumentId], bool] = lambda _: True
    """Returns True if a document's file still exists."""
    now: float = 0.0
    """Seconds since the epoch, so that the same query gives the same answer."""
    notify: Callable[[str], None] = lambda _: None
    """Adds a notice to the answer."""
    check_cancelled: Callable[[], None] = lambda: None
    """Raises Stopped once the caller has gone away."""

    def hits(self, candidates: Sequence[ScoredChunk], by: str) -> Hits:
        """Return candidates of a retriever as hits, with their passages."""
        ids = [candidate.chunk_id for candidate in candidates]
        chunks = {chunk.id: chunk for chunk in self.snapshot.documents.chunks(ids)}
        return tuple(
            Hit(chunks[id], score, (Why(by, score),)) for id, score in candidates if id in chunks
        )


class Rewrite(Protocol):
    """A stage that changes the query before retrieval."""

    def __call__(self, query: Query, tools: Tools) -> Query: ...


class Retrieve(Protocol):
    """A stage that returns at most `limit` candidates, best first."""

    def __call__(self, query: Query, limit: int, tools: Tools) -> Hits: ...


class Fuse(Protocol):
    """A stage that merges the lists of all retrievers into one; `factors` are the user's, on the weights of retrievers."""

    def __call__(
        self, lists: Mapping[str, Hits], query: Query, factors: Mapping[str, float], tools: Tools
    ) -> Hits: ...


class Refine(Protocol):
    """A stage that changes, drops or reorders hits."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits: ...


Progress = Callable[[str, int, int], None]
"""Callback of a long operation, called with its phase, how much is done, and the total."""


def no_progress(phase: str, done: int, total: int) -> None:
    """Ignore progress."""


def never_cancelled() -> None:
    """Return without raising: nothing cancels the operation."""
