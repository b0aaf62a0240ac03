"""THE INDEXING PAGE: discover, plan, read, parse, chunk, commit; then group and embed, commit by commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from marklight.ingest.chunk import Chunker
from marklight.ingest.communities import regroup
from marklight.ingest.discover import Claims, Discover
from marklight.ingest.look import TRIED, Look, batches, compare
from marklight.ingest.parse import fingerprint
from marklight.ingest.read import Source
from marklight.ingest.vectors import Indexing
from marklight.ingest.work import Work, moves
from marklight.model import Batch, DocumentId, Entry, Failure
from marklight.ports import IndexedFile, PathRange, Progress, silent
from marklight.report import Report
from marklight.text import digest


@dataclass(frozen=True, slots=True)
class Ingest(Indexing):
    """Full, incremental and watched indexing: the same path with a different list of files.

    Its last step, `vectors`, is the same for commits and stands in vectors.py.
    """

    collections: Mapping[str, Path]
    discover: Discover
    chunker: Chunker
    max_bytes: int

    def look(
        self,
        *,
        rebuild: bool = False,
        spans: Sequence[PathRange] | None = None,
        until: float | None = None,
        claimed: Claims | None = None,
    ) -> Look:
        """Discover and plan: what differs between disk and index, or a part of both."""
        walk = partial(self.discover, self.collections, spans, until, claimed)
        return compare(self.engine, walk, self.recipe, self.max_bytes, rebuild=rebuild)

    def text(self, look: Look, progress: Progress = silent, until: float | None = None) -> Report:
        """Read, parse, chunk and commit what the plan names; searchable by words afterwards.

        Until a `time.monotonic`: the report names what there was no time for.
        """
        report = Report()
        leaving = {look.known[id].digest: id for id in look.plan.removed if id in look.known}
        done = 0
        for batch in batches(look, progress, until):
            work = self._work(look.known, look.failed)
            for found in batch:
                work.take(found, rebuild=look.rebuild)
            entries = work.cut(self.chunker)
            moved = moves(entries, look.known, leaving)
            if made := work.batch(entries, moved):
                self.engine.commit(made)
            report = work.told(report, moved)
            done += len(batch)
        moved_away = {old for old, _ in report.moved}
        removed = tuple(id for id in look.plan.removed if id not in moved_away)
        refused = any(one.file for one in (*look.failed.values(), *report.skipped))
        tried_all = look.spans is None and done == len(look.plan.read)
        noted = {TRIED: self.recipe} if refused and tried_all and look.tried != self.recipe else {}
        if last := Batch(removed=removed, failures=look.unreadable, manifest=noted):
            self.engine.commit(last)
        return replace(
            report,
            removed=(*report.removed, *(id for id in removed if id in look.known)),
            skipped=(*report.skipped, *look.unreadable),
            unread=look.plan.read[done:],
        )

    def groups(self) -> None:
        """Which documents belong together, where links changed."""
        regroup(self.engine)

    def recut(self, ids: Iterable[DocumentId]) -> list[Entry]:
        """Documents with passages too long for the model, cut anew with its tokens counted."""
        with self.engine.snapshot() as snapshot:
            documents = [found for id in ids if (found := snapshot.documents.get(id))]
        cut = partial(self.chunker, count_tokens=self._count_tokens, token_limit=self._token_limit)
        work = self._work({}, {})
        for each in documents:
            work.understand(each.id, Source(each.text, each.file))
        entries = {entry.document.id: entry for entry in work.cut(cut)}
        # One that cannot be cut further stays as it is: the model reads as much of it as it can.
        return [
            replace(entries[each.id], document=each) for each in documents if each.id in entries
        ]

    @property
    def recipe(self) -> str:
        """Changes whenever a document would be understood or cut differently.

        The model has no part in it: a passage too long for it is cut again when it is embedded.
        """
        return digest(fingerprint(self.discover.parsers), self.chunker.fingerprint, size=8)

    def _work(
        self, known: Mapping[DocumentId, IndexedFile], failed: Mapping[DocumentId, Failure]
    ) -> Work:
        return Work(self.discover.parsers, self.recipe, self.max_bytes, known, failed)

    @property
    def _token_limit(self) -> int:
        return self.embedder.token_limit if self.embedder else 0

    @property
    def _count_tokens(self) -> Callable[[Sequence[str]], list[int]] | None:
        return self.embedder.count_tokens if self.embedder else None
