"""Protocol for engines: snapshots of one commit for readers, atomic commits for writers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from marklight.batch import Batch, Failure
from marklight.model import Counts, DocumentId
from marklight.ports.documents import DocumentReader
from marklight.ports.lexical import LexicalReader
from marklight.ports.links import LinkReader
from marklight.ports.metadata import MetadataReader
from marklight.ports.vectors import VectorReader
from marklight.ports.vocabulary import VocabularyReader

if TYPE_CHECKING:
    from marklight.ports.blocks import BlockReader
    from marklight.ports.contents import ContentReader

INCOMPLETE = "copy"
"""Manifest key: not empty while a copy into the index is incomplete."""


class StatusReader(Protocol):
    """State of the index as a whole: counts, manifest, failures and integrity."""

    def counts(self, model: str) -> Counts:
        """Return the numbers of documents and passages, and of those with a vector of this model."""

    def models(self) -> Mapping[str, int]:
        """Return the fingerprints of models with the number of passages that have a vector."""

    def manifest(self) -> Mapping[str, str]:
        """Return the key-value pairs that commits have stored."""

    def failures(self) -> Sequence[Failure]:
        """Return the files that could not be indexed, ordered by path."""

    def remarks(self) -> list[tuple[DocumentId, str]]:
        """Return the warnings about documents that are indexed all the same, ordered by path."""

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:
        """Return the documents of those passages that do not match their checksums."""

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        """Return the documents of which any stored part does not match its checksum."""


class Snapshot(Protocol):
    """Consistent view of one commit, one reader per duty; an engine may take them from different stores."""

    @property
    def generation(self) -> int:
        """Return the number of the commit; 0 before the first."""

    @property
    def documents(self) -> DocumentReader: ...

    @property
    def metadata(self) -> MetadataReader: ...

    @property
    def lexical(self) -> LexicalReader: ...

    @property
    def vectors(self) -> VectorReader: ...

    @property
    def links(self) -> LinkReader: ...

    @property
    def vocabulary(self) -> VocabularyReader: ...

    @property
    def status(self) -> StatusReader: ...

    @property
    def blocks(self) -> BlockReader: ...

    @property
    def contents(self) -> ContentReader: ...


class Engine(Protocol):
    """Storage of an index. Any number of readers; commits take effect one after another.

    An index in files has one writer at a time. On a server many write at once, and those of one document wait for each other.

    Only a writer creates files: opening, reading or checking an index that does not exist leaves nothing behind.
    """

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a consistent view of the last commit."""

    def writing(self, wait_seconds: float) -> AbstractContextManager[None]:
        """Hold the writer lock; raises Busy if another process keeps this one from it that long."""

    def commit(self, batch: Batch) -> int:
        """Apply a batch atomically and return the new generation; requires the writer lock.

        Passages whose digest already has a vector need no new one.
        """

    def clean(self, keep: Iterable[str]) -> int:
        """Delete vectors that no passage and no term uses, and all of models not in `keep`; return how many."""

    def sizes(self) -> Mapping[str, int]:
        """Return bytes on disk by part."""

    def count_unused_vectors(self) -> int:
        """Return the number of stored vectors that no passage uses."""

    def check(self) -> list[str]:
        """Verify the whole index, rebuild what is derived, and return the problems found."""

    def take_notices(self) -> list[str]:
        """Return and clear notices about automatic repairs that took a while."""

    def describe(self) -> str:
        """Return the address of the index, without a password."""

    def read_only(self) -> bool:
        """Return true if this user may only read the index; then `writing` raises ReadOnly."""

    def server(self) -> Mapping[str, Any]:
        """Return facts about the server as JSON values; empty for an engine without one.

        Among them `version`, `library`, `role` and `last_write` (ISO 8601).
        """

    def close(self) -> None:
        """Release files and connections."""
