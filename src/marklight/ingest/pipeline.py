"""THE INDEXING PIPELINE: discover, plan, read, parse, chunk, commit; then communities and embeddings, commit by commit.

Full, incremental and watched indexing take the same path with a different list of files. A search runs the first two
steps before every query, so the modules of the later steps are imported only when a file has to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from marklight.ingest.discover import Discover, FollowedLinks
from marklight.ingest.embedding import Indexing
from marklight.ingest.index_diff import FAILURES_RECIPE, IndexDiff, compare
from marklight.ingest.recipe import Chunker, recipe
from marklight.model import Batch, DocumentId, Entry
from marklight.ports import PathRange, Progress, no_progress
from marklight.report import Report


@dataclass(frozen=True, slots=True)
class Ingest(Indexing):
    """Indexes files. Embedding, the last step, is `Indexing.embed_missing`."""

    collections: Mapping[str, Path]
    discover: Discover
    chunker: Chunker
    max_bytes: int

    @property
    def recipe(self) -> str:
        """Return a digest that changes whenever a document would be parsed or chunked differently."""
        return recipe(self.discover.parsers, self.chunker)

    def compare(
        self,
        *,
        rebuild: bool = False,
        ranges: Sequence[PathRange] | None = None,
        until: float | None = None,
        followed_links: FollowedLinks | None = None,
    ) -> IndexDiff:
        """Discover and plan: return the difference between disk and index, or between parts of both."""
        scan = partial(self.discover, self.collections, ranges, until, followed_links)
        return compare(self.engine, scan, self.recipe, self.max_bytes, rebuild=rebuild)

    def index_text(
        self, diff: IndexDiff, progress: Progress = no_progress, until: float | None = None
    ) -> Report:
        """Read, parse, chunk and commit the files of a plan; keyword search finds them afterwards.

        At `until`, a `time.monotonic` value, it stops; the report lists the files that are left.
        """
        from marklight.ingest.batch import FileBatch, batches, moves

        report = Report()
        removed = {diff.known[id].digest: id for id in diff.plan.removed if id in diff.known}
        done = 0
        for files in batches(diff, progress, until):
            batch = FileBatch(
                self.discover.parsers, self.recipe, self.max_bytes, diff.known, diff.failed
            )
            for file in files:
                batch.read(file, rebuild=diff.rebuild)
            entries = batch.chunk(self.chunker)
            moved = moves(entries, diff.known, removed)
            if commit := batch.commit(entries, moved):
                self.engine.commit(commit)
            report = batch.add_to(report, moved)
            done += len(files)
        return self._finish(diff, report, done)

    def _finish(self, diff: IndexDiff, report: Report, done: int) -> Report:
        """Commit what is left of a plan: removed documents, new failures, the recipe of the failures."""
        moved_away = {old for old, _ in report.moved}
        removed = tuple(id for id in diff.plan.removed if id not in moved_away)
        refused = any(failure.file for failure in (*diff.failed.values(), *report.skipped))
        tried_all = diff.ranges is None and done == len(diff.plan.read)
        outdated = refused and tried_all and diff.tried_recipe != self.recipe
        manifest = {FAILURES_RECIPE: self.recipe} if outdated else {}
        if last := Batch(removed=removed, failures=diff.unreadable, manifest=manifest):
            self.engine.commit(last)
        return replace(
            report,
            removed=(*report.removed, *(id for id in removed if id in diff.known)),
            skipped=(*report.skipped, *diff.unreadable),
            unread=diff.plan.read[done:],
        )

    def update_communities(self) -> None:
        """Group documents by their links again, if links changed."""
        from marklight.ingest.links import update_communities

        update_communities(self.engine)

    def rechunk(self, ids: Iterable[DocumentId]) -> list[Entry]:
        """Return documents with passages over the model's token limit, chunked again with tokens counted."""
        from marklight.ingest.batch import FileBatch
        from marklight.ingest.read import Source

        with self.engine.snapshot() as snapshot:
            documents = [document for id in ids if (document := snapshot.documents.get(id))]
        batch = FileBatch(self.discover.parsers, self.recipe, self.max_bytes, {}, {})
        for document in documents:
            batch.parse(document.id, Source(document.text, document.file))
        chunker = partial(
            self.chunker,
            count_tokens=self.embedder.count_tokens if self.embedder else None,
            token_limit=self.embedder.token_limit if self.embedder else 0,
        )
        entries = {entry.document.id: entry for entry in batch.chunk(chunker)}
        # A document that fails now stays as it is: the model truncates its long passages.
        return [
            replace(entries[each.id], document=each) for each in documents if each.id in entries
        ]
