"""Read, parse and chunk the changed files in batches, each of which becomes one commit."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from marklight.errors import Refused
from marklight.ingest.chunk import chunk
from marklight.ingest.discover import ScannedFile
from marklight.ingest.document import parse_document
from marklight.ingest.parse import ParsedText
from marklight.ingest.pipeline import IndexDiff
from marklight.ingest.read import (
    Source,
    TemporarilyUnreadable,
    read,
    stored_state,
    wait_for_tick,
)
from marklight.ingest.recipe import Chunker
from marklight.lazy import dataclass
from marklight.model import Batch, Document, DocumentId, Entry, Failure, FileState, digest
from marklight.ports import IndexedFile, Progress
from marklight.report import Report

BATCH_BYTES = 800_000
"""Bytes of files in one commit: few enough to bound memory, enough that the cost of a commit itself is negligible."""
BATCH_FILES = 500
SMALL_BATCH_BYTES, SMALL_BATCH_FILES = 200_000, 50
"""Batch size under a time limit (a tenth of a second of work), and of the first batch of a new library. There each
batch is four times as large as the one before: a first query finds something soon, at the cost of a few commits."""


def batches(
    diff: IndexDiff, progress: Progress, until: float | None
) -> Iterator[list[ScannedFile]]:
    """Return the files to read, in batches, until a `time.monotonic` value; at least one batch."""
    small = until is not None or not diff.indexed
    max_bytes = SMALL_BATCH_BYTES if small else BATCH_BYTES
    max_files = SMALL_BATCH_FILES if small else BATCH_FILES
    batch: list[ScannedFile] = []
    size = 0
    for done, id in enumerate(diff.plan.read):
        progress("Reading text", done, len(diff.plan.read))
        batch.append(diff.scan.files[id])
        size += batch[-1].file.size
        if size >= max_bytes or len(batch) >= max_files:
            yield batch
            batch, size = [], 0
            if until is None:
                max_bytes = min(4 * max_bytes, BATCH_BYTES)
                max_files = min(4 * max_files, BATCH_FILES)
            elif time.monotonic() >= until:
                return
    if batch:
        yield batch


@dataclass(slots=True)
class FileBatch:
    """The results for one batch of files. A file that fails is one entry in the report and stops nothing."""

    parsers: Mapping[str, str]
    recipe: str
    max_bytes: int
    indexed: Mapping[DocumentId, IndexedFile]
    failed: Mapping[DocumentId, Failure]
    parsed: list[tuple[Document, ParsedText]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    """Documents that were parsed and chunked ahead, by an estimate of what is boilerplate."""
    touched: list[tuple[DocumentId, FileState]] = field(default_factory=list)
    """Documents whose time stamp changed, but not their text."""
    outdated: list[DocumentId] = field(default_factory=list)
    """Documents with the same text that another recipe parsed or chunked."""
    failures: list[Failure] = field(default_factory=list)
    removed: list[DocumentId] = field(default_factory=list)

    def joined(self, parts: Iterable[FileBatch]) -> FileBatch:
        """Return this batch with the documents of others added, whose files are part of it."""
        for part in parts:
            for name in ("parsed", "entries", "touched", "outdated", "failures", "removed"):
                getattr(self, name).extend(getattr(part, name))
        return self

    def read(self, scanned: ScannedFile, *, rebuild: bool) -> None:
        """Read and parse one file."""
        indexed, failed = self.indexed.get(scanned.id), self.failed.get(scanned.id)
        before = indexed.file if indexed else failed.file if failed else None
        # The clock is read before the file: the next scan must notice any edit after this.
        read_ns = wait_for_tick(scanned.file)
        try:
            source = read(scanned.path, self.max_bytes, scanned.inode)
        except Refused as refused:
            temporary = isinstance(refused, TemporarilyUnreadable)
            state = None if temporary else stored_state(scanned.file, read_ns, before)
            exists = os.path.lexists(scanned.path)
            self._remove(scanned.id, Failure(scanned.id, str(refused), state) if exists else None)
            return
        source = replace(source, file=stored_state(source.file, read_ns, before))
        # If another machine indexed a later version, two clones would replace each other's text for ever.
        is_older = (
            indexed and indexed.file.is_elsewhere and source.file.mtime_ns < indexed.file.mtime_ns
        )
        if indexed and not rebuild and (is_older or indexed.digest == digest(source.text)):
            if source.file != indexed.file:
                self.touched.append((scanned.id, source.file))
            if indexed.recipe != self.recipe:
                self.outdated.append(scanned.id)
        else:
            self.parse(scanned.id, source)

    def parse(self, id: DocumentId, source: Source) -> None:
        """Parse one text; an error of the parser becomes a failure of this document alone."""
        try:
            self.parsed.append(parse_document(id, source, self.parsers, self.recipe))
        except Exception as error:
            self._remove(id, _parse_failure(id, error, source.file))

    def chunk(self, chunker: Chunker, shared: Collection[int]) -> list[Entry]:
        """Return the parsed documents with their passages; an error becomes a failure of its document alone."""
        entries: list[Entry] = []
        for entry in self.entries:
            if all(own == (key in shared) for key, own in entry.block_digests.items()):
                entries.append(entry)
            else:
                source = Source(entry.document.text, entry.document.file)
                parsed = parse_document(entry.document.id, source, self.parsers)[1]
                self.parsed.append((entry.document, parsed))
        self.entries = list(entries)
        for document, parsed in self.parsed:
            try:
                entries.append(chunk(document, parsed, chunker, shared))
            except Exception as error:
                self._remove(document.id, _parse_failure(document.id, error, document.file))
        chunked = {entry.document.id for entry in entries}
        self.parsed = [pair for pair in self.parsed if pair[0].id in chunked]
        return entries

    @property
    def documents(self) -> list[Document]:
        """Return the documents that were parsed."""
        return [*(entry.document for entry in self.entries), *(pair[0] for pair in self.parsed)]

    def blocks(self) -> Iterator[tuple[Document, Collection[int]]]:
        """Yield the documents that were parsed with the digests of their blocks."""
        for entry in self.entries:
            yield entry.document, entry.block_digests
        for document, parsed in self.parsed:
            yield document, {block.digest for block in parsed.text_blocks if block.digest}

    def commit(self, entries: Sequence[Entry], moved: Mapping[DocumentId, DocumentId]) -> Batch:
        """Return the batch as one commit; a moved document leaves its old path in the same one."""
        return Batch(
            entries=tuple(entries),
            removed=(*moved.values(), *self.removed),
            touched=tuple(self.touched),
            failures=tuple(self.failures),
        )

    def report(
        self, moved: Mapping[DocumentId, DocumentId], files: Iterable[ScannedFile]
    ) -> Report:
        """Return the report of this batch and its files; `moved` maps new ids to old ones."""
        parsed = {document.id for document in self.documents}
        # A report of a million files must not keep the ids of documents that were parsed by another process: copies.
        ids = [file.id for file in files if file.id in parsed]
        return Report(
            added=tuple(id for id in ids if id not in self.indexed and id not in moved),
            changed=tuple(id for id in ids if id in self.indexed),
            moved=tuple((old, new) for new, old in moved.items()),
            removed=tuple(id for id in self.removed if id not in parsed),
            skipped=tuple(self.failures),
            remarks=tuple(
                (document.id, text) for document in self.documents for text in document.remarks
            ),
        )

    def _remove(self, id: DocumentId, failure: Failure | None) -> None:
        if id in self.indexed:
            self.removed.append(id)
        # A failure that is stored already must not make a commit in every run.
        if failure and (id in self.indexed or failure != self.failed.get(id)):
            self.failures.append(failure)


def _parse_failure(id: DocumentId, error: Exception, file: FileState) -> Failure:
    return Failure(id, f"could not be parsed: {type(error).__name__}: {error}", file)


def moves(
    documents: Sequence[Document],
    indexed: Mapping[DocumentId, IndexedFile],
    removed: dict[str, DocumentId],
) -> dict[DocumentId, DocumentId]:
    """Match new documents with removed ones of the same text: new id to old id; takes matches out of `removed`."""
    return {
        document.id: removed.pop(document.digest)
        for document in documents
        if document.id not in indexed and document.digest in removed
    }
