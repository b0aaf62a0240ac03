"""Stored rows: compression of text, and checksums that a commit computes and that searches and `doctor` verify.

A document is stored as blocks that are deflated one by one, a passage as its place in the document. A search inflates the
blocks that contain a passage, one or two of 2,048 characters, in some 10 µs each. SQL reads packed columns with functions.

SQLite does not detect a flipped bit in its pages, so every passage, document and vector has a checksum of its own.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from io import BytesIO
from itertools import pairwise
from struct import Struct, error
from struct import unpack as unpack_numbers
from typing import TYPE_CHECKING, Any, BinaryIO

from marklight.model import DocumentId

if TYPE_CHECKING:
    from marklight.engines.embedded.session import SqliteSession
    from marklight.model import Chunk
    from marklight.text.lines import DocumentLines

BLOCK_CHARS = 2048
"""Characters of a block: FastAPI's manual takes .45 of its size in the database. With 4,096 it is .43, and reading takes twice as long."""
_RAW_DEFLATE = -zlib.MAX_WBITS
_CACHED_BLOCKS = 512
"""Inflated blocks that are kept, some 2 MB: searches read passages of the same documents. With 128, a search of FastAPI's manual
inflates 14 blocks instead of 7, 7 µs each."""
_NUMBER = Struct("<I")
_SPAN = Struct("<II")
"""First character and length of a passage."""
_DAMAGED = (ValueError, TypeError, OverflowError, error, zlib.error)
"""Errors of reading a packed text that is damaged."""

_PASSAGE_COLUMNS = (
    "c.id, c.ordinal, c.digest, c.kind, c.parent, c.anchor, c.first_line, c.last_line, c.title, c.headings,"
    " c.merged, c.languages, c.code, PASSAGE_TEXT, c.boilerplate, c.levels"
)
"""The columns of a passage that its checksum covers, in the order of the table."""

LARGE_BYTES = 1_000_000
"""Size of a packed text that is read whole for its second passage in a snapshot: SQLite reaches a place in it page by page."""

_DOCUMENT_QUERIES = (
    "SELECT row, collection, path, digest, recipe, date, unpacked(record), remarks, unpacked(text) FROM documents"
    " LEFT JOIN contents ON document = row WHERE {row} ORDER BY row",
    "SELECT document, id, headings, anchor, first_line, last_line, span_from, span_to FROM sections"
    " WHERE {document} ORDER BY document, row",
    "SELECT document, type, target, fragment, text, line, keys FROM links WHERE {document} ORDER BY document, row",
    "SELECT l.document, k.key FROM links l JOIN link_keys k ON k.link = l.row WHERE {l.document}"
    " ORDER BY l.document, l.row, k.key",
    "SELECT document, key, strength FROM names WHERE {document} ORDER BY document, row",
    "SELECT document, key, value FROM metadata WHERE {document} ORDER BY document, key, value",
    "SELECT c.document, c.ordinal, g.language FROM chunks c JOIN languages g ON g.chunk = c.row"
    " WHERE {c.document} ORDER BY c.document, c.ordinal, g.language",
)
"""Queries for the rows that the checksum of a document covers; the first column is the row of the document."""


def pack(text: str) -> bytes:
    """Return a text as the number of its blocks, their ends, and the deflated blocks."""
    parts = (text[start : start + BLOCK_CHARS] for start in range(0, len(text), BLOCK_CHARS))
    blocks = [zlib.compress(part.encode(), wbits=_RAW_DEFLATE) for part in parts]
    ends, end = [], 0
    for block in blocks:
        end += len(block)
        ends.append(_NUMBER.pack(end))
    return b"".join((_NUMBER.pack(len(blocks)), *ends, *blocks))


@lru_cache(maxsize=_CACHED_BLOCKS)
def _inflate(block: bytes) -> str:
    return zlib.decompress(block, _RAW_DEFLATE).decode()


def unpack(packed: bytes) -> str:
    """Return a packed text; an empty text, which matches no checksum, where it is damaged."""
    try:
        (count,) = _NUMBER.unpack_from(packed)
        return "".join(_blocks(BytesIO(packed), 0, count))
    except _DAMAGED:
        return ""


def _blocks(packed: BinaryIO | sqlite3.Blob, first: int, last: int) -> Iterator[str]:
    """Yield some blocks of a packed text, which is read no further."""
    (count,) = _NUMBER.unpack(packed.read(_NUMBER.size))
    data = _NUMBER.size * (1 + count)
    begin = max(first, 1)  # the end of a block is the start of the next one
    packed.seek(_NUMBER.size * begin)
    ends = unpack_numbers(f"<{1 + last - begin}I", packed.read(_NUMBER.size * (1 + last - begin)))
    for start, end in pairwise(ends if first else (0, *ends)):
        packed.seek(data + start)
        yield _inflate(packed.read(end - start))


def pack_passage(chunk: Chunk, lines: DocumentLines) -> str | bytes:
    """Return the place of a passage in its document; its text if the document has another one, as in a nested list."""
    start = lines.text.find(
        chunk.text, lines.start(chunk.lines[0]), lines.start(chunk.lines[1] + 1)
    )
    return chunk.text if start < 0 else _SPAN.pack(start, len(chunk.text))


def unpack_passage(span: bytes, packed: BinaryIO | sqlite3.Blob) -> str:
    """Return the text of a passage from its place and the packed text of its document; an empty text where it is damaged."""
    try:
        start, length = _SPAN.unpack(span)
        first, last = start // BLOCK_CHARS, -(-(start + length) // BLOCK_CHARS)
        text = "".join(_blocks(packed, first, last))
    except _DAMAGED:
        return ""
    start -= first * BLOCK_CHARS
    return text[start : start + length]


def register(connection: sqlite3.Connection) -> Callable[[], None]:
    """Define the SQL functions that read packed columns; return a function to call at the end of a snapshot."""
    # The document that was read last, and its packed text if it is large.
    last, text = 0, b""

    def forget() -> None:
        nonlocal last, text
        last, text = 0, b""

    def passage_text(span: bytes, document: int) -> str:
        nonlocal last, text
        if document == last and text:
            return unpack_passage(span, BytesIO(text))
        # Not as a value of SQL: SQLite would read and copy the whole document for each of its passages.
        try:
            with connection.blobopen("contents", "text", document, readonly=True) as packed:
                is_large = document == last and len(packed) >= LARGE_BYTES
                last, text = document, packed.read() if is_large else b""
                packed.seek(0)
                return unpack_passage(span, packed)
        except sqlite3.Error:
            return ""

    connection.create_function("unpack", 1, unpack, deterministic=True)
    connection.create_function("passage_text", 2, passage_text)
    return forget


def _checksum(key: bytes, data: bytes) -> int:
    """Return a keyed 63-bit checksum, the largest non-negative integer of an SQLite column."""
    return int.from_bytes(blake2b(data, key=key, digest_size=8).digest(), "big") >> 1


def passage_checksum(key: bytes, document_digest: str, recipe: str, columns: Sequence[Any]) -> int:
    """Return the checksum of a passage: of its row, and of the digest and recipe of its document."""
    text = "\x1f".join(map(str, (document_digest, recipe, *columns)))
    return _checksum(key, text.encode("utf-8", "surrogatepass"))


def vector_checksum(key: bytes, name: str, vector: bytes) -> int:
    """Return the checksum of a stored vector and of the digest or the term that it belongs to."""
    return _checksum(key, name.encode("utf-8", "surrogatepass") + b"\x1f" + vector)


def store_checksums(session: SqliteSession, documents: Sequence[int]) -> None:
    """Store the checksums of documents whose rows are all inserted."""
    sums = _document_checksums(session, documents)
    session.many(
        "UPDATE documents SET checksum = ? WHERE row = ?", ((value, row) for row, value in sums)
    )


def damaged_passages(session: SqliteSession, chunks: Sequence[str]) -> set[DocumentId]:
    """Return the documents of which one of these passages does not match its checksum."""
    rows = session.all(
        f"SELECT d.collection, d.path, c.checksum, d.digest, d.recipe, {_PASSAGE_COLUMNS} FROM json_each(?) j"
        " CROSS JOIN chunks c ON c.id = j.value CROSS JOIN documents d ON d.row = c.document",
        [list(chunks)],
    )
    return {
        DocumentId(collection, path)
        for collection, path, stored, text_digest, recipe, *columns in rows
        if stored != passage_checksum(session.key, text_digest, recipe, columns)
    }


def damaged_documents(session: SqliteSession, documents: Sequence[int] | None = None) -> list[int]:
    """Return the rows of the documents, of all or of some, of which any stored part does not match its checksum."""
    condition, values = "true", list[Any]()
    if documents is not None:
        condition, values = "d.row IN (SELECT value FROM json_each(?))", [list(documents)]
    with _undecodable_text(session):
        stored: dict[int, int] = dict(
            session.all(f"SELECT d.row, d.checksum FROM documents d WHERE {condition}", values)
        )
        current = dict(_document_checksums(session, documents))
        damaged = {row for row, value in stored.items() if current.get(row) != value}
        for document, value, text_digest, recipe, *columns in session.each(
            f"SELECT c.document, c.checksum, d.digest, d.recipe, {_PASSAGE_COLUMNS} FROM documents d"
            f" CROSS JOIN chunks c ON c.document = d.row WHERE {condition}",
            values,
        ):
            if value != passage_checksum(session.key, text_digest, recipe, columns):
                damaged.add(document)
    return sorted(damaged)


@contextmanager
def _undecodable_text(session: SqliteSession) -> Iterator[None]:
    """Read damaged text that is no longer UTF-8 with replacement characters; it matches no checksum."""
    default = session.connection.text_factory
    session.connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        yield
    finally:
        session.connection.text_factory = default


def damaged_term_vectors(session: SqliteSession) -> list[tuple[int, str]]:
    """Return model and term of the term vectors that do not match their checksum or have the wrong length."""
    with _undecodable_text(session):
        return [
            (model, term)
            for model, term, vector, stored, dimension in session.each(
                "SELECT v.model, v.term, v.vector, v.checksum, m.dimension FROM term_vectors v"
                " JOIN models m ON m.row = v.model"
            )
            if not isinstance(vector, bytes)
            or len(vector) != dimension
            or vector_checksum(session.key, str(term), vector) != stored
        ]


def _document_checksums(
    session: SqliteSession, documents: Sequence[int] | None
) -> list[tuple[int, int]]:
    """Return the checksum of each document, of all or of some, from the rows as they are stored."""
    hashers: dict[int, Any] = {}
    values = [] if documents is None else [list(documents)]
    for query in _DOCUMENT_QUERIES:
        for column in ("l.document", "c.document", "document", "row"):
            condition = (
                "true" if documents is None else f"{column} IN (SELECT value FROM json_each(?))"
            )
            query = query.replace(f"{{{column}}}", condition)
        for document, *columns in session.each(query, values):
            hasher = hashers.get(document)
            if hasher is None:
                hasher = hashers[document] = blake2b(key=session.key, digest_size=8)
            text = "\x1f".join(map(str, columns)) + "\x1e"
            hasher.update(text.encode("utf-8", "surrogatepass"))
    return [
        (document, int.from_bytes(hasher.digest(), "big") >> 1)
        for document, hasher in hashers.items()
    ]
