"""The four shapes of a stage, and the tools that each is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from marklight.answer import Hit, Hits, Query, Why
from marklight.model import DocumentId
from marklight.ports.documents import ScoredChunk
from marklight.ports.engine import Snapshot
from marklight.ports.models import Embedder, Reranker


@dataclass(frozen=True, slots=True)
class Tools:
    """What stages need at run time; their fields hold settings and nothing else."""

    snapshot: Snapshot
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    exists: Callable[[DocumentId], bool] = lambda _: True
    """Whether a document's file is still there."""
    now: float = 0.0
    """Seconds since the epoch, so that the same question gives the same answer."""
    notify: Callable[[str], None] = lambda _: None
    """Adds a notice to the answer."""
    run_parallel: Callable[[Sequence[Callable[[], Any]]], list[Any]] = lambda tasks: [
        task() for task in tasks
    ]
    """Runs tasks in the thread pool and returns their results in order."""
    check_cancelled: Callable[[], None] = lambda: None
    """Raises Stopped once the caller has gone away."""

    def hits(self, found: Sequence[ScoredChunk], by: str) -> Hits:
        """What a retriever found, with the passages themselves."""
        chunks = {
            chunk.id: chunk
            for chunk in self.snapshot.documents.chunks([one.chunk_id for one in found])
        }
        return tuple(
            Hit(chunks[one.chunk_id], one.score, (Why(by, one.score),))
            for one in found
            if one.chunk_id in chunks
        )


class Rewrite(Protocol):
    """A stage that looks at the question first."""

    def __call__(self, query: Query, tools: Tools) -> Query: ...


class Retrieve(Protocol):
    """A stage that finds candidates."""

    def __call__(self, query: Query, tools: Tools) -> Hits: ...


class Fuse(Protocol):
    """A stage that makes one list of several."""

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits: ...


class Refine(Protocol):
    """A stage that changes, drops or re-orders hits."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits: ...
