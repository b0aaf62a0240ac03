"""Records of an archive: documents as JSON objects, and the validation of every field when they are read.

An archive may come from a stranger, so a record is refused unless each value has the type, the range and the digest that a
document of an index has.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from marklight.batch import Entry
from marklight.errors import StoreError
from marklight.model import (
    Chunk,
    Document,
    DocumentId,
    FileState,
    Heading,
    Kind,
    Link,
    LinkType,
    Name,
    NameStrength,
    Section,
    digest,
)
from marklight.text.markdown import chunk_embedding_text

if TYPE_CHECKING:
    from marklight.model import Matrix

MAX_NAME = 255
"""Characters of a collection's name or a model's fingerprint."""
MAX_PATH = 4096
"""Characters of a path: the limit of Linux."""
MAX_HEADINGS = 64
"""Headings above a passage; Markdown has six levels."""
MAX_MERGED = 2000
"""Headings of small sections in one passage, which has some hundred characters for each."""
MAX_DEPTH = 32
"""Nesting of frontmatter; the parser accepts 20 levels."""
MAX_BRACKETS = 8_000_000
"""Brackets in one JSON value, those in texts included: an empty list takes 64 bytes of memory."""
MAX_INTEGER = 2**63 - 1
_HEX = re.compile(r"[0-9a-f]{16,64}")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class InvalidRecord(ValueError):
    """A value that no index has; the message ends a sentence that names the record."""


def encode_entry(entry: Entry) -> bytes:
    """Return a document with its passages and sections as one line of JSON, without its change time."""
    document, file = entry.document, entry.document.file
    return encode_json(
        {
            "collection": document.id.collection,
            "path": document.id.path,
            "size": file.size,
            "mtime_ns": file.mtime_ns,
            **{name: getattr(document, name) for name in _DOCUMENT_TEXTS},
            "date": document.date,
            **{name: getattr(document, name) for name in _DOCUMENT_LISTS},
            "metadata": document.metadata,
            "outline": document.outline,
            "links": [
                (each.type, each.target, each.fragment, each.text, each.line, each.keys)
                for each in document.links
            ],
            "names": [(each.key, each.strength) for each in document.names],
            "blocks": dict(document.blocks),
            "sections": [
                (each.id, each.headings, each.anchor, each.lines, each.span)
                for each in entry.sections
            ],
            "passages": [
                {
                    **{name: getattr(chunk, name) for name in _CHUNK_TEXTS},
                    "kind": chunk.kind,
                    "lines": chunk.lines,
                    **{name: getattr(chunk, name) for name in _CHUNK_LISTS},
                    "boilerplate": chunk.boilerplate,
                }
                for chunk in entry.chunks
            ],
            "block_digests": [(key, int(own)) for key, own in sorted(entry.block_digests.items())],
        }
    )


_DOCUMENT_TEXTS = (
    *("title", "text", "digest", "recipe", "description", "author", "category"),
    "language",
)
_DOCUMENT_LISTS = ("keywords", "tags", "aliases", "remarks")
_CHUNK_TEXTS = ("id", "title", "anchor", "text", "parent", "digest", "code")
_CHUNK_LISTS = ("headings", "merged", "languages")


def encode_json(value: Any) -> bytes:
    """Return a value as one line of JSON; a lone surrogate, which UTF-8 cannot encode, is escaped."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def decode_json(data: bytes) -> Any:
    """Parse JSON of an archive; raise InvalidRecord for what `encode_json` would not have written."""
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS:
        raise InvalidRecord("has too many values")
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        if _ESCAPED_SURROGATE.search(data):
            _encode(value).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRecord("is not valid JSON") from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def decode_entry(data: bytes) -> Entry:
    """Parse and validate one document; raise StoreError that names it if any value is invalid."""
    name = ""
    try:
        record = _mapping(decode_json(data))
        id = DocumentId(_collection(record), _path(record))
        name = f" {id.path}"
        return _entry(id, record)
    except (InvalidRecord, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, InvalidRecord) else "has missing or invalid fields"
        raise StoreError(
            f"The archive is invalid: the document{name[:MAX_NAME]} {reason}", HINT
        ) from error


HINT = "Get the archive again, or export it again with this version of Marklight"


def _entry(id: DocumentId, record: Mapping[str, Any]) -> Entry:
    text = _text(record["text"])
    line_count = text.count("\n") + 1
    lines = _lines_of(line_count)
    texts: dict[str, Any] = {name: _text(record[name]) for name in _DOCUMENT_TEXTS}
    lists: dict[str, Any] = {name: _texts(record[name]) for name in _DOCUMENT_LISTS}
    document = Document(
        id=id,
        file=FileState(_integer(record["size"]), _integer(record["mtime_ns"], -MAX_INTEGER)),
        date=None if record["date"] is None else _text(record["date"], MAX_NAME),
        metadata=_metadata(record["metadata"]),
        outline=tuple(
            Heading(_integer(level, 0, MAX_HEADINGS), _text(title), _text(anchor), lines(span))
            for level, title, anchor, span in _list(record["outline"])
        ),
        links=tuple(map(_link, _list(record["links"]))),
        names=tuple(
            Name(_text(key, MAX_PATH), NameStrength(strength))
            for key, strength in _list(record["names"])
        ),
        blocks={_text(key): _integer(line, 0) for key, line in _mapping(record["blocks"]).items()},
        **texts,
        **lists,
    )
    if document.digest != digest(text):
        raise InvalidRecord("does not match its digest")
    if document.file.size < len(text):
        # Readers bound their memory by this size.
        raise InvalidRecord("is longer than its file")
    span = _span_of(len(text))
    sections = tuple(
        Section(_id(own), _texts(headings, MAX_HEADINGS), _text(anchor), lines(rows), span(part))
        for own, headings, anchor, rows, part in _list(record["sections"])
    )
    chunks = tuple(
        _chunk(id, ordinal, _mapping(each), lines)
        for ordinal, each in enumerate(_list(record["passages"]))
    )
    digests = {
        _integer(key, -MAX_INTEGER - 1): bool(_integer(own, 0, 1))
        for key, own in _list(record["block_digests"])
    }
    return Entry(document, chunks, sections, block_digests=digests)


def _chunk(
    id: DocumentId,
    ordinal: int,
    record: Mapping[str, Any],
    lines: Callable[[Any], tuple[int, int]],
) -> Chunk:
    text = _text(record["text"])
    part = _range_within(0, len(text), "has boilerplate outside of a passage")
    parts = tuple(map(part, _list(record["boilerplate"])))
    if any(one[1] > other[0] for one, other in pairwise(parts)):
        raise InvalidRecord("has boilerplate that overlaps")
    chunk = Chunk(
        document=id,
        ordinal=ordinal,
        kind=Kind(record["kind"]),
        lines=lines(record["lines"]),
        headings=_texts(record["headings"], MAX_HEADINGS),
        merged=_texts(record["merged"], MAX_MERGED),
        languages=_texts(record["languages"]),
        boilerplate=parts,
        **{name: _text(record[name]) for name in _CHUNK_TEXTS},
    )
    _id(chunk.id)
    if chunk.parent:
        _id(chunk.parent)
    is_boilerplate = chunk.is_boilerplate and bool(parts)
    if not is_boilerplate and chunk.digest != digest(chunk_embedding_text(chunk)):
        raise InvalidRecord("has a passage that does not match its digest")
    return chunk


def _link(record: Any) -> Link:
    type, target, fragment, text, line, keys = _list(record)
    return Link(
        LinkType(type), _text(target), _text(fragment), _text(text), _integer(line), _texts(keys)
    )


def _collection(record: Mapping[str, Any]) -> str:
    name = _text(record["collection"], MAX_NAME)
    if not name or not name.isprintable():
        raise InvalidRecord("is in a collection without a printable name")
    return name


def _path(record: Mapping[str, Any]) -> str:
    path = _text(record["path"], MAX_PATH)
    if not is_relative(path):
        raise InvalidRecord(
            f"{path[:MAX_NAME]!r} has a path that is not relative to its collection"
        )
    return path


def is_relative(path: str) -> bool:
    """Return True for a path below a folder: not absolute, no `..`, no empty step, no NUL."""
    steps = path.split("/")
    if os.name == "nt" and re.search(r"[\\:]", path):
        return False
    return "\0" not in path and not any(step in ("", ".", "..") for step in steps)


def _metadata(value: Any) -> Mapping[str, Any]:
    """Validate frontmatter: JSON values of bounded depth and 64-bit numbers."""
    layer: Sequence[Any] = [_mapping(value)]
    for _ in range(MAX_DEPTH):
        layer = [inner for each in layer for inner in _inner(each)]
        if not layer:
            return _mapping(value)
    raise InvalidRecord("has frontmatter that is nested too deeply")


def _inner(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise InvalidRecord("has a number in its frontmatter that is too large")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRecord("has a number in its frontmatter that is not finite")
    return ()


def _lines_of(count: int) -> Callable[[Any], tuple[int, int]]:
    return _range_within(1, count, "has lines outside of its text")


def _span_of(length: int) -> Callable[[Any], tuple[int, int]]:
    return _range_within(0, length, "has a section outside of its text")


def _range_within(low: int, high: int, reason: str) -> Callable[[Any], tuple[int, int]]:
    """Return a function that validates a pair of ascending integers."""

    def check(value: Any) -> tuple[int, int]:
        first, last = map(_integer, _list(value))
        if not low <= first <= last <= high:
            raise InvalidRecord(reason)
        return first, last

    return check


def _id(value: Any) -> str:
    if not _HEX.fullmatch(_text(value)):
        raise InvalidRecord("has an id that is not hexadecimal")
    return str(value)


def _text(value: Any, limit: int | None = None) -> str:
    if not isinstance(value, str) or (limit is not None and len(value) > limit):
        raise InvalidRecord("has a text that is missing or too long")
    return value


def _texts(value: Any, limit: int | None = None) -> tuple[str, ...]:
    items = _list(value)
    if limit is not None and len(items) > limit:
        raise InvalidRecord("has a list that is too long")
    return tuple(map(_text, items))


def _integer(value: Any, low: int = 0, high: int = MAX_INTEGER) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRecord("has a number that is out of range")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRecord("has missing or invalid fields")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRecord("has missing or invalid fields")
    return value


def invalid(reason: str) -> StoreError:
    """Return the error for an archive that is damaged or was made to look like one."""
    return StoreError(f"The archive is invalid: {reason}", HINT)


def is_count(value: Any) -> bool:
    """Return True for a number of items."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40


def decode_keys(data: bytes, name: str) -> tuple[str, ...]:
    """Parse the digests or terms of a group of vectors."""
    try:
        keys = decode_json(data)
    except InvalidRecord as error:
        raise invalid(f"{name} {error}") from error
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise invalid(f"{name} is not a list of strings")
    return tuple(keys)


def decode_matrix(data: bytes, count: int, dimension: int, name: str) -> Matrix:
    """Return vectors from their bytes; every number must be finite."""
    if len(data) != 4 * count * dimension:
        raise invalid(f"the vectors of {name} do not have {dimension} numbers each")
    matrix = np.frombuffer(data, dtype="<f4").reshape(count, dimension)
    if not np.isfinite(matrix).all():
        raise invalid(f"the vectors of {name} have numbers that are not finite")
    return matrix.astype(np.float32, copy=False)


def decode_community(line: bytes) -> tuple[DocumentId, int]:
    """Parse the community of a document."""
    try:
        collection, path, number = decode_json(line)
    except (InvalidRecord, TypeError, ValueError) as error:
        raise invalid("a community cannot be parsed") from error
    if not isinstance(collection, str) or not isinstance(path, str) or not is_count(number):
        raise invalid("a community has invalid values")
    return DocumentId(collection, path), number
