"""Immutable state of the in-memory index, and the state after a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from marklight.engines.metadata_filters import clamp_times
from marklight.errors import StoreError
from marklight.model import Batch, Chunk, Document, DocumentId, Entry, Failure, Vectors

if TYPE_CHECKING:
    from marklight.model import Vector

Known = Mapping[str, Mapping[str, "Vector"]]
"""Vectors as they were committed, by model, then by digest or term."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything stored after a commit; never changed, so a snapshot is a reference."""

    generation: int = 0
    entries: Mapping[DocumentId, Entry] = field(default_factory=dict)
    failed: Mapping[DocumentId, Failure] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    vectors: Known = field(default_factory=dict)
    concepts: Known = field(default_factory=dict)
    communities: Mapping[DocumentId, int] = field(default_factory=dict)
    linked: int = 0

    def after(self, batch: Batch) -> State:
        """Return the state after a commit of this batch."""
        entries, failed = dict(self.entries), dict(self.failed)
        batch = replace(batch, entries=tuple(filter(self._is_current, batch.entries)))
        for id in (*batch.removed, *(entry.document.id for entry in batch.entries)):
            entries.pop(id, None)
            failed.pop(id, None)
        entries.update({entry.document.id: entry for entry in batch.entries})
        files = [(entry.document.id, entry.document.file) for entry in batch.entries]
        for id, file in (*files, *batch.touched):
            if id in entries:
                document = replace(entries[id].document, file=clamp_times(file))
                entries[id] = replace(entries[id], document=document)
        failed.update({failure.document: failure for failure in batch.failures})
        generation = self.generation + 1
        grouped = self.communities if batch.communities is None else batch.communities
        return State(
            generation,
            entries,
            failed,
            {**self.notes, **batch.manifest},
            _with(self.vectors, batch.vectors),
            _with(self.concepts, batch.concepts),
            {id: group for id, group in grouped.items() if id in entries},
            self.linked if _link_keys(entries) == _link_keys(self.entries) else generation,
        )

    def _is_current(self, entry: Entry) -> bool:
        """Return false if the index has another text than that from which the entry was made."""
        stored = self.entries.get(entry.document.id)
        return not entry.replaces or (
            stored is not None and stored.document.digest == entry.replaces
        )

    def documents(self) -> Iterator[Document]:
        """Yield all documents, oldest first."""
        return (entry.document for entry in self.entries.values())

    def chunks(self) -> Iterator[Chunk]:
        """Yield all passages, oldest document first."""
        for entry in self.entries.values():
            yield from entry.chunks


def _with(known: Known, new: Vectors | None) -> Known:
    """Add vectors; existing ones are not replaced."""
    if new is None or not new.digests:
        return known
    before = known.get(new.model, {})
    if any(len(row) != new.matrix.shape[1] for row in before.values()):
        raise StoreError(f"Vectors of {new.model} have another dimension than the stored ones")
    rows = np.array(new.matrix, dtype=np.float32)
    added = dict(zip(new.digests, rows, strict=True))
    return {**known, new.model: {**added, **before}}


def _link_keys(entries: Mapping[DocumentId, Entry]) -> dict[DocumentId, tuple[object, object]]:
    """Return link keys and names: all that decides how links resolve."""
    return {
        id: (sorted({link.keys for link in entry.document.links}), set(entry.document.names))
        for id, entry in entries.items()
    }
