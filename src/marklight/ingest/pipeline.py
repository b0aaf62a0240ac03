"""THE INDEXING PIPELINE: discover, plan, read, parse, chunk, commit; then communities and embeddings, commit by commit.

Full, incremental and watched indexing take the same path with a different list of files. A search runs the first two
steps before every query, so the modules of the later steps are imported only when a file has to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.batch import Batch, Entry
from marklight.errors import Refused
from marklight.ingest.discover import Discover, FollowedLinks
from marklight.ingest.embedding import Indexing
from marklight.ingest.index_diff import FAILURES_RECIPE, IndexDiff, compare
from marklight.ingest.recipe import Chunker, parser_for, recipe
from marklight.model import DocumentId
from marklight.ports import PathRange, Progress, no_progress
from marklight.report import Report

if TYPE_CHECKING:
    from marklight.ingest.boilerplate import Forecast
    from marklight.ingest.parse import Parsed

MIN_FORECAST_FILES = 50
"""Files in a plan above which they are read ahead: as many as the first batch of a new library has."""


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
        forecast = self._forecast(diff) if until is None else None
        removed = {diff.known[id].digest: id for id in diff.plan.removed if id in diff.known}
        done = 0
        for files in batches(diff, progress, until):
            batch = FileBatch(
                self.discover.parsers, self.recipe, self.max_bytes, diff.known, diff.failed
            )
            for file in files:
                batch.read(file, rebuild=diff.rebuild)
            moved = moves([each.document for each in batch.parsed], diff.known, removed)
            gone = (*moved.values(), *batch.removed)
            shared, again = self._shared_blocks(batch.parsed, gone, forecast)
            entries = batch.chunk(partial(self.chunker, shared=shared))
            if commit := batch.commit((*entries, *again), moved):
                self.engine.commit(commit)
            report = batch.add_to(report, moved)
            done += len(files)
        return self._finish(diff, report, done, forecast)

    def _forecast(self, diff: IndexDiff) -> Forecast | None:
        """Read the files of a large plan ahead, to estimate which blocks of text they share."""
        if not self.chunker.boilerplate or len(diff.plan.read) <= MIN_FORECAST_FILES:
            return None
        from marklight.ingest.boilerplate import Forecast, body_offset
        from marklight.ingest.read import read
        from marklight.text.markdown import without_comments

        files = [diff.files[id] for id in diff.plan.read]
        size = sum(min(each.file.size, self.max_bytes) for each in files)
        forecast = Forecast(self.chunker.boilerplate_documents, size, of_all=not diff.known)
        for each in files:
            with suppress(Refused):
                text = read(each.path, self.max_bytes, each.inode).text
                if parser_for(each.id.path, self.discover.parsers) == "markdown":
                    text, _ = without_comments(text, body_offset(text))
                forecast.add(each.id, text)
        return forecast

    def _finish(
        self, diff: IndexDiff, report: Report, done: int, forecast: Forecast | None
    ) -> Report:
        """Commit what is left of a plan: removed documents, new failures, the recipe of the failures."""
        moved_away = {old for old, _ in report.moved}
        removed = tuple(id for id in diff.plan.removed if id not in moved_away)
        refused = any(failure.file for failure in (*diff.failed.values(), *report.skipped))
        tried_all = diff.ranges is None and done == len(diff.plan.read)
        outdated = refused and tried_all and diff.tried_recipe != self.recipe
        manifest = {FAILURES_RECIPE: self.recipe} if outdated else {}
        _, again = self._shared_blocks((), removed, forecast)
        if last := Batch(
            entries=tuple(again), removed=removed, failures=diff.unreadable, manifest=manifest
        ):
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

    def _shared_blocks(
        self,
        parsed: Sequence[Parsed],
        removed: Sequence[DocumentId],
        forecast: Forecast | None,
    ) -> tuple[frozenset[int], list[Entry]]:
        """Return the boilerplate of new documents, and other documents in which a block starts or ceases to be boilerplate."""
        if not self.chunker.boilerplate or not (parsed or removed or forecast):
            return frozenset(), []
        from marklight.ingest.boilerplate import find_shared

        with self.engine.snapshot() as snapshot:
            minimum = self.chunker.boilerplate_documents
            shared, ceased, outdated = find_shared(snapshot, parsed, removed, minimum, forecast)
            if outdated:
                # Documents with another recipe are chunked again by this run anyway.
                files = snapshot.documents.files_of(outdated)
                outdated = [id for id in outdated if files[id].recipe == self.recipe]
        return shared, self._chunk_again(outdated, self.chunker, shared, ceased)

    def rechunk(self, ids: Iterable[DocumentId]) -> list[Entry]:
        """Return documents with passages over the model's token limit, chunked again with tokens counted."""
        chunker = partial(
            self.chunker,
            count_tokens=self.embedder.count_tokens if self.embedder else None,
            token_limit=self.embedder.token_limit if self.embedder else 0,
        )
        return self._chunk_again(ids, chunker)

    def _chunk_again(
        self,
        ids: Iterable[DocumentId],
        chunker: Callable[..., list[Entry]],
        shared: frozenset[int] = frozenset(),
        ceased: frozenset[int] = frozenset(),
    ) -> list[Entry]:
        """Return documents chunked again from their stored text, with changes of what is boilerplate."""
        from marklight.ingest.batch import FileBatch
        from marklight.ingest.read import Source

        with self.engine.snapshot() as snapshot:
            documents = [document for id in ids if (document := snapshot.documents.get(id))]
            stored = snapshot.blocks.boilerplate_of([document.id for document in documents])
        batch = FileBatch(self.discover.parsers, self.recipe, self.max_bytes, {}, {})
        for document in documents:
            batch.parse(document.id, Source(document.text, document.file))
        made = batch.chunk(partial(chunker, shared=shared | stored - ceased))
        entries = {entry.document.id: entry for entry in made}
        # A document that fails now stays as it is: the model truncates its long passages.
        return [
            replace(entries[each.id], document=each) for each in documents if each.id in entries
        ]
