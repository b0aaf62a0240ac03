"""THE INDEXING PIPELINE: discover, plan, read, parse, chunk, commit; then communities and embeddings, commit by commit.

Documents whose text is unchanged but that other settings parsed or chunked keep their passages until the new ones have
vectors; then these replace them, a few documents at a time.

The index diff compares the files on disk with the index by size and time stamp: what to read and what to remove.

Full, incremental and watched indexing take the same path with a different list of files. A search runs the first two
steps before every query, so the modules of the later steps are imported only when a file has to be read.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import Refused
from marklight.ingest.discover import Discover, Scan, ScannedFile
from marklight.ingest.embedding import Embedded, Indexing
from marklight.ingest.recipe import Chunker, recipe
from marklight.ingest.scan_record import ScanState
from marklight.lazy import dataclass
from marklight.model import Batch, Document, DocumentId, Entry, Failure, digest
from marklight.ports import IndexedFile, Progress, Snapshot, no_progress
from marklight.report import Report

if TYPE_CHECKING:
    from marklight.ingest.boilerplate import Forecast
    from marklight.ingest.file_batch import FileBatch
    from marklight.ingest.parse_process import ParseProcess

FAILURES_RECIPE = "failures_recipe"
"""Manifest key: the recipe by which unreadable files were last tried; another recipe may succeed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Files to read and documents to remove from the index."""

    read: tuple[DocumentId, ...] = ()
    removed: tuple[DocumentId, ...] = ()
    outdated: tuple[DocumentId, ...] = ()
    """Documents with an unchanged file that another recipe parsed or chunked: they stay until they can be replaced."""

    def __bool__(self) -> bool:
        return bool(self.read or self.removed)


@dataclass(frozen=True, slots=True)
class IndexDiff:
    """The difference between disk and index."""

    generation: int
    version: str
    """Version of the indexed documents; if it changes, compare again."""
    scan: Scan
    indexed: Mapping[DocumentId, IndexedFile]
    failed: Mapping[DocumentId, Failure]
    tried_recipe: str
    """The recipe by which unreadable files were last tried."""
    plan: Plan
    unreadable: tuple[Failure, ...]
    """New failures of the scan, not yet stored in the index."""
    rebuild: bool
    nested: Mapping[DocumentId, int] = field(default_factory=dict)
    """Folders that have become libraries of their own, with the number of documents that leave this index."""

    def __bool__(self) -> bool:
        return bool(self.plan or self.unreadable)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the collector of reference cycles.

    It would traverse the states of all files again and again and find none: a quarter of the time of a scan at 16,000
    files, and a twentieth of that of indexing text.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compare(
    snapshot: Snapshot, version: str, scan: Scan, recipe: str, max_bytes: int, *, rebuild: bool
) -> IndexDiff:
    """Return the difference between the files of a scan and the index."""
    if not (scan.is_full or scan.files or scan.gone or scan.record.unreadable):
        return IndexDiff(snapshot.generation, version, scan, {}, {}, "", Plan(), (), rebuild)
    tried = snapshot.status.manifest().get(FAILURES_RECIPE, "")
    failures = snapshot.status.failures()
    failed = {failure.document: failure for failure in failures}
    if scan.is_full:
        indexed = snapshot.documents.files()
    else:
        changed = {*scan.files, *scan.gone}
        indexed = snapshot.documents.files_of(changed)
        failures = [failure for failure in failures if failure.document in changed]
    current = [_current(failure, scan.files, tried == recipe, max_bytes) for failure in failures]
    steps = plan(scan.files, indexed, current, scan.unreadable, recipe, rebuild=rebuild)
    removed = set(steps.removed)
    unreadable = tuple(
        failure
        for failure in scan.unreadable
        if failure.document in removed or failed.get(failure.document) != failure
    )
    leaving = {folder: sum(_below(id, folder) for id in removed) for folder in scan.nested}
    nested = {folder: count for folder, count in leaving.items() if count}
    facts = (indexed, failed, tried, steps, unreadable)
    return IndexDiff(snapshot.generation, version, scan, *facts, rebuild, nested)


def _current(
    failure: Failure,
    files: Mapping[DocumentId, ScannedFile],
    same_recipe: bool,
    max_bytes: int,
) -> Failure:
    """Return a failure with the file's state if reading the file again would fail the same way, else without."""
    from marklight.ingest.read import read

    scanned = files.get(failure.document)
    if scanned is None:
        return failure
    if failure.file:
        return failure if same_recipe else replace(failure, file=None)
    try:
        read(scanned.path, max_bytes, scanned.inode)
    except Refused as refused:
        if str(refused) == failure.reason:
            return replace(failure, file=scanned.file)
    return failure


def plan(
    files: Mapping[DocumentId, ScannedFile],
    indexed_files: Mapping[DocumentId, IndexedFile],
    failed: Iterable[Failure],
    unreadable: Iterable[Failure],
    recipe: str,
    *,
    rebuild: bool = False,
) -> Plan:
    """Return the files to read, which are new and changed ones, and the documents that another recipe parsed or chunked.

    A file that failed is read again unless it still has the state in which it failed. Failures of removed files are
    removed, and so are documents whose file can no longer be read.
    """
    read, outdated = [], []
    for id, scanned in files.items():
        indexed = indexed_files.get(id)
        if rebuild or indexed is None or indexed.file != scanned.file:
            read.append(id)
        elif indexed.recipe != recipe:
            outdated.append(id)
    # Recently edited documents are searched most, so they are indexed, and then embedded, before others.
    read.sort(key=lambda document: files[document].file.mtime_ns, reverse=True)
    tried = {failure.document: failure.file for failure in failed}
    if tried and not rebuild:
        read = [id for id in read if id not in tried or tried[id] != files[id].file]
    unseen = {failure.document for failure in unreadable}
    gone = [
        id
        for id in chain(indexed_files, (id for id in tried if id not in indexed_files))
        if id not in files and (id in indexed_files or id not in unseen)
    ]
    # Only the machines that had a file can find out that it was deleted.
    gone = [id for id in gone if id not in indexed_files or not indexed_files[id].file.is_elsewhere]
    # Documents below a folder that cannot be listed may still exist, so they are kept.
    folders = [id for id in unseen if id.path.endswith("/")]
    removed = [id for id in gone if not any(_below(id, folder) for folder in folders)]
    return Plan(tuple(read), tuple(removed), tuple(outdated))


def _to_retry(
    diff: IndexDiff,
    failures: Iterable[Failure],
    snapshot: Snapshot | None = None,
) -> list[DocumentId]:
    """Return the files whose state on the disk is not that in the index: racily clean, unread or unreadable for now."""
    failed = {failure.document: failure.file for failure in failures}
    files, left = diff.scan.files, list[DocumentId]()
    for start in range(0, len(diff.plan.read), COMPARED_AT_ONCE):
        ids = diff.plan.read[start : start + COMPARED_AT_ONCE]
        indexed = snapshot.documents.files_of(ids) if snapshot else {}
        for id in ids:
            state = indexed[id].file if id in indexed else failed.get(id)
            if state != files[id].file:
                left.append(id)
    return left + [id for id, file in failed.items() if file is None and id in files]


def _below(id: DocumentId, folder: DocumentId) -> bool:
    if id.collection != folder.collection:
        return False
    return folder.path == "/" or id.path.startswith(folder.path)


COMPARED_AT_ONCE = 1_000
"""Files whose states are read from the index together, after they were indexed."""
MIN_FORECAST_FILES = 50
"""Files in a plan above which they are read ahead: as many as the first batch of a new library has."""
MIN_PARSED_AHEAD_BYTES = 700_000
"""Text of a plan from which on it is parsed by a second process as well, which takes a tenth of a second to start."""
REQUESTED_RECIPE = "requested_recipe"
"""Manifest key: the recipe of the last process that left outdated documents to workers."""
REPLACED_BYTES, FEW_REPLACED_BYTES = 200_000, 25_000
"""Text of outdated documents that are replaced in one commit, and that under a time limit: a window of passages to embed."""


@dataclass(frozen=True)
class Ingest(Indexing):
    """Indexes files. Embedding, the last step, is `Indexing.embed_missing`."""

    collections: Mapping[str, Path]
    discover: Discover
    chunker: Chunker
    max_bytes: int
    scans: ScanState = field(default_factory=ScanState, compare=False)
    """The last scan that was compared with the index; shared by copies."""

    @cached_property
    def recipe(self) -> str:
        """Return a digest that changes whenever a document would be parsed or chunked differently."""
        return recipe(self.discover.parsers, self.chunker)

    def compare(
        self,
        *,
        rebuild: bool = False,
        documents: Collection[DocumentId] | None = None,
        until: float | None = None,
    ) -> IndexDiff:
        """Discover and plan: return the difference between disk and index, or that of the folders of some documents."""
        # Opened before the scan; otherwise a document that another process adds in between would count as removed.
        with without_garbage_collection(), self.engine.snapshot() as snapshot:
            version = self._version(snapshot)
            known = "" if rebuild else version
            scan = self.scans.scan(self.discover, self.collections, known, documents, until)
            diff = compare(snapshot, version, scan, self.recipe, self.max_bytes, rebuild=rebuild)
        if not diff:
            self.scans.keep(scan, version, _to_retry(diff, diff.failed.values()))
        outdated = dict.fromkeys(diff.plan.outdated)
        for id in list(self.outdated):  # another process may have replaced some
            if id not in outdated and (id in scan.files or id in diff.plan.removed):
                self.outdated.pop(id, None)
        self.outdated.update(outdated)
        return diff

    def index_text(
        self, diff: IndexDiff, progress: Progress = no_progress, until: float | None = None
    ) -> Report:
        """Read, parse, chunk and commit the files of a plan; keyword search finds them afterwards.

        At `until`, a `time.monotonic` value, it stops; the report lists the files that are left.
        """
        with without_garbage_collection():
            report = self._index_text(diff, progress, until)
        with self.engine.snapshot() as snapshot:
            left = _to_retry(diff, snapshot.status.failures(), snapshot)
            self.scans.keep(diff.scan, self._version(snapshot), left)
        return report

    def _index_text(self, diff: IndexDiff, progress: Progress, until: float | None) -> Report:
        from marklight.ingest.file_batch import moves

        reports, done = list[Report](), 0
        removed = {diff.indexed[id].digest: id for id in diff.plan.removed if id in diff.indexed}
        with self._parse_process(diff, until) as process:
            forecast = self._forecast(diff) if until is None else None
            for files, batch in self._read(diff, forecast, process, progress, until):
                moved = moves(batch.documents, diff.indexed, removed)
                gone = (*moved.values(), *batch.removed)
                shared, again = self._shared_blocks(batch, gone, forecast)
                entries = batch.chunk(self.chunker, shared)
                if commit := batch.commit((*entries, *again), moved):
                    self.engine.commit(commit)
                if len(diff.plan.read) <= MIN_FORECAST_FILES:
                    self.prefer([chunk.id for entry in entries for chunk in entry.chunks])
                self.outdated.update(dict.fromkeys(batch.outdated))
                reports.append(batch.report(moved, files))
                done += len(files)
                del batch, entries, commit  # before the next batch is received
                gc.collect(0)  # only what this batch made
        return self._finish(diff, Report.joined(reports), done, forecast)

    def _parse_process(
        self, diff: IndexDiff, until: float | None
    ) -> AbstractContextManager[ParseProcess | None]:
        """Start a second process for a large plan; until it is ready, this one makes the forecast."""
        files = diff.plan.read if until is None and self.chunker.boilerplate else ()
        size = sum(diff.scan.files[id].file.size for id in files)
        if len(files) <= MIN_FORECAST_FILES or size < MIN_PARSED_AHEAD_BYTES:
            return nullcontext()
        from marklight.ingest.parse_process import ParseProcess

        return closing(ParseProcess())

    def _version(self, snapshot: Snapshot) -> str:
        """Return a text that changes whenever a document is added, replaced, removed or outdated."""
        return f"{snapshot.status.documents_version()} {self.recipe}"

    def save_scan(self) -> None:
        """Save the record of the last scan for the next process; it needs to know of outdated documents."""
        if not self.outdated:
            self.scans.save()

    def is_current(self, diff: IndexDiff) -> bool:
        """Return true if no document of the index has changed since a comparison."""
        with self.engine.snapshot() as snapshot:
            return self._version(snapshot) == diff.version

    def _read(
        self,
        diff: IndexDiff,
        forecast: Forecast | None,
        process: ParseProcess | None,
        progress: Progress,
        until: float | None,
    ) -> Iterator[tuple[list[ScannedFile], FileBatch]]:
        """Yield the files of a plan in batches, read and parsed; those of a large plan are chunked as well."""
        from marklight.ingest.file_batch import batches

        empty = self._batch(diff.indexed, diff.failed)
        if forecast and process:
            from marklight.ingest.parse_process import BatchReader, read_ahead

            reader = BatchReader(empty, self.chunker, forecast.estimate, diff.rebuild)
            yield from read_ahead(batches(diff, progress, until), reader, process)
            return
        for files in batches(diff, progress, until):
            batch = self._batch(diff.indexed, diff.failed)
            for file in files:
                batch.read(file, rebuild=diff.rebuild)
            yield files, batch

    def _forecast(self, diff: IndexDiff) -> Forecast | None:
        """Read the files of a large plan ahead, to estimate which blocks of text they share."""
        if not self.chunker.boilerplate or len(diff.plan.read) <= MIN_FORECAST_FILES:
            return None
        from marklight.ingest.boilerplate import Forecast
        from marklight.ingest.read import read

        sizes = (diff.scan.files[id].file.size for id in diff.plan.read)
        size = sum(min(size, self.max_bytes) for size in sizes)
        forecast = Forecast(self.chunker.boilerplate, size, of_all=not diff.indexed)
        for scanned in map(diff.scan.files.__getitem__, diff.plan.read):
            with suppress(Refused):
                text = read(scanned.path, self.max_bytes, scanned.inode).text
                forecast.add(scanned.id, text)
        return forecast

    def _finish(
        self, diff: IndexDiff, report: Report, done: int, forecast: Forecast | None
    ) -> Report:
        """Commit what is left of a plan: removed documents, new failures, the recipe of the failures."""
        moved_away = {old for old, _ in report.moved}
        removed = tuple(id for id in diff.plan.removed if id not in moved_away)
        refused = any(failure.file for failure in (*diff.failed.values(), *report.skipped))
        tried_all = diff.scan.is_full and done == len(diff.plan.read)
        outdated = refused and tried_all and diff.tried_recipe != self.recipe
        manifest = {FAILURES_RECIPE: self.recipe} if outdated else {}
        _, again = self._shared_blocks(None, removed, forecast)
        if last := Batch(
            entries=tuple(again), removed=removed, failures=diff.unreadable, manifest=manifest
        ):
            self.engine.commit(last)
        nested = (
            f"{'1 document' if count == 1 else f'{count:,} documents'} in"
            f" {self.collections[folder.collection] / folder.path} {'has' if count == 1 else 'have'} left this library:"
            " the folder is a library with an index of its own."
            " To search it here too, list it under [collections] in marklight.toml"
            for folder, count in diff.nested.items()
        )
        return replace(
            report,
            added=tuple(sorted(report.added)),
            changed=tuple(sorted(report.changed)),
            notices=(*report.notices, *nested),
            removed=(*report.removed, *(id for id in removed if id in diff.indexed)),
            skipped=(*report.skipped, *diff.unreadable),
            unread=diff.plan.read[done:],
        )

    def update_communities(self) -> None:
        """Group documents by their links again, if links changed."""
        from marklight.ingest.communities import update_communities

        update_communities(self.engine)

    def _shared_blocks(
        self,
        batch: FileBatch | None,
        removed: Sequence[DocumentId],
        forecast: Forecast | None,
    ) -> tuple[frozenset[int], list[Entry]]:
        """Return the boilerplate of new documents, and other documents in which a block starts or ceases to be boilerplate."""
        documents = list(batch.blocks()) if batch and self.chunker.boilerplate else []
        if not self.chunker.boilerplate or not (documents or removed or forecast):
            return frozenset(), []
        from marklight.ingest.boilerplate import find_shared

        with self.engine.snapshot() as snapshot:
            minimum = self.chunker.boilerplate
            shared, ceased, outdated = find_shared(snapshot, documents, removed, minimum, forecast)
            if outdated:
                # Documents with another recipe are chunked again by this run anyway.
                files = snapshot.documents.files_of(outdated)
                outdated = [id for id in outdated if files[id].recipe == self.recipe]
            originals = {document.id: document for document in stored_documents(snapshot, outdated)}
            stored = snapshot.blocks.boilerplate_of(list(originals))
        # A document that fails now stays as it is.
        again = self._batch({}, {}, originals.values()).chunk(
            self.chunker, shared | stored - ceased
        )
        return shared, [
            replace(entry, document=original, replaces=original.digest)
            for entry in again
            if (original := originals[entry.document.id])
        ]

    def _batch(
        self,
        indexed: Mapping[DocumentId, IndexedFile],
        failed: Mapping[DocumentId, Failure],
        stored: Iterable[Document] = (),
    ) -> FileBatch:
        """Return a batch, with stored documents parsed again."""
        from marklight.ingest.file_batch import FileBatch
        from marklight.ingest.read import Source

        batch = FileBatch(self.discover.parsers, self.recipe, self.max_bytes, indexed, failed)
        for document in stored:
            batch.parse(document.id, Source(document.text, document.file))
        return batch

    def request_replacement(self) -> None:
        """Record the recipe to which workers bring outdated documents."""
        if not self.outdated:
            return
        with self.engine.snapshot() as snapshot:
            requested = snapshot.status.manifest().get(REQUESTED_RECIPE)
        if requested != self.recipe:
            self.commit(Batch(manifest={REQUESTED_RECIPE: self.recipe}))

    def find_outdated(self) -> None:
        """Find the documents that workers are to replace, in random order, so that two rarely choose the same one.

        A worker with other settings than the process that read the files finds none.
        """
        with self.engine.snapshot() as snapshot:
            if snapshot.status.manifest().get(REQUESTED_RECIPE) != self.recipe:
                return
            files = snapshot.documents.files()
        outdated = [
            id
            for id, file in files.items()
            if id.collection in self.collections and file.recipe != self.recipe
        ]
        from random import shuffle  # 2 ms, and no search needs it

        shuffle(outdated)
        self.outdated.update(dict.fromkeys(outdated))

    def replace_outdated(self, progress: Progress, until: float | None) -> Embedded:
        """Parse and chunk outdated documents again, from their stored text, and embed their passages; then replace them.

        A search finds the old passages of a document or the new ones, and both have vectors. An interrupted run has
        replaced some documents, and the next one continues with the others.
        """
        passages, replaced, total = 0, list[DocumentId](), len(self.outdated)
        while self.outdated and (until is None or time.monotonic() < until):
            progress("Embedding changed passages", total - len(self.outdated), total)
            chosen, batch = self._chunk_outdated(
                REPLACED_BYTES if until is None else FEW_REPLACED_BYTES
            )
            chunks = (chunk for entry in batch.entries for chunk in entry.chunks)
            count, complete = self.embed_ahead(chunks, until)
            passages += count
            if not complete:
                break
            if batch:
                self.commit(batch)
            for id in chosen:
                self.outdated.pop(id, None)
            replaced += (entry.document.id for entry in batch.entries)
            self.embed_passages(progress, until)  # another process may have dropped unused vectors
            self.drop_unused_vectors()
        return Embedded(passages, tuple(replaced))

    def _chunk_outdated(self, max_bytes: int) -> tuple[list[DocumentId], Batch]:
        """Return some outdated documents, and the commit that replaces them."""
        with self.engine.snapshot() as snapshot:
            chosen: list[DocumentId] = []
            documents: list[Document] = []
            for id in list(self.outdated):
                chosen.append(id)
                stored = stored_documents(snapshot, [id])
                documents += (document for document in stored if document.recipe != self.recipe)
                if sum(len(document.text) for document in documents) >= max_bytes:
                    break
            indexed = snapshot.documents.files_of([document.id for document in documents])
        batch = self._batch(indexed, {}, documents)
        shared, again = self._shared_blocks(batch, batch.removed, None)
        entries = [
            replace(entry, replaces=indexed[entry.document.id].digest)
            for entry in batch.chunk(self.chunker, shared)
        ]
        return chosen, batch.commit((*entries, *again), {})


def stored_documents(snapshot: Snapshot, ids: Iterable[DocumentId]) -> list[Document]:
    """Return stored documents, without those whose text is damaged."""
    documents = (snapshot.documents.get(id) for id in ids)
    return [
        document for document in documents if document and digest(document.text) == document.digest
    ]
