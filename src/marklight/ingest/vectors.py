"""Vectors for texts that an engine holds, of files or of commits: passages before words, as far as time allows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from marklight.ingest.concepts import embed_vocabulary, words_missing
from marklight.ingest.embed import embed_pending
from marklight.model import Counts, DocumentId, Entry
from marklight.ports import Embedder, Engine, Progress, silent, with_time_limit


@dataclass(frozen=True, slots=True)
class Indexing(ABC):
    """Texts of one kind, the engine that they live in and the model that embeds them."""

    engine: Engine
    embedder: Embedder | None

    @abstractmethod
    def recut(self, ids: Iterable[DocumentId]) -> list[Entry]:
        """Those with passages too long for the model, cut anew."""

    def vectors(
        self,
        progress: Progress = silent,
        until: float | None = None,
        first: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Embed what has no vector yet, passages before words, until it is done or the time is over."""
        if self.embedder is not None:
            embed_pending(self.engine, self.embedder, self.recut, progress, until, first)
            if not self.counts().pending:
                embed_vocabulary(self.engine, self.embedder, progress, until)

    def hurried(self, seconds: float) -> Self:
        """The same for a caller who has only so much time, where the model is one to wait for."""
        return replace(self, embedder=with_time_limit(self.embedder, seconds))

    def waiting(self) -> bool:
        """Whether passages or words are known to have no vector yet."""
        if self.embedder is None:
            return False
        with self.engine.snapshot() as snapshot:
            model = self.embedder.fingerprint
            return snapshot.status.counts(model).pending > 0 or words_missing(
                snapshot.status.manifest(), model
            )

    def counts(self) -> Counts:
        """How much there is now, by the configured model."""
        with self.engine.snapshot() as snapshot:
            return snapshot.status.counts(self.embedder.fingerprint if self.embedder else "")
