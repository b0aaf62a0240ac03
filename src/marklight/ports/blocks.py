"""Protocol for the blocks of text in documents: which of them documents share, by their digests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from marklight.model import DocumentId


class StoredBlock(NamedTuple):
    """A block that documents of the index have."""

    documents: int
    """Number of documents, counted up to a limit."""
    boilerplate: bool
    """True if the documents were chunked with it as boilerplate."""


class SharedBlock(NamedTuple):
    """A block that is boilerplate, with the number of documents that have it and one of them."""

    digest: int
    documents: int
    example: DocumentId


class BlockReader(Protocol):
    """Digests of the blocks of all documents. None of these calls takes longer in a larger library, but `most_shared`."""

    def stored(self, digests: Collection[int], limit: int) -> Mapping[int, StoredBlock]:
        """Return the blocks that any document has, with the number of documents up to a limit."""

    def origins(
        self, digests: Collection[int], limit: int, without: Collection[DocumentId]
    ) -> Mapping[int, Collection[int]]:
        """Return up to `limit` different origins (`Document.origin`) of documents with each block, without some documents."""

    def digests_of(self, documents: Collection[DocumentId]) -> set[int]:
        """Return the blocks of documents; missing ids are skipped."""

    def boilerplate_of(self, documents: Collection[DocumentId]) -> frozenset[int]:
        """Return those blocks of documents that were boilerplate when they were chunked."""

    def documents_with(self, digests: Collection[int]) -> list[DocumentId]:
        """Return the documents with any of these blocks, ordered by id."""

    def count(self) -> int:
        """Return the number of different blocks that are boilerplate."""

    def most_shared(self, limit: int) -> Sequence[SharedBlock]:
        """Return the blocks of boilerplate that most documents have, those in most documents first."""
