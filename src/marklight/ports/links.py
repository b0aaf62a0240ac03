"""Protocol for the link graph: resolved links, neighbours, degrees and communities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from marklight.model import DocumentId, ResolvedLink


class LinkReader(Protocol):
    """Links between documents, resolved against the documents of the snapshot."""

    def last_changed(self) -> int:
        """Return the generation in which links, or the names that they resolve to, last changed."""

    def outgoing(self, document: DocumentId) -> list[ResolvedLink]:
        """Return the links in a document, in order."""

    def incoming(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        """Return the links that resolve to a document."""

    def unresolved(self) -> list[ResolvedLink]:
        """Return the links that resolve to no document."""

    def named(self, key: str) -> list[DocumentId]:
        """Return the documents with this name in its strongest form, ordered by id."""

    def neighbours(
        self, documents: Sequence[DocumentId], limit: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        """Return the documents one link away, up to `limit` in each direction; which ones is unspecified."""

    def degrees(self, documents: Sequence[DocumentId], limit: int) -> Mapping[DocumentId, int]:
        """Return the number of linked documents, counted up to `limit` in each direction."""

    def edges(self) -> Iterable[tuple[DocumentId, DocumentId]]:
        """Return the distinct pairs of a document and another one that it links to."""

    def orphans(self) -> list[DocumentId]:
        """Return the documents without any link in or out, ordered by id."""

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """Return the stored communities of documents; those without one are skipped."""
