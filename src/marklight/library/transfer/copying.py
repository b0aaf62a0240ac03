"""Copy an index into another engine: documents, vectors of all models and manifest; resumable, then verified.

The target is marked as incomplete before the first change and unmarked after both sides were compared. What it already has
is compared and not written again, so that the same command continues a copy that was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from marklight.errors import StoreError, UsageError
from marklight.formatting import counted
from marklight.ingest.communities import GROUPED, MAX_PAIRS, find_communities
from marklight.lazy import dataclass
from marklight.library.transfer.archive_records import encode_entry, encode_json
from marklight.model import Batch, DocumentId, Entry, Failure, FileState, Vectors
from marklight.ports import INCOMPLETE, WRITER_SECONDS, Engine, Progress, Snapshot, no_progress

if TYPE_CHECKING:
    from marklight.engines.relational.documents import RelationalContents
    from marklight.library.transfer.archive import Archive

BATCH_BYTES, BATCH_DOCUMENTS = 5_000_000, 500
"""Records and documents of one commit: some 2 million characters of text, as when files are indexed."""
_MODULUS = 2**128
BATCH_VECTORS = 4096
"""Vectors of one commit: 6 MB with 384 numbers each."""
BATCH_FAILURES = 1000
MAX_COLLECTIONS = 1000
"""Names of collections that are kept for the report."""
MAX_ARCHIVE_PAIRS = 20_000
"""Linked pairs of an archive, some 1 kB of memory each, above which the next run finds the communities."""
UNKNOWN_NS = 2
"""Time at which a file of another machine was read: before any other time, and not that of `FileState.elsewhere`."""

_Item = TypeVar("_Item")


def copy(
    source: Source,
    target: Engine,
    progress: Progress = no_progress,
    *,
    replace_other: bool = False,
) -> Transfer:
    """Make the index of `target` equal to a source; refuse one with other content unless `replace_other` is true."""
    with target.writing(WRITER_SECONDS):
        empty = check_target(target, replace_other=replace_other)
        target.commit(Batch(manifest={INCOMPLETE: "incomplete"}))
        transfer = Transfer(source, target, progress, fresh=empty)
        transfer.copy_documents()
        transfer.copy_vectors()
        transfer.finish()
        with target.snapshot() as after:
            written = snapshot_source(after)
            copied = summarize(written, files=source.has_file_states, progress=progress)
        differences = transfer.summary.differences(copied)
        if not source.has_file_states:
            # Another version may have written the archive, with another vocabulary.
            differences = [part for part in differences if not part.startswith("term vectors")]
        if differences:
            notices = ". ".join(target.take_notices())
            raise StoreError(
                f"The copy differs from its source in {', '.join(differences)}",
                notices or "Another process may have changed the target. Run the command again",
            )
        target.commit(Batch(manifest={INCOMPLETE: ""}))
    return transfer


def check_target(target: Engine, *, replace_other: bool) -> bool:
    """Return True if an index is empty; raise UsageError if it has other content, unless that may be replaced."""
    with target.snapshot() as before:
        manifest, counts = before.status.manifest(), before.status.counts("")
        empty = not counts.documents and not counts.failed and not before.contents.models()
    if not (empty or manifest.get(INCOMPLETE) or replace_other):
        raise UsageError(
            f"{target.describe()} already contains an index with {counted(counts.documents, 'document')}",
            "Use --replace to replace it",
        )
    return empty


class Transfer:
    """The steps of one copy, and what they read and wrote."""

    def __init__(self, source: Source, target: Engine, progress: Progress, *, fresh: bool) -> None:
        self.summary = Summary()
        """Summary of the source."""
        self.written_documents = self.removed_documents = 0
        self._source, self._target, self._progress = source, target, progress
        self._fresh = fresh
        """True if the target was empty, so that there is nothing to compare."""
        self._shared = bool(target.server())
        self.collections: set[str] = set()
        self.recipes: set[str] = set()
        """Of recipes, at most two: one of them differs from that of any library."""
        self.models = tuple(sorted(source.contents.models()))

    def copy_documents(self) -> None:
        """Write documents that are missing or differ, and remove those that the source does not have."""
        total, files = self._source.documents, self._source.has_file_states
        with ExitStack() as stack:
            stored: Iterable[Entry] = ()
            if not self._fresh:
                stored = stack.enter_context(self._target.snapshot()).contents.entries()
            pairs = merge(map(self._adapted, self._source.contents.entries()), stored, path_first)
            entries: list[Entry] = []
            removed: list[DocumentId] = []
            touched: list[tuple[DocumentId, FileState]] = []

            def commit() -> None:
                self.written_documents += len(entries)
                self.removed_documents += len(removed)
                if batch := Batch(tuple(entries), tuple(removed), tuple(touched)):
                    self._target.commit(batch)
                for changes in (entries, removed, touched):
                    changes.clear()

            size = 0
            for entry, old in pairs:
                self._progress("Copying documents", self.summary.counts.get("documents", 0), total)
                if entry:
                    if len(self.collections) < MAX_COLLECTIONS:
                        self.collections.add(entry.document.id.collection)
                    if len(self.recipes) < 2:
                        self.recipes.add(entry.document.recipe)
                    whole = self.summary.add_entry(entry, files=files)
                    if old is None or encode_entry(old, file=False) != whole:
                        entries.append(entry)
                        size += len(whole)
                    elif files and old.document.file != entry.document.file:
                        touched.append((entry.document.id, entry.document.file))
                elif old:
                    removed.append(old.document.id)
                if (
                    size >= BATCH_BYTES
                    or len(entries) + len(removed) + len(touched) >= BATCH_DOCUMENTS
                ):
                    commit()
                    size = 0
            commit()

    def _adapted(self, entry: Entry) -> Entry:
        """Return a document for the target: a file that was read on another machine only is compared by content."""
        file = entry.document.file
        if self._source.has_file_states and not file.is_elsewhere:
            return entry
        file = FileState.elsewhere(*file[:2]) if self._shared else FileState.racy(file, UNKNOWN_NS)
        return replace(entry, document=replace(entry.document, file=file))

    def copy_vectors(self) -> None:
        """Write the vectors that are missing; a model with other vectors in the target is dropped from it first."""
        ours, total = self._source.contents, self._source.passages
        if not self._fresh:
            with self._target.snapshot() as snapshot:
                stored = snapshot.contents.models()
                kept = [model for model in stored if self._agrees(model, snapshot)]
            if len(kept) < len(stored):
                self._target.clean(kept)
        for model in ours.models():
            with ExitStack() as stack:
                stored_rows: Iterable[Vectors] = ()
                stored_terms: Iterable[Vectors] = ()
                if not self._fresh:
                    contents = stack.enter_context(self._target.snapshot()).contents
                    stored_rows = contents.vectors(model)
                    stored_terms = contents.term_vectors(model)
                vectors = ours.vectors(model)
                for missing in self._missing("vectors", model, vectors, stored_rows):
                    self._progress("Copying vectors", self.summary.total("vectors"), total)
                    self._target.commit(Batch(vectors=missing))
                vectors = ours.term_vectors(model)
                for missing in self._missing("term vectors", model, vectors, stored_terms):
                    self._target.commit(Batch(concepts=missing))

    def _agrees(self, model: str, snapshot: Snapshot) -> bool:
        """Return False if the target has a vector that the source does not have: commits never replace one."""
        source, contents = self._source.contents, snapshot.contents
        if contents.models()[model] != source.models().get(model):
            return False
        return all(
            theirs is None or theirs == ours
            for vectors, other in (
                (source.vectors(model), contents.vectors(model)),
                (source.term_vectors(model), contents.term_vectors(model)),
            )
            for ours, theirs in merge(vector_rows(vectors), vector_rows(other), itemgetter(0))
        )

    def _missing(
        self, part: str, model: str, vectors: Iterable[Vectors], stored: Iterable[Vectors]
    ) -> Iterator[Vectors]:
        """Yield the vectors that the target does not have, in groups, and add all of the source to the summary."""
        missing: dict[str, bytes] = {}
        for ours, theirs in merge(vector_rows(vectors), vector_rows(stored), itemgetter(0)):
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
        failures, max_pairs = self._source.failures, MAX_ARCHIVE_PAIRS
        if self._source.has_file_states:
            self.summary.add_failures(failures)
            max_pairs = MAX_PAIRS
        with self._target.snapshot() as snapshot:
            stored = {failure.document for failure in snapshot.status.failures()}
            communities = find_communities(snapshot, max_pairs)
            manifest = dict(self._source.manifest)
            if communities is not None:
                manifest[GROUPED] = str(snapshot.links.last_changed())
        gone = tuple(stored - {failure.document for failure in failures})
        for start in range(0, len(failures), BATCH_FAILURES):
            self._target.commit(Batch(failures=tuple(failures[start : start + BATCH_FAILURES])))
        self._target.commit(Batch(removed=gone, communities=communities, manifest=manifest))


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a copy: a snapshot of an engine, or an archive."""

    contents: RelationalContents | Archive
    """Documents and vectors, ordered by key."""
    documents: int
    passages: int
    manifest: Mapping[str, str]
    """Key-value pairs to store, without those that hold for one engine only."""
    failures: Sequence[Failure] = ()
    has_file_states: bool = True
    """False if the states of files belong to another machine; documents are then compared without them."""


def snapshot_source(snapshot: Snapshot) -> Source:
    """Return the index of an engine, as of one commit."""
    counts, manifest = snapshot.status.counts(""), snapshot.status.manifest()
    kept = {key: manifest[key] for key in manifest.keys() - {GROUPED, INCOMPLETE}}
    failures = snapshot.status.failures()
    return Source(snapshot.contents, counts.documents, counts.chunks, kept, failures)


@dataclass(slots=True)
class Summary:
    """Counts and order-independent digests of the parts of an index: sums of BLAKE2b digests of their records."""

    counts: dict[str, int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)

    def add(self, part: str, record: bytes) -> None:
        """Add a record of a part."""
        value = int.from_bytes(blake2b(record, digest_size=16).digest())
        self.counts[part] = self.counts.get(part, 0) + 1
        self.sums[part] = (self.sums.get(part, 0) + value) % _MODULUS

    def add_entry(self, entry: Entry, *, files: bool) -> bytes:
        """Add a document with its passages; return its content."""
        id, whole = entry.document.id, encode_entry(entry, file=False)
        self.add("documents", whole)
        self.counts["passages"] = self.counts.get("passages", 0) + len(entry.chunks)
        if files:
            self.add("file states", encode_json((*id, *entry.document.file)))
        return whole

    def add_failures(self, failures: Iterable[Failure]) -> None:
        """Add files that could not be indexed."""
        for failure in failures:
            self.add("failures", encode_json((*failure.document, failure.reason, failure.file)))

    def differences(self, other: Summary) -> list[str]:
        """Return the parts that differ, with both counts if these do."""
        return [
            f"{part} ({self.counts.get(part, 0):,} and {other.counts.get(part, 0):,})"
            if self.counts.get(part) != other.counts.get(part)
            else part
            for part in sorted(self.counts.keys() | other.counts.keys())
            if (self.counts.get(part), self.sums.get(part))
            != (other.counts.get(part), other.sums.get(part))
        ]

    def total(self, part: str) -> int:
        """Return the count of a part over all models."""
        return sum(count for name, count in self.counts.items() if name.startswith(f"{part} of "))

    def digest(self) -> str:
        """Return one digest over all parts."""
        parts = sorted((part, self.counts[part], self.sums.get(part, 0)) for part in self.counts)
        return blake2b(encode_json(parts), digest_size=16).hexdigest()


def summarize(source: Source, *, files: bool = True, progress: Progress = no_progress) -> Summary:
    """Read a whole index and return its summary."""
    summary, contents = Summary(), source.contents
    for entry in contents.entries():
        progress("Verifying documents", summary.counts.get("documents", 0), source.documents)
        summary.add_entry(entry, files=files)
    for model in contents.models():
        for part, groups in (
            ("vectors", contents.vectors(model)),
            ("term vectors", contents.term_vectors(model)),
        ):
            for group in groups:
                progress("Verifying vectors", summary.total("vectors"), source.passages)
                for key, row in vector_rows([group]):
                    summary.add(f"{part} of {model}", vector_record(key, row))
    summary.add_failures(source.failures if files else ())
    return summary


def merge(
    ours: Iterable[_Item], theirs: Iterable[_Item], key: Callable[[_Item], Any]
) -> Iterator[tuple[_Item | None, _Item | None]]:
    """Full outer merge join of two iterators in ascending order of their keys."""
    left, right = iter(ours), iter(theirs)
    one, two = next(left, None), next(right, None)
    while one is not None or two is not None:
        if two is None or (one is not None and key(one) < key(two)):
            yield one, None
            one = next(left, None)
        elif one is None or key(two) < key(one):
            yield None, two
            two = next(right, None)
        else:
            yield one, two
            one, two = next(left, None), next(right, None)


def path_first(entry: Entry) -> tuple[str, str]:
    """Return the key that documents are ordered by."""
    return entry.document.id.path, entry.document.id.collection


def vector_rows(groups: Iterable[Vectors]) -> Iterator[tuple[str, bytes]]:
    """Yield each vector as bytes with its key."""
    for group in groups:
        data, size = group.matrix.astype("<f4", copy=False).tobytes(), 4 * group.matrix.shape[1]
        for at, key in enumerate(group.digests):
            yield key, data[at * size : (at + 1) * size]


def group_rows(model: str, rows: Mapping[str, bytes]) -> Vectors:
    """Return vectors from their bytes."""
    import numpy as np

    matrix = np.frombuffer(b"".join(rows.values()), dtype="<f4").astype(np.float32, copy=False)
    return Vectors(model, tuple(rows), matrix.reshape(len(rows), -1))


def vector_record(key: str, row: bytes) -> bytes:
    """Return the record of a vector in a summary."""
    return key.encode("utf-8", "surrogatepass") + b"\0" + row
