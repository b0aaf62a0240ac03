"""The nouns of telling: a piece of a document, what belongs to it, and what a run did; all frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from marklight.answer import Level
from marklight.model import Counts, DocumentId, Failure


@dataclass(frozen=True, slots=True)
class Extract:
    """A piece of a document as it stands in the file."""

    document: DocumentId
    title: str
    headings: tuple[str, ...]
    lines: tuple[int, int]
    text: str
    chunk_id: str = ""
    """Of the passage that it is, or that it was widened from."""
    levels: tuple[Level, ...] = ()
    """How far that passage can be widened."""
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The extract as JSON holds it."""
        return {
            "path": self.document.path,
            "collection": self.document.collection,
            "title": self.title,
            "headings": list(self.headings),
            "lines": list(self.lines),
            "content": self.text,
            "chunk_id": self.chunk_id or None,
            "levels": [level.to_dict() for level in self.levels],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What an indexing run did."""

    added: tuple[DocumentId, ...] = ()
    changed: tuple[DocumentId, ...] = ()
    moved: tuple[tuple[DocumentId, DocumentId], ...] = ()
    removed: tuple[DocumentId, ...] = ()
    skipped: tuple[Failure, ...] = ()
    remarks: tuple[tuple[DocumentId, str], ...] = ()
    """What was odd about documents that were indexed all the same."""
    newly_embedded: int = 0
    index: Counts = field(default_factory=Counts)
    notices: tuple[str, ...] = ()
    took_ms: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return {
            "added": [document.path for document in self.added],
            "changed": [document.path for document in self.changed],
            "moved": [{"from": old.path, "to": new.path} for old, new in self.moved],
            "removed": [document.path for document in self.removed],
            "skipped": [
                {"path": failure.document.path, "reason": failure.reason}
                for failure in self.skipped
            ],
            "remarks": [{"path": id.path, "remark": remark} for id, remark in self.remarks],
            "documents": self.index.documents,
            "chunks": self.index.chunks,
            "embedded": self.index.embedded,
            "pending": self.index.pending,
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }
