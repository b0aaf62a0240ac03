"""THE INDEXING PAGE: discover, plan, read, parse, chunk, commit; then embed, commit by commit."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from marklight.answer import Report
from marklight.errors import Refused
from marklight.ingest.chunk import Chunker
from marklight.ingest.discover import Discover, Found
from marklight.ingest.embed import embed_pending
from marklight.ingest.parse import fingerprint
from marklight.ingest.plan import Plan, plan
from marklight.ingest.read import Source, read
from marklight.ingest.work import Work
from marklight.model import Batch, Counts, DocumentId, Entry, Failure
from marklight.ports import Embedder, Engine, Indexed, Progress, silent
from marklight.text import digest

BATCH_BYTES = 2_000_000
"""Of files in one commit: few enough to bound memory, enough that a commit's own cost vanishes."""
BATCH_FILES = 500
TRIED = "failures_recipe"
"""Under this key the index notes by which recipe its failures were tried; another may do better."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles, which finds none among the states of files.

    It would look at all of them again and again: a quarter of the time at 16,000 files.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Look:
    """One comparison of disk and index."""

    generation: int
    """Of the index that was compared: with another one there may be other things to do."""
    found: Mapping[DocumentId, Found]
    known: Mapping[DocumentId, Indexed]
    failed: Mapping[DocumentId, Failure]
    tried: str
    """The recipe by which failures were last tried."""
    plan: Plan
    unreadable: tuple[Failure, ...]
    """What could not be looked at and is not known as such yet."""
    rebuild: bool

    def __bool__(self) -> bool:
        return bool(self.plan or self.unreadable)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Full, incremental and watched indexing: the same path with a different list of files."""

    engine: Engine
    collections: Mapping[str, Path]
    discover: Discover
    chunker: Chunker
    embedder: Embedder | None
    max_bytes: int

    @uncollected()
    def look(self, *, rebuild: bool = False) -> Look:
        """Discover and plan: what differs between disk and index."""
        # The index first: what another process adds after the walk would seem to be gone.
        with self.engine.snapshot() as reader:
            generation, known, failures = reader.generation, reader.files(), reader.failures()
            tried = reader.manifest().get(TRIED, "")
        walk = self.discover(self.collections)
        files = {id: found.file for id, found in walk.found.items()}
        standing = [self._standing(failure, walk.found, tried) for failure in failures]
        steps = plan(files, known, standing, walk.unreadable, self.recipe, rebuild=rebuild)
        failed, leaving = {one.document: one for one in failures}, set(steps.removed)
        news = tuple(
            failure
            for failure in walk.unreadable
            if failure.document in leaving or failed.get(failure.document) != failure
        )
        return Look(generation, walk.found, known, failed, tried, steps, news, rebuild)

    def text(self, look: Look, progress: Progress = silent) -> Report:
        """Read, parse, chunk and commit what the plan names; searchable by words afterwards."""
        report = Report()
        leaving = {look.known[id].digest: id for id in look.plan.removed if id in look.known}
        for batch in batches(look, progress):
            work = self._work(look.known, look.failed)
            for found in batch:
                work.take(found, rebuild=look.rebuild)
            entries = work.cut(self.chunker)
            moved = moves(entries, look.known, leaving)
            if made := work.batch(entries, moved):
                self.engine.commit(made)
            report = work.told(report, moved)
        moved_away = {old for old, _ in report.moved}
        removed = tuple(id for id in look.plan.removed if id not in moved_away)
        refused = any(one.file for one in (*look.failed.values(), *report.skipped))
        noted = {TRIED: self.recipe} if refused and look.tried != self.recipe else {}
        if last := Batch(removed=removed, failures=look.unreadable, manifest=noted):
            self.engine.commit(last)
        return replace(
            report,
            removed=(*report.removed, *(id for id in removed if id in look.known)),
            skipped=(*report.skipped, *look.unreadable),
        )

    def recut(self, ids: Iterable[DocumentId]) -> list[Entry]:
        """Documents with passages too long for the model, cut anew with its tokens counted."""
        with self.engine.snapshot() as reader:
            documents = [found for id in ids if (found := reader.document(id))]
        cut = partial(self.chunker, count_tokens=self._count_tokens, token_limit=self._token_limit)
        work = self._work({}, {})
        for each in documents:
            work.understand(each.id, Source(each.text, each.file))
        entries = {entry.document.id: entry for entry in work.cut(cut)}
        # One that cannot be cut further stays as it is: the model reads as much of it as it can.
        return [
            replace(entries[each.id], document=each) for each in documents if each.id in entries
        ]

    def vectors(
        self,
        progress: Progress = silent,
        until: float | None = None,
        first: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Embed what has no vector yet, until it is done or the time is over."""
        if self.embedder is not None:
            embed_pending(self.engine, self.embedder, self.recut, progress, until, first)

    def counts(self) -> Counts:
        """How much there is now, by the configured model."""
        with self.engine.snapshot() as reader:
            return reader.counts(self.embedder.fingerprint if self.embedder else "")

    @property
    def recipe(self) -> str:
        """Changes whenever a document would be understood or cut differently.

        The model has no part in it: a passage too long for it is cut again when it is embedded.
        """
        return digest(fingerprint(self.discover.parsers), self.chunker.fingerprint, size=8)

    def _work(
        self, known: Mapping[DocumentId, Indexed], failed: Mapping[DocumentId, Failure]
    ) -> Work:
        return Work(self.discover.parsers, self.recipe, self.max_bytes, known, failed)

    def _standing(self, failure: Failure, found: Mapping[DocumentId, Found], tried: str) -> Failure:
        """A failure with its file's state where reading again changes nothing, else without one."""
        here = found.get(failure.document)
        if here is None:
            return failure
        if failure.file:
            return failure if tried == self.recipe else replace(failure, file=None)
        try:
            read(here.path, self.max_bytes)
        except Refused as refused:
            if str(refused) == failure.reason:
                return replace(failure, file=here.file)
        return failure

    @property
    def _token_limit(self) -> int:
        return self.embedder.token_limit if self.embedder else 0

    @property
    def _count_tokens(self) -> Callable[[Sequence[str]], list[int]] | None:
        return self.embedder.count_tokens if self.embedder else None


def batches(look: Look, progress: Progress) -> Iterator[list[Found]]:
    """The files to read, in portions bounded by bytes and number."""
    batch: list[Found] = []
    size = 0
    for done, id in enumerate(look.plan.read):
        progress("Reading text", done, len(look.plan.read))
        batch.append(look.found[id])
        size += look.found[id].file.size
        if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def moves(
    entries: Sequence[Entry],
    known: Mapping[DocumentId, Indexed],
    leaving: dict[str, DocumentId],
) -> dict[DocumentId, DocumentId]:
    """New documents with the words of one that left: new place to old, each old one used once."""
    return {
        entry.document.id: leaving.pop(entry.document.digest)
        for entry in entries
        if entry.document.id not in known and entry.document.digest in leaving
    }
