"""Define the immutable data types of a commit: documents with their passages, failures, vectors and the batch of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from marklight.model import Chunk, Document, DocumentId, FileState, Section

if TYPE_CHECKING:
    from marklight.model import Matrix


@dataclass(frozen=True, slots=True)
class Entry:
    """A document with its passages and sections, which replaces the indexed one in a commit."""

    document: Document
    chunks: tuple[Chunk, ...]
    sections: tuple[Section, ...] = ()
    block_digests: Mapping[int, bool] = field(default_factory=dict)
    """Digests of its blocks of text, 64 bits with sign; true for those that counted as boilerplate."""
    replaces: str = ""
    """Digest of the stored text that it was made from; a commit leaves it out if the index has another text by then."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be indexed, with the reason; it is tried again when it changes."""

    document: DocumentId
    reason: str
    file: FileState | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Vectors of one model; row i belongs to digest i."""

    model: str
    digests: tuple[str, ...]
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes of one atomic commit."""

    entries: tuple[Entry, ...] = ()
    removed: tuple[DocumentId, ...] = ()
    touched: tuple[tuple[DocumentId, FileState], ...] = ()
    """Documents whose file time changed but not their text."""
    failures: tuple[Failure, ...] = ()
    vectors: Vectors | None = None
    concepts: Vectors | None = None
    """Vectors of vocabulary terms; the terms take the place of digests."""
    communities: Mapping[DocumentId, int] | None = None
    """Community of each document in the link graph; replaces all earlier ones."""
    manifest: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.entries
            or self.removed
            or self.touched
            or self.failures
            or self.vectors
            or self.concepts
            or self.communities is not None
            or self.manifest
        )
