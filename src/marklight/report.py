"""The nouns of telling: a piece of a document, what belongs to it, and what a run did; all frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marklight.answer import Level, iso_time
from marklight.model import Counts, DocumentId, Failure, FileState, Heading, ResolvedLink


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
class Outline:
    """A document's headings, in order."""

    document: DocumentId
    headings: tuple[Heading, ...]
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The outline as JSON holds it."""
        return {
            **_id(self.document),
            "outline": [_heading(each) for each in self.headings],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Page:
    """A document to be read by a person: safe HTML whose blocks know their lines."""

    document: DocumentId
    title: str
    html: str
    lines: tuple[int, int]
    """What is shown: all of it, but for a document that is too long to be shown at once."""
    of_lines: int
    """How many it has."""
    headings: tuple[Heading, ...] = ()
    blocks: Mapping[str, int] = field(default_factory=dict)
    """Block ids (`^id`) and their lines."""
    tags: tuple[str, ...] = ()
    date: str | None = None
    notices: tuple[str, ...] = ()
    dated: str = ""
    """When it is from, in UTC: its own date, else the file's time."""

    def to_dict(self) -> dict[str, Any]:
        """The page as JSON holds it."""
        return {
            **_id(self.document),
            "title": self.title,
            "html": self.html,
            "lines": list(self.lines),
            "of_lines": self.of_lines,
            "outline": [_heading(each) for each in self.headings],
            "blocks": dict(self.blocks),
            "tags": list(self.tags),
            "date": self.date,
            "dated": self.dated,
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Links:
    """What a document links to and what links to it; or, of a library, what leads nowhere."""

    document: DocumentId | None
    """None for the whole library."""
    out: tuple[ResolvedLink, ...] = ()
    back: tuple[ResolvedLink, ...] = ()
    unresolved: tuple[ResolvedLink, ...] = ()
    orphans: tuple[DocumentId, ...] = ()
    """Documents without any link to or from another."""
    more: Mapping[str, int] = field(default_factory=dict)
    """How many of which list are left out."""
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The links as JSON holds them."""
        ends: dict[str, Any] = {}
        if self.document:
            ends["out"] = [_link(each, each.target) for each in self.out]
            ends["in"] = [_link(each, each.source) for each in self.back]
        else:
            ends["orphans"] = [_id(id) for id in self.orphans]
        return {
            **(_id(self.document) if self.document else {}),
            **ends,
            "unresolved": [_link(each, each.source) for each in self.unresolved],
            "more": dict(self.more),
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Relative:
    """A document that belongs to another, how surely, and why."""

    document: DocumentId
    title: str
    score: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """The documents that belong to one, the surest first."""

    document: DocumentId
    relatives: tuple[Relative, ...]
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The relatives as JSON holds them."""
        return {
            **_id(self.document),
            "related": [
                {
                    **_id(each.document),
                    "title": each.title,
                    "score": round(each.score, 4),
                    "reasons": list(each.reasons),
                }
                for each in self.relatives
            ],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Register:
    """Documents of a library, a part at a time."""

    documents: tuple[tuple[DocumentId, FileState], ...]
    total: int
    """How many there are altogether."""
    next: str | None = None
    """What to ask for the part that follows; None where this is the last."""

    def to_dict(self) -> dict[str, Any]:
        """The register as JSON holds it."""
        return {
            "documents": [
                {**_id(id), "size": file.size, "modified": iso_time(file.mtime_ns)}
                for id, file in self.documents
            ],
            "total": self.total,
            "next": self.next,
        }


@dataclass(frozen=True, slots=True)
class Node:
    """A document in a picture of links."""

    document: DocumentId
    title: str
    degree: int
    """How many documents it links to, and how many link to it."""
    community: int | None = None
    """Which others it belongs to by its links."""
    distance: int | None = None
    """Links away from the document in the middle, where there is one."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Documents and the links between them, around one document or of the whole library."""

    document: DocumentId | None
    """In the middle; None for the whole library."""
    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[DocumentId, DocumentId], ...] = ()
    """From the one to the other, each once."""
    more: Mapping[str, int] = field(default_factory=dict)
    """How many documents are known to be left out."""
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The graph as JSON holds it; its edges name their ends by their place among the nodes."""
        place = {each.document: at for at, each in enumerate(self.nodes)}
        return {
            **(_id(self.document) if self.document else {}),
            "nodes": [
                {
                    **_id(each.document),
                    "title": each.title,
                    "degree": each.degree,
                    "community": each.community,
                    "distance": each.distance,
                }
                for each in self.nodes
            ],
            "edges": [{"from": place[source], "to": place[to]} for source, to in self.edges],
            "more": dict(self.more),
            "notices": list(self.notices),
        }


def _id(id: DocumentId) -> dict[str, str]:
    return {"path": id.path, "collection": id.collection}


def _heading(heading: Heading) -> dict[str, Any]:
    return {
        "level": heading.level,
        "text": heading.text,
        "anchor": heading.anchor,
        "lines": list(heading.lines),
    }


def _link(resolved: ResolvedLink, other: DocumentId | None) -> dict[str, Any]:
    """A link by the document at its other end; where there is none, by the one it stands in."""
    link = resolved.link
    return {
        **_id(other or resolved.source),
        "line": link.line,
        "type": link.type.value,
        "target": link.target,
        "fragment": link.fragment,
        "text": link.text,
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
    unread: tuple[DocumentId, ...] = ()
    """Changed files that there was no time for."""
    history: Report | None = None
    """What it did for the history, where that was read too."""
    newly_embedded: int = 0
    index: Counts = field(default_factory=Counts)
    folder: str = ""
    """The folder of the library."""
    notices: tuple[str, ...] = ()
    took_ms: float = 0.0

    def __bool__(self) -> bool:
        """Whether documents came, went or changed."""
        return bool(self.added or self.changed or self.moved or self.removed)

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
            "folder": self.folder,
            "documents": self.index.documents,
            "chunks": self.index.chunks,
            "embedded": self.index.embedded,
            "pending": self.index.pending,
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
            **({"history": self.history.to_dict()} if self.history is not None else {}),
        }
