"""Results other than those of a search: extracts, outlines, links, graphs, indexing reports; with their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marklight.answer import Level, iso_time
from marklight.formatting import place_text
from marklight.model import Counts, DocumentId, Failure, FileState, Heading, ResolvedLink


@dataclass(frozen=True, slots=True)
class Extract:
    """A part of a document, exactly as in the file."""

    document: DocumentId
    title: str
    headings: tuple[str, ...]
    lines: tuple[int, int]
    text: str
    chunk_id: str = ""
    """Id of the passage that it is or that it was expanded from."""
    levels: tuple[Level, ...] = ()
    """Context levels of that passage."""
    several_collections: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the extract as JSON."""
        return {
            **_id(self.document, self.several_collections, self.lines),
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
    """The headings of a document, in order."""

    document: DocumentId
    headings: tuple[Heading, ...]
    several_collections: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the outline as JSON."""
        return {
            **_id(self.document, self.several_collections),
            "outline": [_heading(heading) for heading in self.headings],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Page:
    """A document as safe HTML whose blocks have line numbers."""

    document: DocumentId
    title: str
    html: str
    lines: tuple[int, int]
    """The lines that are shown: all, unless the document is too long for one page."""
    of_lines: int
    """Number of lines of the document."""
    headings: tuple[Heading, ...] = ()
    blocks: Mapping[str, int] = field(default_factory=dict)
    """Block ids (`^id`) and their lines."""
    tags: tuple[str, ...] = ()
    date: str | None = None
    several_collections: bool = False
    notices: tuple[str, ...] = ()
    dated: str = ""
    """Date of the document in UTC: its own, else the modification time of the file."""

    def to_dict(self) -> dict[str, Any]:
        """Return the page as JSON."""
        return {
            **_id(self.document, self.several_collections),
            "title": self.title,
            "html": self.html,
            "lines": list(self.lines),
            "of_lines": self.of_lines,
            "outline": [_heading(heading) for heading in self.headings],
            "blocks": dict(self.blocks),
            "tags": list(self.tags),
            "date": self.date,
            "dated": self.dated,
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class Links:
    """Outgoing and incoming links of a document; for a library, unresolved links and orphans."""

    document: DocumentId | None
    """None for the whole library."""
    out: tuple[ResolvedLink, ...] = ()
    back: tuple[ResolvedLink, ...] = ()
    unresolved: tuple[ResolvedLink, ...] = ()
    orphans: tuple[DocumentId, ...] = ()
    """Documents without links to or from others."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Number of omitted entries by list."""
    several_collections: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the links as JSON."""
        ends: dict[str, Any] = {}
        several = self.several_collections
        if self.document:
            ends["out"] = [_link(link, link.target, several) for link in self.out]
            ends["in"] = [_link(link, link.source, several) for link in self.back]
        else:
            ends["orphans"] = [_id(id, several) for id in self.orphans]
        return {
            **(_id(self.document, self.several_collections) if self.document else {}),
            **ends,
            "unresolved": [_link(link, link.source, several) for link in self.unresolved],
            "more": dict(self.more),
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class RelatedDocument:
    """A related document with its score and the reasons."""

    document: DocumentId
    title: str
    score: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """The documents related to one document, best first."""

    document: DocumentId
    relatives: tuple[RelatedDocument, ...]
    several_collections: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the related documents as JSON."""
        return {
            **_id(self.document, self.several_collections),
            "related": [
                {
                    **_id(relative.document, self.several_collections),
                    "title": relative.title,
                    "score": round(relative.score, 4),
                    "reasons": list(relative.reasons),
                }
                for relative in self.relatives
            ],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class DocumentList:
    """One page of the list of documents of a library."""

    documents: tuple[tuple[DocumentId, FileState], ...]
    total: int
    """Number of all documents."""
    next: str | None = None
    """Cursor of the next page; None on the last one."""
    several_collections: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the page as JSON."""
        return {
            "documents": [
                {
                    **_id(id, self.several_collections),
                    "size": file.size,
                    "modified": iso_time(file.mtime_ns),
                }
                for id, file in self.documents
            ],
            "total": self.total,
            "next": self.next,
        }


@dataclass(frozen=True, slots=True)
class Node:
    """A document in a link graph."""

    document: DocumentId
    title: str
    degree: int
    """Number of documents that it links to or that link to it."""
    community: int | None = None
    """Number of its community of linked documents."""
    distance: int | None = None
    """Number of links from the document in the centre, if there is one."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A link graph around one document or of the whole library."""

    document: DocumentId | None
    """The document in the centre; None for the whole library."""
    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[DocumentId, DocumentId], ...] = ()
    """Pairs of source and target, each once."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Number of omitted documents."""
    several_collections: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as JSON; edges refer to nodes by their position."""
        position = {node.document: number for number, node in enumerate(self.nodes)}
        return {
            **(_id(self.document, self.several_collections) if self.document else {}),
            "nodes": [
                {
                    **_id(node.document, self.several_collections),
                    "title": node.title,
                    "degree": node.degree,
                    "community": node.community,
                    "distance": node.distance,
                }
                for node in self.nodes
            ],
            "edges": [
                {"from": position[source], "to": position[target]} for source, target in self.edges
            ],
            "more": dict(self.more),
            "notices": list(self.notices),
        }


def _id(id: DocumentId, several: bool, lines: Sequence[int] = ()) -> dict[str, str]:
    """Return the id of a document as JSON, and the place as other commands accept it."""
    ref = place_text(id, several, lines)
    return {"path": id.path, "collection": id.collection, "ref": ref}


def _heading(heading: Heading) -> dict[str, Any]:
    return {
        "level": heading.level,
        "text": heading.text,
        "anchor": heading.anchor,
        "lines": list(heading.lines),
    }


def _link(resolved: ResolvedLink, other: DocumentId | None, several: bool) -> dict[str, Any]:
    """Return a link as JSON under the document at its other end, or, if unresolved, the one that contains it."""
    link = resolved.link
    return {
        **_id(other or resolved.source, several, () if other != resolved.source else (link.line,)),
        "line": link.line,
        "type": link.type.value,
        "target": link.target,
        "fragment": link.fragment,
        "text": link.text,
    }


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an indexing run."""

    added: tuple[DocumentId, ...] = ()
    changed: tuple[DocumentId, ...] = ()
    moved: tuple[tuple[DocumentId, DocumentId], ...] = ()
    removed: tuple[DocumentId, ...] = ()
    skipped: tuple[Failure, ...] = ()
    remarks: tuple[tuple[DocumentId, str], ...] = ()
    """Remarks about documents that were indexed in spite of a defect."""
    unread: tuple[DocumentId, ...] = ()
    """Changed files that were not indexed for lack of time."""
    history: Report | None = None
    """The result for the history, if it was indexed too."""
    newly_embedded: int = 0
    index: Counts = field(default_factory=Counts)
    folder: str = ""
    """The folder of the library."""
    several_collections: bool = False
    notices: tuple[str, ...] = ()
    took_ms: float = 0.0

    def __bool__(self) -> bool:
        """Return true if documents were added, changed, moved or removed."""
        return bool(self.added or self.changed or self.moved or self.removed)

    def name(self, id: DocumentId) -> str:
        """Return the name of a document as other commands accept it."""
        return place_text(id, self.several_collections)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        name = self.name
        return {
            "added": list(map(name, self.added)),
            "changed": list(map(name, self.changed)),
            "moved": [{"from": name(old), "to": name(new)} for old, new in self.moved],
            "removed": list(map(name, self.removed)),
            "skipped": [
                {"path": name(failure.document), "reason": failure.reason}
                for failure in self.skipped
            ],
            "remarks": [{"path": name(id), "remark": remark} for id, remark in self.remarks],
            "folder": self.folder,
            "documents": self.index.documents,
            "chunks": self.index.chunks,
            "embedded": self.index.embedded,
            "pending": self.index.pending,
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
            **({"history": self.history.to_dict()} if self.history is not None else {}),
        }
