"""The nouns: frozen values that every room speaks in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
    Vector = NDArray[np.float32]


class DocumentId(NamedTuple):
    """A document is known by its collection and its path below it, with forward slashes."""

    collection: str
    path: str


class Kind(StrEnum):
    """What most of a passage is."""

    PROSE = "prose"
    CODE = "code"
    TABLE = "table"
    LIST = "list"


class LinkType(StrEnum):
    """What a link says about its two ends, told by the heading that it stands under."""

    LINKS_TO = "links_to"
    IMPLEMENTS = "implements"
    TESTS = "tests"
    RELATED = "related"
    EMBEDS = "embeds"


class NameStrength(StrEnum):
    """How a document may be called, strongest first: a link takes the strongest match."""

    PATH = "1-path"
    SUFFIX = "2-suffix"
    ALIAS = "3-alias"


@dataclass(frozen=True, slots=True)
class Name:
    """One lower-case key under which links find a document."""

    key: str
    strength: NameStrength


@dataclass(frozen=True, slots=True)
class Link:
    """A reference from one document to another, as written and as it may be resolved."""

    type: LinkType
    target: str
    """As written, without the fragment."""
    fragment: str
    """A heading, or `^block`; empty when the link names a whole document."""
    text: str
    line: int
    keys: tuple[str, ...]
    """Names it may resolve to, best first; resolved when read, so it is never out of date."""


@dataclass(frozen=True, slots=True)
class ResolvedLink:
    """A link with its two ends; `target` is None while nothing answers to its name."""

    source: DocumentId
    link: Link
    target: DocumentId | None


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, its anchor, and the lines up to the next heading of its level or above."""

    level: int
    text: str
    anchor: str
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileState:
    """What a stat tells about a file: equal states mean an unchanged file."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it was understood: its text, what it says about itself, what it points to."""

    id: DocumentId
    title: str
    text: str
    file: FileState
    digest: str
    """Of the text: two files with one digest hold the same words."""
    recipe: str = ""
    """Fingerprint of parser and chunker: another one means the document must be read again."""
    description: str = ""
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    author: str = ""
    category: str = ""
    date: str | None = None
    """The document's own date, ISO 8601; it beats the file time."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """All of the frontmatter, as values that JSON can hold."""
    outline: tuple[Heading, ...] = ()
    links: tuple[Link, ...] = ()
    names: tuple[Name, ...] = ()
    blocks: Mapping[str, int] = field(default_factory=dict)
    """Block ids (`^id`) and their lines."""
    remarks: tuple[str, ...] = ()
    """What was odd about it and what was done, such as frontmatter that could not be read."""


@dataclass(frozen=True, slots=True)
class Section:
    """A parent: consecutive passages of one section, what can be returned in place of a child."""

    id: str
    headings: tuple[str, ...]
    anchor: str
    lines: tuple[int, int]
    span: tuple[int, int]
    """Character offsets into the document's text."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: what is searched."""

    id: str
    document: DocumentId
    ordinal: int
    """Position within the document, from 0."""
    title: str
    headings: tuple[str, ...]
    anchor: str
    lines: tuple[int, int]
    kind: Kind
    text: str
    parent: str
    """Id of its Section."""
    digest: str
    """Of what is embedded: the key under which its vector is kept."""
    merged: tuple[str, ...] = ()
    """Headings of small sibling sections that were merged into this passage."""
    code: str = ""
    """The code blocks in it, for code search."""
    languages: tuple[str, ...] = ()

    @property
    def collection(self) -> str:
        return self.document.collection

    @property
    def path(self) -> str:
        return self.document.path


@dataclass(frozen=True, slots=True)
class Entry:
    """A document with everything made from it: what a commit puts in place of the old."""

    document: Document
    chunks: tuple[Chunk, ...]
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be indexed, and why; tried again when it changes."""

    document: DocumentId
    reason: str
    file: FileState | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Vectors of one model, row by row for the digests beside them."""

    model: str
    digests: tuple[str, ...]
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit applies, together or not at all."""

    entries: tuple[Entry, ...] = ()
    removed: tuple[DocumentId, ...] = ()
    touched: tuple[tuple[DocumentId, FileState], ...] = ()
    """Documents whose file time changed but not their words."""
    failures: tuple[Failure, ...] = ()
    vectors: Vectors | None = None
    manifest: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.entries
            or self.removed
            or self.touched
            or self.failures
            or self.vectors
            or self.manifest
        )


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents and passages may answer; within a field any value may match, all fields must."""

    collections: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Globs, `**` crosses folders."""
    exclude: tuple[str, ...] = ()
    """Paths or globs that may not answer."""
    tags: tuple[str, ...] = ()
    """A tag also stands for the tags nested below it."""
    where: tuple[tuple[str, str], ...] = ()
    """Frontmatter keys and values; here all must match."""
    after: str | None = None
    before: str | None = None
    """ISO dates, both inclusive; compared with the document's date, else its file time."""
    languages: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != Filters()


class Mode(StrEnum):
    """Which retrievers answer."""

    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Query:
    """A question on its way through the pipeline."""

    text: str
    limit: int = 5
    mode: Mode = Mode.HYBRID
    filters: Filters = field(default_factory=Filters)
    kind: str = "exploratory"
    expanded_with: tuple[str, ...] = ()
    min_confidence: float | None = None
    max_tokens: int | None = None
    here: str = ""
    """The collection that the asker stands in, where there are several."""


class Why(NamedTuple):
    """One stage's part in a hit's score."""

    stage: str
    value: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage with its score, higher is better, and how it came by it."""

    chunk: Chunk
    score: float
    why: tuple[Why, ...] = ()

    def rescored(self, score: float, by: str) -> Hit:
        """The same passage with another score; the stage that changed it is remembered."""
        return replace(self, score=score, why=(*self.why, Why(by, score)))


Hits = tuple[Hit, ...]


def best_first(hits: Iterable[Hit]) -> Hits:
    """In order of score; of equals the same one always comes first."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id)))


def together(lists: Iterable[Hits]) -> dict[str, Hit]:
    """Every passage of several lists once, by id, remembering all that was said of it."""
    found: dict[str, Hit] = {}
    for hits in lists:
        for hit in hits:
            known = found.get(hit.chunk.id)
            found[hit.chunk.id] = replace(hit, why=known.why + hit.why) if known else hit
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of an answer: how many hits it left and how long it took."""

    stage: str
    count: int
    ms: float


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is in the index, and how much is still to do."""

    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    failed: int = 0
    generation: int = 0

    @property
    def pending(self) -> int:
        """Passages that have no vector yet."""
        return self.chunks - self.embedded


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found, and everything that a reader needs to trust it."""

    query: Query
    hits: Hits
    index: Counts
    modified: Mapping[DocumentId, int] = field(default_factory=dict)
    """File times in nanoseconds."""
    abstained: str | None = None
    stats: Mapping[str, int] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    notices: Sequence[str] = ()
    took_ms: float = 0.0
    explain: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON holds it, the same on every surface."""
        filters = self.query.filters
        set_filters = {
            name: getattr(filters, name)
            for name in filters.__slots__
            if getattr(filters, name) not in ((), None)
        }
        return {
            "query": {
                "text": self.query.text,
                "kind": self.query.kind,
                "expanded_with": list(self.query.expanded_with),
                "filters": {
                    name: dict(value)
                    if name == "where"
                    else list(value)
                    if isinstance(value, tuple)
                    else value
                    for name, value in set_filters.items()
                },
            },
            "results": [self._result(rank, hit) for rank, hit in enumerate(self.hits, 1)],
            "abstained": self.abstained,
            "stats": dict(self.stats),
            "steps": [
                {"stage": step.stage, "count": step.count, "ms": round(step.ms, 3)}
                for step in (self.steps if self.explain else ())
            ],
            "index": {
                "documents": self.index.documents,
                "chunks": self.index.chunks,
                "embedded": self.index.embedded,
                "pending": self.index.pending,
                "generation": self.index.generation,
            },
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }

    def _result(self, rank: int, hit: Hit) -> dict[str, Any]:
        chunk = hit.chunk
        return {
            "rank": rank,
            "score": round(hit.score, 4),
            "chunk_id": chunk.id,
            "path": chunk.path,
            "collection": chunk.collection,
            "title": chunk.title,
            "headings": list(chunk.headings),
            "anchor": chunk.anchor,
            "lines": list(chunk.lines),
            "kind": chunk.kind.value,
            "content": chunk.text,
            "modified": iso_time(self.modified.get(chunk.document, 0)),
            "why": [
                {"stage": why.stage, "value": round(why.value, 6)}
                for why in (hit.why if self.explain else ())
            ],
        }


def iso_time(time_ns: int) -> str:
    """A file time as ISO 8601 in UTC."""
    return (
        datetime.fromtimestamp(time_ns / 1e9, UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )


@dataclass(frozen=True, slots=True)
class Extract:
    """A piece of a document as it stands in the file."""

    document: DocumentId
    title: str
    headings: tuple[str, ...]
    lines: tuple[int, int]
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The extract as JSON holds it."""
        return {
            "path": self.document.path,
            "collection": self.document.collection,
            "title": self.title,
            "headings": list(self.headings),
            "lines": list(self.lines),
            "content": self.text,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What an indexing run did."""

    added: tuple[DocumentId, ...] = ()
    changed: tuple[DocumentId, ...] = ()
    moved: tuple[tuple[DocumentId, DocumentId], ...] = ()
    removed: tuple[DocumentId, ...] = ()
    skipped: tuple[Failure, ...] = ()
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
            "documents": self.index.documents,
            "chunks": self.index.chunks,
            "embedded": self.index.embedded,
            "pending": self.index.pending,
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }
