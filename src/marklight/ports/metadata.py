"""Protocol for filters on documents: frontmatter, tags, paths, dates and phrases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from marklight.model import DocumentId
from marklight.query import Filters


class DocumentMatch(NamedTuple):
    """Passages of one document that contain terms of a query."""

    passages: int
    """Number of passages with any of the terms."""
    best: str
    """Id of the passage with the most of them; of equals the first one."""


class MetadataReader(Protocol):
    """Frontmatter keys, values and tags, and the documents that match filters."""

    def matching_documents(self, filters: Filters, limit: int) -> list[DocumentId]:
        """Return the documents with a passage that matches the filters, ordered by id."""

    def count_matching(self, filters: Filters) -> int:
        """Return the number of passages that match; an estimate if more than a thousand documents do."""

    def documents_with_terms(
        self, groups: Sequence[Collection[str]], field: str, filters: Filters
    ) -> Mapping[DocumentId, DocumentMatch]:
        """Return the documents whose passages together have a term of every group in a field.

        Only passages that match the filters count. Without groups, all of them match.
        """

    def has_key(self, key: str) -> bool:
        """Return True if any document has this frontmatter key."""

    def languages(self) -> Mapping[str, int]:
        """Return the languages of documents in order, with document counts up to a bound; values that are not ISO 639-1 codes come from frontmatter."""

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        """Return the lower-case values of a frontmatter key with document counts, most frequent first."""

    def tags(self) -> Mapping[str, int]:
        """Return all tags in lower case with document counts; a nested tag counts for its parents too."""
