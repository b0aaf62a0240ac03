"""Protocol for reading stored documents, the state of their files, and their passages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from marklight.answer import Level
from marklight.model import Chunk, Document, DocumentId, FileState, Heading, Section
from marklight.query import Filters


class IndexedFile(NamedTuple):
    """State of a file when it was indexed; equal state, digest and recipe mean nothing to do."""

    file: FileState
    digest: str
    recipe: str


class PathRange(NamedTuple):
    """Half-open range of the paths of one collection, in code point order."""

    collection: str
    first: str = ""
    end: str | None = None
    """First path after the range; None if it is unbounded."""

    def contains(self, id: DocumentId) -> bool:
        """Return True if the range contains this document."""
        beyond = self.end is not None and id.path >= self.end
        return id.collection == self.collection and self.first <= id.path and not beyond


class ScoredChunk(NamedTuple):
    """Id of a passage with one retriever's raw score, higher is better."""

    chunk_id: str
    score: float


class DocumentReader(Protocol):
    """Documents, their files, passages and sections."""

    def files(self, ranges: Sequence[PathRange] | None = None) -> Mapping[DocumentId, IndexedFile]:
        """Return all indexed documents with the state of their files, or those in some ranges."""

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        """Return the file states of the given documents; missing ids are skipped."""

    def modified_times(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """Return file times in nanoseconds; missing ids are skipped."""

    def dates(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        """Return the document's own date, else its file time, in seconds since the epoch; missing ids are skipped."""

    def get(self, id: DocumentId) -> Document | None:
        """Return a document with its text, links and metadata."""

    def text_and_outline(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        """Return only the text and the headings of a document: cheap enough to call for every result."""

    def find_by_path(self, path: str) -> list[DocumentId]:
        """Return the documents with exactly this path, ordered by collection."""

    def find_by_title(self, title: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        """Return passages by exact title, ignoring case and accents.

        The first passage of a document with this title, alias or file name scores 1.0, the first
        of a section with this heading 0.5.
        """

    def titles_with_prefix(self, prefix: str, limit: int) -> list[str]:
        """Return the titles, aliases and file names, folded, that begin with a prefix and are longer; the shortest first."""

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        """Return the passages in the given order; missing ids are skipped."""

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        """Return all passages of a document in order."""

    def chunks_around(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        """Return a passage with up to `count` passages before and after it, in order."""

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        """Return the documents of passages without reading their text; missing ids are skipped."""

    def context_levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        """Return the context levels of passages; those stored without any are skipped."""

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        """Return a section and its document."""
