"""Copy an index into another engine: documents, vectors of all models, communities and manifest; resumable, then verified.

The target is marked as incomplete before the first change and unmarked after both sides were compared. What it already has
is compared and not written again, so that the same command continues a copy that was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from marklight.batch import Batch, Entry, Vectors
from marklight.errors import StoreError, UsageError
from marklight.ingest.links import GROUPED
from marklight.library.transfer.contents import (
    SnapshotSource,
    Source,
    Summary,
    batches,
    content,
    group_rows,
    merge,
    path_first,
    row_key,
    summarize,
    text_length,
    vector_record,
    vector_rows,
)
from marklight.model import DocumentId, FileState
from marklight.ports import INCOMPLETE, Engine, Progress, Snapshot, no_progress

BATCH_VECTORS = 4096
"""Vectors of one commit: 6 MB with 384 numbers each."""
BATCH_FAILURES = 1000
UNKNOWN_NS = 2
"""Time at which a file of another machine was read: before any other time, and not that of `FileState.elsewhere`."""


def copy(
    source: Source,
    target: Engine,
    *,
    replace_other: bool = False,
    wait_seconds: float = 10.0,
    progress: Progress = no_progress,
) -> Transfer:
    """Make the index of `target` equal to a source; refuse one with other content unless `replace_other` is true."""
    with target.writing(wait_seconds):
        empty = check_target(target, replace_other=replace_other)
        target.commit(Batch(manifest={INCOMPLETE: "incomplete"}))
        transfer = Transfer(source, target, progress, fresh=empty)
        transfer.copy_documents()
        transfer.copy_vectors()
        transfer.finish()
        with target.snapshot() as after:
            written = SnapshotSource(after)
            found = summarize(written, files=source.has_file_states, progress=progress)
        differences = transfer.summary.differences(found)
        if not source.has_file_states:
            # Another version may have written the archive, with another vocabulary.
            differences = [part for part in differences if not part.startswith("term vectors")]
        if differences:
            known = ". ".join(target.take_notices())
            raise StoreError(
                f"The copy differs from its source in {', '.join(differences)}",
                known or "Another process may have changed the target. Run the command again",
            )
        target.commit(Batch(manifest={INCOMPLETE: ""}))
    return transfer


def check_target(target: Engine, *, replace_other: bool) -> bool:
    """Return True if an index is empty; raise UsageError if it has other content, unless that may be replaced."""
    with target.snapshot() as before:
        manifest, counts = before.status.manifest(), before.status.counts("")
        empty = not counts.documents and not counts.failed and not before.contents.models()
    if not (empty or manifest.get(INCOMPLETE) or replace_other):
        documents = "1 document" if counts.documents == 1 else f"{counts.documents:,} documents"
        raise UsageError(
            f"{target.describe()} already contains an index with {documents}",
            "Use --replace to replace it",
        )
    return empty


class Transfer:
    """The steps of one copy, and what they read and wrote."""

    def __init__(
        self,
        source: Source,
        target: Engine,
        progress: Progress,
        *,
        fresh: bool,
    ) -> None:
        self.summary = Summary()
        """Summary of the source."""
        self.written_documents = self.removed_documents = self.written_vectors = 0
        self._source, self._target, self._progress = source, target, progress
        self._fresh = fresh
        self._shared = bool(target.server())
        """True if the target was empty, so that there is nothing to compare."""
        self._communities: dict[DocumentId, int] = {}
        self.collections: set[str] = set()
        self.recipes: set[str] = set()
        self.models = tuple(sorted(source.models()))

    def copy_documents(self) -> None:
        """Write documents that are missing or differ, and remove those that the source does not have."""
        total, files = self._source.counts()[0], self._source.has_file_states
        with ExitStack() as stack:
            stored: Iterable[Entry] = ()
            if not self._fresh:
                stored = stack.enter_context(self._target.snapshot()).contents.entries()
            pairs = merge(map(self._adapted, self._source.entries()), stored, path_first)
            for group in batches(pairs, lambda pair: text_length(pair[0] or pair[1])):
                self._progress("Copying documents", self.summary.counts.get("documents", 0), total)
                ids = [entry.document.id for entry, _ in group if entry]
                communities = self._source.communities(ids)
                self._communities.update(communities)
                changes = _Changes()
                for entry, old in group:
                    if entry:
                        self.collections.add(entry.document.id.collection)
                        self.recipes.add(entry.document.recipe)
                        whole = self.summary.add_entry(entry, communities, files=files)
                        changes.add(entry, whole, old, files=files)
                    elif old:
                        changes.removed.append(old.document.id)
                self.written_documents += len(changes.entries)
                self.removed_documents += len(changes.removed)
                if batch := changes.to_batch():
                    self._target.commit(batch)

    def _adapted(self, entry: Entry) -> Entry:
        """Return a document for the target: a file that was read on another machine only is compared by content."""
        file = entry.document.file
        if self._source.has_file_states and not file.is_elsewhere:
            return entry
        file = FileState.elsewhere(*file[:2]) if self._shared else FileState.racy(file, UNKNOWN_NS)
        return replace(entry, document=replace(entry.document, file=file))

    def copy_vectors(self) -> None:
        """Write the vectors that are missing; a model with other vectors in the target is dropped from it first."""
        models, total = self._source.models(), self._source.counts()[1]
        if not self._fresh:
            with self._target.snapshot() as snapshot:
                stored = snapshot.contents.models()
                kept = [model for model in stored if self._agrees(model, snapshot)]
            if len(kept) < len(stored):
                self._target.clean(kept)
        for model in models:
            with ExitStack() as stack:
                stored_rows: Iterable[Vectors] = ()
                stored_terms: Iterable[Vectors] = ()
                if not self._fresh:
                    contents = stack.enter_context(self._target.snapshot()).contents
                    stored_rows, stored_terms = (
                        contents.vectors(model),
                        contents.term_vectors(model),
                    )
                own = self._source.vectors(model)
                for missing in self._missing("vectors", model, own, stored_rows):
                    self._progress("Copying vectors", self.summary.total("vectors"), total)
                    self._target.commit(Batch(vectors=missing))
                    self.written_vectors += len(missing.digests)
                own = self._source.term_vectors(model)
                for missing in self._missing("term vectors", model, own, stored_terms):
                    self._target.commit(Batch(concepts=missing))

    def _agrees(self, model: str, snapshot: Snapshot) -> bool:
        """Return False if the target has a vector that the source does not have: commits never replace one."""
        if snapshot.contents.models()[model] != self._source.models().get(model):
            return False
        contents = snapshot.contents
        return all(
            theirs is None or theirs == ours
            for own, other in (
                (self._source.vectors(model), contents.vectors(model)),
                (self._source.term_vectors(model), contents.term_vectors(model)),
            )
            for ours, theirs in merge(vector_rows(own), vector_rows(other), row_key)
        )

    def _missing(
        self, part: str, model: str, own: Iterable[Vectors], stored: Iterable[Vectors]
    ) -> Iterator[Vectors]:
        """Yield the vectors that the target does not have, in groups, and add all of the source to the summary."""
        missing: dict[str, bytes] = {}
        for ours, theirs in merge(vector_rows(own), vector_rows(stored), row_key):
            if ours:
                key, row = ours
                self.summary.add(f"{part} of {model}", vector_record(key, row))
                if theirs is None:
                    missing[key] = row
            if len(missing) >= BATCH_VECTORS:
                yield group_rows(model, missing)
                missing = {}
        if missing:
            yield group_rows(model, missing)

    def finish(self) -> None:
        """Write failures, communities and manifest, which belong to all documents together."""
        failures = list(self._source.failures())
        if self._source.has_file_states:
            self.summary.add_failures(failures)
        with self._target.snapshot() as snapshot:
            known = {failure.document for failure in snapshot.status.failures()}
            linked = str(snapshot.links.last_changed())
        gone = tuple(known - {failure.document for failure in failures})
        for start in range(0, len(failures), BATCH_FAILURES):
            self._target.commit(Batch(failures=tuple(failures[start : start + BATCH_FAILURES])))
        grouped = {GROUPED: linked} if self._source.has_current_communities() else {}
        manifest = {**self._source.manifest(), **grouped}
        self._target.commit(Batch(removed=gone, communities=self._communities, manifest=manifest))


@dataclass(slots=True)
class _Changes:
    """Changes that are collected for one commit."""

    entries: list[Entry] = field(default_factory=list)
    removed: list[DocumentId] = field(default_factory=list)
    touched: list[tuple[DocumentId, FileState]] = field(default_factory=list)

    def add(self, entry: Entry, whole: bytes, stored: Entry | None, *, files: bool) -> None:
        """Add what makes a stored document equal to one of the source."""
        file = entry.document.file
        if stored is None or content(stored) != whole:
            self.entries.append(entry)
        elif files and stored.document.file != file:
            self.touched.append((entry.document.id, file))

    def to_batch(self) -> Batch:
        return Batch(tuple(self.entries), tuple(self.removed), tuple(self.touched))
