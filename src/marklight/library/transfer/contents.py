"""Contents of an index as a copy reads them: a source of documents and vectors, and digests to compare two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from marklight.batch import Entry, Failure, Vectors
from marklight.ingest.links import GROUPED
from marklight.library.transfer.archive_records import encode_entry, encode_json
from marklight.model import DocumentId, FileState
from marklight.ports import INCOMPLETE, Progress, Snapshot, no_progress

BATCH_CHARACTERS, BATCH_DOCUMENTS = 2_000_000, 500
"""Text and documents of one commit, as when files are indexed."""
_MODULUS = 2**128

_Item = TypeVar("_Item")


class Source(Protocol):
    """Source of a copy: a snapshot of an engine, or an archive."""

    @property
    def has_file_states(self) -> bool:
        """Return False if the states of files belong to another machine; documents are then compared without them."""

    def counts(self) -> tuple[int, int]:
        """Return the number of documents and of passages, for the progress."""

    def entries(self) -> Iterator[Entry]: ...

    def models(self) -> Mapping[str, int]: ...

    def vectors(self, model: str) -> Iterator[Vectors]: ...

    def term_vectors(self, model: str) -> Iterator[Vectors]: ...

    def communities(self, documents: Sequence[DocumentId]) -> Mapping[DocumentId, int]: ...

    def has_current_communities(self) -> bool:
        """Return True if the communities were computed from the links as they are."""

    def failures(self) -> Iterable[Failure]: ...

    def manifest(self) -> Mapping[str, str]:
        """Return the key-value pairs to store, without those that hold for one engine only."""


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """The index of an engine, as of one commit."""

    snapshot: Snapshot
    has_file_states: bool = True

    def counts(self) -> tuple[int, int]:
        counts = self.snapshot.status.counts("")
        return counts.documents, counts.chunks

    def entries(self) -> Iterator[Entry]:
        return self.snapshot.contents.entries()

    def models(self) -> Mapping[str, int]:
        return self.snapshot.contents.models()

    def vectors(self, model: str) -> Iterator[Vectors]:
        return self.snapshot.contents.vectors(model)

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        return self.snapshot.contents.term_vectors(model)

    def communities(self, documents: Sequence[DocumentId]) -> Mapping[DocumentId, int]:
        return self.snapshot.links.communities(documents)

    def has_current_communities(self) -> bool:
        grouped = self.snapshot.status.manifest().get(GROUPED)
        return grouped == str(self.snapshot.links.last_changed())

    def failures(self) -> Iterable[Failure]:
        return self.snapshot.status.failures()

    def manifest(self) -> Mapping[str, str]:
        manifest = self.snapshot.status.manifest()
        return {key: manifest[key] for key in manifest.keys() - {GROUPED, INCOMPLETE}}


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

    def add_entry(
        self, entry: Entry, communities: Mapping[DocumentId, int], *, files: bool
    ) -> bytes:
        """Add a document with its passages; return its content."""
        id, whole = entry.document.id, content(entry)
        self.add("documents", whole)
        self.counts["passages"] = self.counts.get("passages", 0) + len(entry.chunks)
        if files:
            self.add("file states", encode_json((*id, *entry.document.file)))
        if id in communities:
            self.add("communities", encode_json((*id, communities[id])))
        return whole

    def add_failures(self, failures: Iterable[Failure]) -> None:
        """Add files that could not be indexed."""
        for each in failures:
            self.add("failures", encode_json((*each.document, each.reason, each.file)))

    def add_vectors(self, part: str, vectors: Vectors) -> None:
        """Add vectors of passages or of terms."""
        for key, row in vector_rows([vectors]):
            self.add(f"{part} of {vectors.model}", vector_record(key, row))

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


def content(entry: Entry) -> bytes:
    """Return all of a document but the state of its file, as bytes that are equal for equal documents."""
    return encode_entry(replace(entry, document=replace(entry.document, file=FileState(0, 0))))


def summarize(source: Source, *, files: bool = True, progress: Progress = no_progress) -> Summary:
    """Read a whole index and return its summary."""
    summary, total = Summary(), source.counts()[0]
    for entries in batches(source.entries(), text_length):
        progress("Verifying documents", summary.counts.get("documents", 0), total)
        communities = source.communities([entry.document.id for entry in entries])
        for entry in entries:
            summary.add_entry(entry, communities, files=files)
    for model in source.models():
        for part, groups in (
            ("vectors", source.vectors(model)),
            ("term vectors", source.term_vectors(model)),
        ):
            for group in groups:
                progress("Verifying vectors", summary.total("vectors"), source.counts()[1])
                summary.add_vectors(part, group)
    summary.add_failures(source.failures() if files else ())
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


def batches(items: Iterable[_Item], length: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Group documents into batches with a bounded number of characters."""
    batch: list[_Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += length(item)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def text_length(entry: Entry | None) -> int:
    """Return the number of characters of a document."""
    return len(entry.document.text) if entry else 0


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


def row_key(row: tuple[str, bytes]) -> str:
    """Return the digest or term of a vector: the key that vectors are ordered by."""
    return row[0]
