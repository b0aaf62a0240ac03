"""Records of an archive: their JSON, decoded into types, and the checks of what types cannot express.

An archive may come from a stranger, so a record is refused unless each value has the type, the range and the digest that a
document of an index has.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from marklight.errors import StoreError
from marklight.formatting import CONTROLS, one_line
from marklight.model import (
    Chunk,
    Document,
    DocumentId,
    Entry,
    FileState,
    Heading,
    Kind,
    Link,
    Name,
    Section,
    digest,
)
from marklight.text.markdown import embedding_digest

if TYPE_CHECKING:
    from marklight.model import Matrix

HINT = "Get the archive again, or export it again with this version of Marklight"
MAX_DEPTH = 32
"""Nesting of frontmatter; the parser accepts 20 levels."""
MAX_HEADINGS = 64
"""Headings above a passage; Markdown has six levels."""
MAX_BRACKETS = 8_000_000
"""Brackets in one JSON value, those in texts included: an empty list takes 64 bytes of memory."""
FREE_BYTES, MAX_RATIO = 200_000, 30
"""A record has at most this many times the bytes of its file, beyond the first bytes; 25,000 headings of one letter have 11."""
MAX_INTEGER = 2**63 - 1
MAX_PATH = 4096
"""Characters of a path or of a name of a document: the limit of Linux."""

_HEX = re.compile(r"[0-9a-f]{16,64}")
_PLACE = re.compile(r" - at `([^`]{1,100})`$")

Count = Annotated[int, Meta(ge=0, lt=2**40)]
Natural = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Integer = Annotated[int, Meta(ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]
PlainName = Annotated[str, Meta(min_length=1, max_length=255)]
"""Name of a collection or fingerprint of a model."""
Path = Annotated[str, Meta(min_length=1, max_length=MAX_PATH)]
Headings = Annotated[tuple[str, ...], Meta(max_length=MAX_HEADINGS)]
MergedHeadings = Annotated[tuple[str, ...], Meta(max_length=2000)]
"""Headings of small sections in one passage, which has some hundred characters for each."""
Range = tuple[int, int]
Decoded = TypeVar("Decoded")


class Manifest(Struct):
    """The last member of an archive."""

    format: str
    version: int
    documents: Count
    passages: Count
    models: Annotated[
        tuple[tuple[PlainName, Annotated[int, Meta(ge=1, le=65_536)]], ...], Meta(max_length=100)
    ]
    """Fingerprints and dimensions."""
    manifest: dict[str, Literal["", "missing"]]
    """Values to store in the manifest of the index."""
    members: tuple[tuple[str, int, str], ...]
    """Name, size and SHA-256 of every other member."""


class PassageRecord(Struct):
    """A passage: the fields of `Chunk` but its document and its ordinal."""

    id: str
    title: str
    headings: Headings
    anchor: str
    lines: Range
    kind: Kind
    text: str
    parent: str
    digest: str
    merged: MergedHeadings
    code: str
    languages: tuple[str, ...]
    boilerplate: tuple[Range, ...]


class DocumentRecord(Struct):
    """A document with its passages and sections: the fields of `Document`, with only size and time of its file."""

    collection: PlainName
    path: Path
    size: Natural
    mtime_ns: Integer
    title: str
    text: str
    digest: str
    recipe: Annotated[str, Meta(max_length=255)]
    description: str
    keywords: tuple[str, ...]
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    author: str
    category: str
    language: str
    date: Annotated[str, Meta(max_length=255)] | None
    metadata: dict[str, Any]
    outline: tuple[Heading, ...]
    links: tuple[Link, ...]
    names: tuple[Name, ...]
    blocks: dict[str, Natural]
    remarks: tuple[str, ...]
    sections: tuple[Section, ...]
    passages: tuple[PassageRecord, ...]
    block_digests: dict[Integer, bool]


_PASSAGE_FIELDS = PassageRecord.__struct_fields__
_DOCUMENT_FIELDS = DocumentRecord.__struct_fields__[4:-3]


def encode_entry(entry: Entry, *, file: bool = True) -> bytes:
    """Return a document with its passages and sections as one line of JSON, without the state of its file if `file` is false."""
    document = entry.document
    size, mtime_ns = document.file[:2] if file else (0, 0)
    record = DocumentRecord(
        collection=document.id.collection,
        path=document.id.path,
        size=size,
        mtime_ns=mtime_ns,
        sections=entry.sections,
        passages=tuple(
            PassageRecord(**{name: getattr(chunk, name) for name in _PASSAGE_FIELDS})
            for chunk in entry.chunks
        ),
        block_digests=dict(sorted(entry.block_digests.items())),
        **{name: getattr(document, name) for name in _DOCUMENT_FIELDS},
    )
    return encode_json(record)


def encode_json(value: Any) -> bytes:
    """Return a value as one line of JSON; a lone surrogate, which UTF-8 cannot encode, is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True), separators=(",", ":")).encode()


def decode_json(data: bytes, expected: type[Decoded], name: str) -> Decoded:
    """Decode JSON of an archive as a type; raise StoreError with the name of the record if it is anything else."""
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS:
        raise invalid(f"{name} has too many values")
    try:
        return msgspec.json.decode(data, type=expected)
    except msgspec.ValidationError as error:
        # Other parts of the message may repeat text of the archive.
        place = _PLACE.search(str(error))
        where = f" at {place[1]}" if place else ""
        raise invalid(f"{name} has missing or invalid fields{where}") from None
    except (ValueError, RecursionError):
        raise invalid(f"{name} is not valid JSON") from None


def decode_entry(data: bytes) -> Entry:
    """Parse and validate one document; raise StoreError if any value is invalid."""
    record = decode_json(data, DocumentRecord, "a document")
    if not is_relative(record.path):
        raise invalid(f"the path {record.path[:255]!r} is not relative to its collection")
    if CONTROLS.search(record.path):
        raise invalid(f"the path {one_line(record.path[:255])!r} has control characters")
    if not record.collection.isprintable():
        raise invalid(f"{record.path[:255]!r} is in a collection without a printable name")
    if len(data) >= max_record(record.size):
        raise invalid(f"the document {record.path[:255]} has more data than its file can have")
    if problem := _problem(record):
        raise invalid(f"the document {record.path[:255]} {problem}")
    id = DocumentId(record.collection, record.path)
    document = Document(
        id=id,
        file=FileState(record.size, record.mtime_ns),
        **{name: getattr(record, name) for name in _DOCUMENT_FIELDS},
    )
    chunks = tuple(
        Chunk(document=id, ordinal=ordinal, **msgspec.structs.asdict(passage))
        for ordinal, passage in enumerate(record.passages)
    )
    if any(map(_has_other_text, chunks)):
        raise invalid(
            f"the document {record.path[:255]} has a passage that does not match its digest"
        )
    return Entry(document, chunks, record.sections, block_digests=record.block_digests)


def max_record(size: int) -> int:
    """Return the bytes that the record of a file may have: engines read as many documents at once as the sizes allow."""
    return FREE_BYTES + MAX_RATIO * size


def _problem(record: DocumentRecord) -> str:
    """Return what no document of an index has; empty if there is nothing."""
    if record.digest != digest(record.text):
        return "does not match its digest"
    if record.size < len(record.text):
        # Readers bound their memory by this size.
        return "is longer than its file"
    ids = [*(section.id for section in record.sections), *(chunk.id for chunk in record.passages)]
    ids += [chunk.parent for chunk in record.passages if chunk.parent]
    if not all(map(_HEX.fullmatch, ids)):
        return "has an id that is not hexadecimal"
    parts: list[Heading | Section | PassageRecord] = [*record.outline, *record.sections]
    parts += record.passages
    line_count = record.text.count("\n") + 1
    if not all(_is_within(part.lines, 1, line_count) for part in parts):
        return "has lines outside of its text"
    if not all(_is_within(section.span, 0, len(record.text)) for section in record.sections):
        return "has a section outside of its text"
    for passage in record.passages:
        if not all(_is_within(part, 0, len(passage.text)) for part in passage.boilerplate):
            return "has boilerplate outside of a passage"
        if any(one[1] > other[0] for one, other in pairwise(passage.boilerplate)):
            return "has boilerplate that overlaps"
    numbers = [link.line for link in record.links]
    levels = [heading.level for heading in record.outline]
    if any(not 0 <= number <= MAX_INTEGER for number in numbers) or any(
        not 0 <= level <= MAX_HEADINGS for level in levels
    ):
        return "has a number that is out of range"
    if any(len(section.headings) > MAX_HEADINGS for section in record.sections) or any(
        len(name.key) > MAX_PATH for name in record.names
    ):
        return "has a name or a list that is too long"
    return _metadata_problem(record.metadata)


def _is_within(part: Range, low: int, high: int) -> bool:
    return low <= part[0] <= part[1] <= high


def _has_other_text(chunk: Chunk) -> bool:
    is_boilerplate = chunk.is_boilerplate and bool(chunk.boilerplate)
    return not is_boilerplate and chunk.digest != embedding_digest(
        chunk.title, chunk.headings, chunk.own_text
    )


def _metadata_problem(metadata: dict[str, Any]) -> str:
    """Check that frontmatter has values of bounded depth and 64-bit integers."""
    layer: Sequence[Any] = [metadata]
    for _ in range(MAX_DEPTH):
        if any(isinstance(value, int) and abs(value) > MAX_INTEGER for value in layer):
            return "has a number in its frontmatter that is too large"
        layer = [
            inner
            for value in layer
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not layer:
            return ""
    return "has frontmatter that is nested too deeply"


def is_relative(path: str) -> bool:
    """Return True for a path below a folder: not absolute, no `..`, no empty step, no NUL."""
    steps = path.split("/")
    if os.name == "nt" and re.search(r"[\\:]", path):
        return False
    return "\0" not in path and not any(step in ("", ".", "..") for step in steps)


def invalid(reason: str) -> StoreError:
    """Return the error for an archive that is damaged or was made to look like one."""
    return StoreError(f"The archive is invalid: {reason}", HINT)


def decode_matrix(data: bytes, count: int, dimension: int, name: str) -> Matrix:
    """Return vectors from their bytes; every number must be finite."""
    if len(data) != 4 * count * dimension:
        raise invalid(f"the vectors of {name} do not have {dimension} numbers each")
    matrix = np.frombuffer(data, dtype="<f4").reshape(count, dimension)
    if not np.isfinite(matrix).all():
        raise invalid(f"the vectors of {name} have numbers that are not finite")
    return matrix.astype(np.float32, copy=False)
