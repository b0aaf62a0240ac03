"""Data model: frozen types of documents, passages, links and commits that all packages share, and content digests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field
from enum import StrEnum
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from marklight.lazy import dataclass, lazy_pattern

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
    Vector = NDArray[np.float32]


Declared = TypeVar("Declared")

ENOUGH_PROSE = 700
"""Characters above which more text makes no difference to ranking. Of 808 queries about sections and notes, the share whose passage
is useful, given the right document, is .694 with 200, .707 with 400, .717 with 700 and .711 with 1,500, each set held out."""
_LINK_TARGET = lazy_pattern(r"\]\([^()\s]{0,2000}\)")


class DocumentId(NamedTuple):
    """Identifies a document: its collection and its path relative to it, with forward slashes."""

    collection: str
    path: str

    def named(self, several_collections: bool) -> str:
        """Return the path as users write it: with the collection first if there are several."""
        return f"{self.collection}/{self.path}" if several_collections else self.path


class Kind(StrEnum):
    """The kind of text that makes up most of a passage."""

    PROSE = "prose"
    CODE = "code"
    TABLE = "table"
    LIST = "list"


class LinkType(StrEnum):
    """The relation that a link expresses, taken from the heading above it."""

    LINKS_TO = "links_to"
    IMPLEMENTS = "implements"
    TESTS = "tests"
    RELATED = "related"
    EMBEDS = "embeds"


class NameStrength(StrEnum):
    """Strength of a document's name, strongest first: a link resolves to the strongest match."""

    PATH = "1-path"
    SUFFIX = "2-suffix"
    ALIAS = "3-alias"


@dataclass(frozen=True, slots=True)
class Name:
    """A lower-case key by which links find a document."""

    key: str
    strength: NameStrength


def json_keys(keys: str) -> Callable[[type[Declared]], type[Declared]]:
    """Declare the keys of a result type in JSON; `serialization` describes the syntax."""

    def declare(kind: type[Declared]) -> type[Declared]:
        kind.JSON = keys  # type: ignore[attr-defined]
        return kind

    return declare


@dataclass(frozen=True, slots=True)
class Link:
    """A reference from one document to another: as written, and the keys that it may resolve to."""

    type: LinkType
    target: str
    """As written, without the fragment."""
    fragment: str
    """A heading, or `^block`; empty for a link to a whole document."""
    text: str
    line: int
    keys: tuple[str, ...]
    """Keys that it may resolve to, best first; it is resolved when it is read, so it is never out of date."""


@dataclass(frozen=True, slots=True)
class ResolvedLink:
    """A link with its source and target; `target` is None while it is unresolved."""

    source: DocumentId
    link: Link
    target: DocumentId | None


@json_keys("level text anchor lines")
class Heading(NamedTuple):
    """A heading, its anchor, and the lines up to the next heading of its level or above."""

    level: int
    text: str
    anchor: str
    lines: tuple[int, int]
    """First and last line, starting at 1."""


_LATEST_NS = 2**63 - 1
"""The year 2262: stores keep times in 64 bits, while a file system may return the year 2500."""


_ELSEWHERE = -1
"""In place of the change time: no file was read one nanosecond after the epoch."""


class Unit(NamedTuple):
    """A list, table, procedure, definition list or code block of a document, or a part of one."""

    kind: str
    lines: tuple[int, int]
    """First and last line, starting at 1."""


class FileState(NamedTuple):
    """Size and time stamps of a file: equal states mean an unchanged file."""

    size: int
    mtime_ns: int
    ctime_ns: int = 0
    """Time of the last change of the inode, which also detects a replacement by a file of the same size and time.

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

    @classmethod
    def elsewhere(cls, size: int, mtime_ns: int) -> FileState:
        """Return the state of a document that only other machines have read; it equals no stat."""
        return cls(size, mtime_ns, _ELSEWHERE)

    @property
    def is_elsewhere(self) -> bool:
        """Return whether this machine has never read the file; if it is here, compare it by content."""
        return self.ctime_ns == _ELSEWHERE

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
    """A parsed file: its text, metadata, outline and links."""

    id: DocumentId
    title: str
    text: str
    file: FileState
    digest: str
    """Digest of the text: equal digests mean equal texts."""
    recipe: str = ""
    """Fingerprint of parser and chunker: if it differs, the document must be indexed again."""
    description: str = ""
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    author: str = ""
    category: str = ""
    language: str = ""
    """ISO 639-1 code of the language that it is written in; empty if it is not known."""
    date: str | None = None
    """The document's own date, ISO 8601; it takes precedence over the file time."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """All frontmatter, as JSON values."""
    outline: tuple[Heading, ...] = ()
    links: tuple[Link, ...] = ()
    names: tuple[Name, ...] = ()
    blocks: Mapping[str, int] = field(default_factory=dict)
    """Block ids (`^id`) and their lines."""
    remarks: tuple[str, ...] = ()
    """Defects and how they were handled, such as invalid frontmatter."""

    @property
    def origin(self) -> int:
        """Return a digest of title and file name, 32 bits with sign: copies of a document, such as versions, have the same."""
        title = " ".join(self.title.casefold().split())
        name = self.id.path.rpartition("/")[2]
        return int.from_bytes(bytes.fromhex(digest(title, name, size=4)), "little", signed=True)


@dataclass(frozen=True, slots=True)
class Section:
    """Consecutive passages of one section, which can be returned in place of one of them (parent)."""

    id: str
    headings: tuple[str, ...]
    anchor: str
    lines: tuple[int, int]
    span: tuple[int, int]
    """Character offsets into the document's text."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: the unit of search."""

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
    """Digest of the embedded text: the key of its vector; empty for a passage of nothing but boilerplate, which has none."""
    merged: tuple[str, ...] = ()
    """Headings of small sibling sections that were merged into this passage."""
    code: str = ""
    """The code blocks in it, for code search."""
    languages: tuple[str, ...] = ()
    boilerplate: tuple[tuple[int, int], ...] = ()
    """Parts of `text` that many documents share, as offsets of their first character and of the one after the last."""

    @property
    def collection(self) -> str:
        return self.document.collection

    @property
    def is_boilerplate(self) -> bool:
        """Return true if it has nothing but boilerplate, in a document with other text: only a quoted phrase finds it."""
        return not self.digest

    @property
    def own_text(self) -> str:
        """Return the text without boilerplate: what is ranked, embedded and compared."""
        return without_spans(self.text, self.boilerplate)

    def snippet_text(self, quoted: bool = False) -> str:
        """Return the text that a snippet is taken from: without boilerplate, unless there is nothing else or the query quotes a phrase."""
        own = "" if quoted or self.is_boilerplate else self.own_text
        return own if any(map(str.isalnum, own)) else self.text

    @property
    def prose_length(self) -> int:
        """Return the number of characters of its own text without link targets, counted up to `ENOUGH_PROSE`."""
        text, length, end = self.own_text, 0, 0
        for match in _LINK_TARGET.finditer(text):
            length += match.start() - end
            end = match.end()
            if length >= ENOUGH_PROSE:
                return ENOUGH_PROSE
        return min(ENOUGH_PROSE, length + len(text) - end)

    @property
    def text_key(self) -> str:
        """Return a digest of its own text, or else of its boilerplate; equal for texts that differ in white space at most."""
        text = self.text if self.is_boilerplate else self.own_text
        return digest(" ".join(text.split()), size=8)

    @property
    def is_title(self) -> bool:
        """Return true if it consists of the title of a document without other text."""
        return self.text.strip().lstrip("# ") == self.title

    @property
    def path(self) -> str:
        return self.document.path


class UnreadChunk(Chunk):
    """A passage that may not be shown: the fields that ranking needs; the first use of another one reads the passage."""

    __slots__ = ("_read", "_whole", "prose_length", "text_key")

    def __init__(
        self,
        id: str,
        document: DocumentId,
        title: str,
        prose_length: int,
        text_key: str,
        read: Callable[[str], Chunk],
    ) -> None:
        _set_id(self, id)
        _set_document(self, document)
        _set_title(self, title)
        _set_prose_length(self, prose_length)
        _set_text_key(self, text_key)
        _set_read(self, read)

    def __getattr__(self, name: str) -> Any:
        if name == "_whole":
            object.__setattr__(self, "_whole", self._read(self.id))
            return self._whole
        return getattr(self._whole, name)

    @property
    def whole(self) -> Chunk:
        """Return the passage with all its fields."""
        whole: Chunk = self._whole
        return whole

    def __eq__(self, other: object) -> bool:
        return self.whole == (other.whole if isinstance(other, UnreadChunk) else other)

    def __hash__(self) -> int:
        return hash(self.whole)


_set_id, _set_document, _set_title, _set_prose_length, _set_text_key, _set_read = (
    getattr(UnreadChunk, name).__set__
    for name in ("id", "document", "title", "prose_length", "text_key", "_read")
)
"""Setters of the slots: a search makes a hundred instances, in half the time of `object.__setattr__`."""


def without_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return a text without some parts of it, given in order."""
    if not spans:
        return text
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


@json_keys("documents chunks embedded pending generation")
@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of indexed and pending items."""

    documents: int = 0
    chunks: int = 0
    """Passages."""
    embedded: int = 0
    """Passages with embeddings."""
    failed: int = 0
    generation: int = 0
    """Increases with every change of the index."""
    model: str = ""
    """Fingerprint of the model whose vectors were counted; empty for none."""
    unread: int = 0
    """Changed files that are not indexed yet."""
    boilerplate: int = 0
    """Passages of nothing but boilerplate, which are not embedded."""

    @property
    def pending(self) -> int:
        """Return the number of passages without a vector of this model and of files that are not indexed yet."""
        missing = self.chunks - self.boilerplate - self.embedded
        return (missing if self.model else 0) + self.unread


@dataclass(frozen=True, slots=True)
class Entry:
    """A document with its passages and sections, which replaces the indexed one in a commit."""

    document: Document
    chunks: tuple[Chunk, ...]
    sections: tuple[Section, ...] = ()
    block_digests: Mapping[int, bool] = field(default_factory=dict)
    """Digests of its blocks of text, 64 bits with sign; true for those that counted as boilerplate."""
    vocabulary: Set[str] | None = None
    """`vocabulary_terms` of its text, below the `encoded_levels` and `entry_terms` of its passages; None to compute them in the commit."""
    levels: Sequence[str] | None = None
    terms: Sequence[Mapping[str, str]] | None = None
    replaces: str = ""
    """Digest of the stored text that it was made from; a commit leaves it out if the index has another text by then."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be indexed, with the reason; it is tried again when it changes."""

    document: DocumentId
    reason: str
    file: FileState | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Vectors of one model; row i belongs to digest i."""

    model: str
    digests: tuple[str, ...]
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes of one atomic commit."""

    entries: tuple[Entry, ...] = ()
    removed: tuple[DocumentId, ...] = ()
    touched: tuple[tuple[DocumentId, FileState], ...] = ()
    """Documents whose file time changed but not their text."""
    failures: tuple[Failure, ...] = ()
    vectors: Vectors | None = None
    concepts: Vectors | None = None
    """Vectors of vocabulary terms; the terms take the place of digests."""
    communities: Mapping[DocumentId, int] | None = None
    """Community of each document in the link graph; replaces all earlier ones."""
    manifest: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self != Batch()


def trail(title: str, headings: Iterable[str]) -> str:
    """Return `title > heading > heading`; a first heading that repeats the title is left out."""
    steps = (title, *headings) if title else headings
    return " > ".join(step for step, _ in groupby(steps))


def digest(*parts: str, size: int = 16) -> str:
    """Return a hexadecimal BLAKE2b digest of these strings; the length of each is hashed too."""
    data = [part.encode("utf-8", "surrogatepass") for part in parts]
    joined = b"".join([piece for part in data for piece in (len(part).to_bytes(8, "little"), part)])
    return blake2b(joined, digest_size=size).hexdigest()


MAX_KEY = 255
"""Characters of a name that is stored unchanged: the limit of a file name on common file systems."""


def normalize_key(key: str) -> str:
    """Return a frontmatter key in lower case, as it is stored and looked up."""
    return bounded_key(key.strip().lower())


def bounded_key(name: str) -> str:
    """Return a name as it is stored and looked up; a name that is too long is replaced by its digest.

    A path may have thousands of characters, and every link of a document is stored with its own path.
    """
    return name if len(name) <= MAX_KEY else f"digest {digest(name)}"
