"""In-memory reader of the blocks of documents: counted anew for every call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from marklight.model import DocumentId, Entry
from marklight.ports import SharedBlock, StoredBlock
from tests.oracle.state import State


@dataclass(frozen=True, slots=True)
class MemoryBlocks:
    """Digests of the blocks of all documents."""

    state: State

    def stored(self, digests: Collection[int], limit: int) -> Mapping[int, StoredBlock]:
        found: dict[int, list[Entry]] = defaultdict(list)
        for key, entry in self._pairs(digests):
            found[key].append(entry)
        return {
            key: StoredBlock(min(limit, len(entries)), entries[0].block_digests[key])
            for key, entries in found.items()
        }

    def origins(
        self, digests: Collection[int], limit: int, without: Collection[DocumentId]
    ) -> Mapping[int, Collection[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for key, entry in self._pairs(digests):
            if entry.document.id not in without:
                found[key].add(entry.document.origin)
        return {key: sorted(origins)[: max(0, limit)] for key, origins in found.items()}

    def digests_of(self, documents: Collection[DocumentId]) -> set[int]:
        entries = [self.state.entries[id] for id in documents if id in self.state.entries]
        return {key for entry in entries for key in entry.block_digests}

    def boilerplate_of(self, documents: Collection[DocumentId]) -> frozenset[int]:
        entries = [self.state.entries[id] for id in documents if id in self.state.entries]
        return frozenset(
            key for entry in entries for key, shared in entry.block_digests.items() if shared
        )

    def documents_with(self, digests: Collection[int]) -> list[DocumentId]:
        return sorted({entry.document.id for _, entry in self._pairs(digests)})

    def count(self) -> int:
        return len(self._shared())

    def most_shared(self, limit: int) -> Sequence[SharedBlock]:
        blocks = [
            SharedBlock(key, len(documents), documents[0])
            for key, documents in self._shared().items()
        ]
        ordered = sorted(blocks, key=lambda block: (-block.documents, block.digest))
        return ordered[: max(0, limit)]

    def _shared(self) -> Mapping[int, list[DocumentId]]:
        found: dict[int, list[DocumentId]] = defaultdict(list)
        for entry in self.state.entries.values():
            for key, shared in entry.block_digests.items():
                if shared:
                    found[key].append(entry.document.id)
        return found

    def _pairs(self, digests: Collection[int]) -> Iterator[tuple[int, Entry]]:
        wanted = set(digests)
        for entry in self.state.entries.values():
            yield from ((key, entry) for key in entry.block_digests if key in wanted)
