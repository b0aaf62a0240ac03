"""Keep the index true: text as the disk has it, vectors as far as time allows, nothing left over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marklight.answer import Query
from marklight.errors import Busy, StoreError
from marklight.ingest.pipeline import Ingest
from marklight.library.compose import Index
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Progress
from marklight.report import Report
from marklight.text import query_words

EMBED_FIRST = 60
"""Passages that match the question's words and are embedded first while vectors are missing."""
TIDY_SHARE = 0.25
"""Unused vectors beyond this share of all passages are dropped after a run."""
TIDY_LEAST = 1000
"""Fewer unused vectors are kept: a file that comes back needs them."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What happens to the index between two questions."""

    ingest: Ingest
    limits: Index

    def run(self, progress: Progress, *, rebuild: bool) -> Report:
        """All of it, however long it takes: text first, searchable at once, then vectors."""
        with self.ingest.engine.writing(self.limits.wait_seconds):
            report = self.ingest.text(self.ingest.look(rebuild=rebuild), progress)
            self.ingest.groups()
            self._embed(progress)
            self._tidy()
        return report

    def refresh(self, query: Query | None, progress: Progress) -> list[str]:
        """Text, and vectors for a while; what could not be done is said and is not fatal."""
        ingest, limits = self.ingest, self.limits
        try:
            counts = ingest.counts()
            waiting = query is not None and ingest.waiting()
            look = ingest.look()
            if not look and not waiting:
                return []
            with ingest.engine.writing(0.0 if counts.documents else limits.wait_seconds):
                if ingest.counts().generation != look.generation:
                    look = ingest.look()  # another process has written since
                ingest.text(look, progress)
                new = not counts.documents
                if new:
                    ingest.groups()
                if query is not None:
                    seconds = limits.first_search_seconds if new else limits.search_seconds
                    self._embed(progress, time.monotonic() + seconds, lambda: self._likely(query))
                    self._tidy()
            return []
        except Busy:
            return ["another process is indexing this library; answering from what is there"]
        except StoreError as error:
            if not self.ingest.counts().documents:
                raise
            return [f"the index could not be brought up to date: {error}"]

    def _embed(
        self,
        progress: Progress,
        until: float | None = None,
        first: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Note under which name the model can be loaded again, then embed."""
        model, engine = self.ingest.embedder, self.ingest.engine
        if model is None:
            return
        with engine.snapshot() as reader:
            key = name_key(model.fingerprint)
            noted = reader.manifest().get(key) == model.name
        if not noted:
            engine.commit(Batch(manifest={key: model.name}))
        self.ingest.vectors(progress, until, first)

    def _likely(self, query: Query) -> list[str]:
        """Passages with the question's words."""
        with self.ingest.engine.snapshot() as reader:
            words = query_words(query.text)
            found = reader.keyword(words, FIELD_BOOSTS, query.filters, EMBED_FIRST)
            return [one.chunk for one in found]

    def _tidy(self) -> None:
        """Once the model covers everything, drop the vectors of others and those that nothing uses."""
        model, engine = self.ingest.embedder, self.ingest.engine
        if model is None:
            return
        with engine.snapshot() as reader:
            counts, models = reader.counts(model.fingerprint), reader.models()
        if counts.pending:
            return
        unused = engine.waste()
        if len(models) > 1 or unused > max(TIDY_LEAST, TIDY_SHARE * counts.chunks):
            engine.clean(keep={model.fingerprint})


def name_key(fingerprint: str) -> str:
    """Where the manifest keeps the name of the model with this fingerprint."""
    return f"model {fingerprint}"
