"""Results other than those of a search: extracts, outlines, links, graphs, indexing reports; with their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, NamedTuple, NotRequired, TypedDict

from marklight.answer import Level, Result, iso_time
from marklight.formatting import place_text
from marklight.lazy import dataclass
from marklight.model import (
    Counts,
    DocumentId,
    Failure,
    FileState,
    Heading,
    LinkType,
    ResolvedLink,
    json_keys,
)


@json_keys("document@lines title headings lines content=text chunk_id|null levels notices")
@dataclass(frozen=True, slots=True)
class Extract(Result):
    """A part of a document, exactly as in the file; a passage as it is found: without comments and the padding of tables."""

    document: DocumentId
    title: str
    headings: tuple[str, ...]
    lines: tuple[int, int]
    """First and last line, starting at 1."""
    text: str
    """Text of these lines; a passage that begins in the rows of a table has the header above them."""
    chunk_id: str = ""
    """ID of the passage that was read or expanded; empty for none."""
    levels: tuple[Level, ...] = ()
    """Context levels of that passage."""
    several_collections: bool = False
    notices: tuple[str, ...] = ()

    @property
    def first_number(self) -> int:
        """Return the number of the first line of the text, so that rows below the header of their table have theirs."""
        return min(self.lines[0], self.lines[1] - self.text.count("\n"))


@json_keys("document outline=headings notices")
@dataclass(frozen=True, slots=True)
class Outline(Result):
    """The headings of a document, in order."""

    document: DocumentId
    headings: tuple[Heading, ...]
    several_collections: bool = False
    notices: tuple[str, ...] = ()


@json_keys("document title html lines of_lines outline=headings blocks tags date dated notices")
@dataclass(frozen=True, slots=True)
class Page(Result):
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


@json_keys("document@ref_lines line type target fragment text")
class LinkEnd(NamedTuple):
    """A link as JSON contains it: under the document at its other end or, if unresolved, the one that contains it."""

    document: DocumentId
    ref_lines: tuple[int, ...]
    line: int
    type: LinkType
    target: str
    fragment: str
    text: str

    @classmethod
    def of(cls, resolved: ResolvedLink, other: DocumentId | None) -> LinkEnd:
        """Return a link under one of its documents."""
        link = resolved.link
        lines = () if other != resolved.source else (link.line,)
        end = other or resolved.source
        return cls(end, lines, link.line, link.type, link.target, link.fragment, link.text)


@json_keys("document? out=targets? in=sources? orphans=isolated? unresolved=broken more notices")
@dataclass(frozen=True, slots=True)
class Links(Result):
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

    @property
    def targets(self) -> list[LinkEnd] | None:
        """Return the links to other documents."""
        return [LinkEnd.of(link, link.target) for link in self.out] if self.document else None

    @property
    def sources(self) -> list[LinkEnd] | None:
        """Return the links from other documents."""
        return [LinkEnd.of(link, link.source) for link in self.back] if self.document else None

    @property
    def isolated(self) -> tuple[DocumentId, ...] | None:
        """Return the documents without any link; only without a path."""
        return None if self.document else self.orphans

    @property
    def broken(self) -> list[LinkEnd]:
        """Return the broken links."""
        return [LinkEnd.of(link, link.source) for link in self.unresolved]


@json_keys("document title score reasons")
@dataclass(frozen=True, slots=True)
class RelatedDocument:
    """A related document with its score and the reasons."""

    document: DocumentId
    title: str
    score: float
    reasons: tuple[str, ...]


@json_keys("document related=relatives notices")
@dataclass(frozen=True, slots=True)
class Related(Result):
    """The documents related to one document, best first."""

    document: DocumentId
    relatives: tuple[RelatedDocument, ...]
    """Related documents, best first."""
    several_collections: bool = False
    notices: tuple[str, ...] = ()


@json_keys("document size modified")
class ListedFile(NamedTuple):
    """A document in a list, with its file."""

    document: DocumentId
    file: FileState

    @property
    def size(self) -> int:
        """Return the size of the file in bytes."""
        return self.file.size

    @property
    def modified(self) -> str:
        """Return the modification time of the file, in UTC."""
        return iso_time(self.file.mtime_ns)


@json_keys("documents total next")
@dataclass(frozen=True, slots=True)
class DocumentList(Result):
    """One page of the list of documents of a library."""

    documents: tuple[ListedFile, ...]
    total: int
    """Number of all matching documents."""
    next: str | None = None
    """Cursor of the next page, for `after`; null on the last page."""
    several_collections: bool = False


@json_keys("document title degree community distance")
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


@json_keys("from=source to=target")
class EdgePosition(NamedTuple):
    """An edge between two nodes, by their positions, starting at 0."""

    source: int
    target: int


@json_keys("document? nodes edges=positions more notices")
@dataclass(frozen=True, slots=True)
class Graph(Result):
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

    @property
    def positions(self) -> list[EdgePosition]:
        """Return the links between documents, as indexes into nodes, starting at 0."""
        position = {node.document: number for number, node in enumerate(self.nodes)}
        return [EdgePosition(position[source], position[target]) for source, target in self.edges]


_LISTS = ("added", "changed", "moved", "removed", "skipped", "remarks", "notices")
"""Fields of a report that are added up."""


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

    def __add__(self, other: Report) -> Report:
        """Return the report with the documents and notices of another one added."""
        return replace(
            self, **{name: getattr(self, name) + getattr(other, name) for name in _LISTS}
        )

    @classmethod
    def joined(cls, reports: Sequence[Report]) -> Report:
        """Return the report of all batches of a run, in linear time."""
        lists: dict[str, Any] = {
            name: tuple(chain.from_iterable(getattr(report, name) for report in reports))
            for name in _LISTS
        }
        return cls(**lists)

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
                {"path": name(file.document), "reason": file.reason} for file in self.skipped
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


class Boilerplate(TypedDict):
    """Text that many documents share."""

    passages: int
    """Passages of nothing else, which are not embedded."""
    blocks: int
    """Paragraphs, list items, headings and code blocks that many documents share."""
    most_shared: list[dict[str, Any]]


class Following(TypedDict):
    """State of the file watcher."""

    indexing: dict[str, Any] | None
    """Indexing in progress: phase, done, total and seconds left."""
    watching: bool
    """True if file-system events are received."""
    problem: str
    """Why indexing failed; empty if it did not."""


class Status(TypedDict):
    """State of a library: what is indexed, what is pending and what failed."""

    documents: int
    chunks: int
    """Passages."""
    embedded: int
    pending: int
    outdated: NotRequired[int]
    """Documents that keep passages of earlier chunk settings."""
    boilerplate: Boilerplate
    failed: list[dict[str, str]]
    """Files that could not be indexed: path, collection, ref and reason."""
    remarks: list[dict[str, str]]
    """Documents that were indexed with a remark: path, collection, ref and remark."""
    languages: dict[str, int]
    """Documents by language (ISO 639-1)."""
    generation: int
    model: str
    model_address: NotRequired[str]
    model_problem: NotRequired[str]
    multilingual: NotRequired[dict[str, Any]]
    """Second model for other languages, and its vectors."""
    calibrated: bool
    """True if scores are calibrated for this model."""
    reranker: str
    reranker_address: NotRequired[str]
    reranker_problem: NotRequired[str]
    ask: str
    """Language model that writes answers with sources; none if off."""
    ask_address: NotRequired[str]
    engine: str
    """Storage engine of the index."""
    location: str
    """Folder of the index, or its address on a server."""
    server: NotRequired[dict[str, Any]]
    """Server of the index: version, library, role, replicas."""
    queue: NotRequired[dict[str, Any]]
    """Passages that wait for workers, and those that failed."""
    sizes: dict[str, int]
    """Sizes in bytes."""
    unused_vectors: int
    incomplete_copy: NotRequired[bool]
    history: NotRequired[dict[str, Any]]
    """Index of git commits."""
    following: NotRequired[Following]
    indexing: NotRequired[dict[str, Any]]
    """Indexing by another process: phase, done, total and seconds left."""
    collections: dict[str, dict[str, Any]]
    """Collections by name: path and number of documents."""
    notices: list[str]
    """Remarks: degraded results, omissions, problems."""
