"""The nouns: frozen values that every room speaks in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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

    def named(self, several_collections: bool) -> str:
        """What it is asked for by: its path, with its collection first where there are several."""
        return f"{self.collection}/{self.path}" if several_collections else self.path


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


class Heading(NamedTuple):
    """A heading, its anchor, and the lines up to the next heading of its level or above."""

    level: int
    text: str
    anchor: str
    lines: tuple[int, int]


_LATEST_NS = 2**63 - 1
"""The year 2262: stores keep times in 64 bits, while a file system may return the year 2500."""


class FileState(NamedTuple):
    """What a stat tells about a file: equal states mean an unchanged file."""

    size: int
    mtime_ns: int
    ctime_ns: int = 0
    """When anything about it last changed, a swap for a file of the same size and time included.

    Negative for a racily clean file: minus the time at which it was read, which no stat returns.
    """

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileState:
        """Return the size and time stamps by which a changed file is recognised."""
        mtime_ns, ctime_ns = _stamps(status)
        if not (0 <= mtime_ns <= _LATEST_NS and 0 <= ctime_ns <= _LATEST_NS):
            mtime_ns, ctime_ns = (min(max(stamp, 0), _LATEST_NS) for stamp in (mtime_ns, ctime_ns))
        return cls(status.st_size, mtime_ns, ctime_ns)

    @classmethod
    def racy(cls, file: FileState, read_ns: int) -> FileState:
        """Return a state that equals no stat, so that the next scan compares the file by content."""
        return cls(file.size, file.mtime_ns, -read_ns)

    @property
    def is_racy(self) -> bool:
        """Return whether the file may have been edited since without a new time stamp."""
        return self.ctime_ns < 0

    @property
    def read_ns(self) -> int:
        """Return when a racily clean file was read."""
        return -self.ctime_ns


def _stamps(status: os.stat_result) -> tuple[int, int]:
    """Return modification and change time; on Windows `st_ctime` is the creation time, so 0."""
    return status.st_mtime_ns, 0 if os.name == "nt" else status.st_ctime_ns


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
    def is_title(self) -> bool:
        """Whether it is the title of a document that says nothing else."""
        return self.text.strip().lstrip("# ") == self.title

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
    concepts: Vectors | None = None
    """The same for words of the vocabulary: the words stand in the place of digests."""
    communities: Mapping[DocumentId, int] | None = None
    """Which documents belong together by their links; takes the place of all before."""
    manifest: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.entries
            or self.removed
            or self.touched
            or self.failures
            or self.vectors
            or self.concepts
            or self.communities is not None
            or self.manifest
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is in the index, and how much is still to do."""

    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    failed: int = 0
    generation: int = 0
    model: str = ""
    """Whose vectors were counted; empty where no model was asked about."""
    unread: int = 0
    """Changed files that are known and were not read yet."""

    @property
    def pending(self) -> int:
        """Passages that have no vector of this model yet, and files that wait to be read."""
        return (self.chunks - self.embedded if self.model else 0) + self.unread


def trail(title: str, headings: Iterable[str]) -> str:
    """`title > heading > heading`, each once where the first heading repeats the title."""
    steps = [title] if title else []
    for heading in headings:
        if not steps or heading != steps[-1]:
            steps.append(heading)
    return " > ".join(steps)
