"""Define the list of documents that match a query: one entry per document, with a count, sorted and paginated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from marklight.answer import index_dict, iso_seconds
from marklight.formatting import counted, place_text
from marklight.model import Counts, DocumentId
from marklight.query import Query, query_dict


class Sort(StrEnum):
    """Order of a list of documents."""

    RELEVANCE = "relevance"
    DATE = "date"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document that matches, with its best passage."""

    document: DocumentId
    title: str
    passages: int
    """Number of passages that match."""
    chunk_id: str
    """Id of the best passage that matches."""
    lines: tuple[int, int]
    """Lines of that passage."""
    dated: float
    """Date in seconds since the epoch: the document's own date, else the modification time."""
    score: float | None = None
    """Probability that the best passage answers the query; None if it was not among the candidates that were scored."""
    by_meaning: bool = False
    """True if the document lacks a word of the query, and was found by search."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the documents that match a query, with the number of all."""

    query: Query
    documents: tuple[ListedDocument, ...]
    total: int
    """Number of documents on all pages."""
    passages: int
    """Number of their passages that match."""
    sort: Sort = Sort.RELEVANCE
    page: int = 1
    limit: int | None = None
    """Documents on a page; None for all."""
    abstained: str | None = None
    """Why there are no documents."""
    index: Counts = field(default_factory=Counts)
    notices: Sequence[str] = ()
    took_ms: float = 0.0
    several_collections: bool = False
    """Paths need their collection as a prefix to be unambiguous."""

    @property
    def shown(self) -> set[DocumentId]:
        """Return the documents on this page."""
        return {listed.document for listed in self.documents}

    @property
    def pages(self) -> int:
        """Return the number of pages; an empty list has one."""
        return max(1, -(-self.total // self.limit)) if self.limit else 1

    @property
    def first_rank(self) -> int:
        """Return the rank of the first document on this page."""
        return (self.page - 1) * (self.limit or 0) + 1

    @property
    def summary(self) -> str:
        """Return the count, such as `31 documents, 112 passages`, and which of them this page has."""
        count = f"{counted(self.total, 'document')}, {counted(self.passages, 'passage')}"
        if self.pages == 1:
            return count
        last = self.first_rank + len(self.documents) - 1
        shown = f"; {self.first_rank:,} to {last:,}" if self.documents else ""
        return f"{count}{shown} (page {self.page:,} of {self.pages:,})"

    def to_dict(self) -> dict[str, Any]:
        """Return the page as JSON."""
        return {
            "query": query_dict(self.query),
            "sort": self.sort.value,
            "total": self.total,
            "passages": self.passages,
            "page": self.page,
            "pages": self.pages,
            "documents": [
                _document_dict(rank, each, self.several_collections)
                for rank, each in enumerate(self.documents, self.first_rank)
            ],
            "abstained": self.abstained,
            "index": index_dict(self.index),
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }


def _document_dict(rank: int, listed: ListedDocument, several: bool) -> dict[str, Any]:
    return {
        "rank": rank,
        "score": None if listed.score is None else round(listed.score, 4),
        "path": listed.document.path,
        "collection": listed.document.collection,
        "ref": place_text(listed.document, several),
        "title": listed.title,
        "passages": listed.passages,
        "match": "meaning" if listed.by_meaning else "words",
        "dated": iso_seconds(listed.dated),
        "chunk_id": listed.chunk_id,
        "lines": list(listed.lines),
    }
