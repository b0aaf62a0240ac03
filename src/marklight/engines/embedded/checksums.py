"""Checksums of stored rows: computed by a commit, verified before a result is shown and by `doctor`.

SQLite does not detect a flipped bit in its pages, so every passage, document and vector has a checksum of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.engines.embedded.session import SqliteSession, check_schema, connect
from marklight.errors import StoreError
from marklight.model import DocumentId
from marklight.private_files import is_plain_file

if TYPE_CHECKING:
    from marklight.model import Vector

_PASSAGE_COLUMNS = (
    "c.id, c.ordinal, c.digest, c.kind, c.parent, c.anchor, c.first_line, c.last_line, c.title, c.headings,"
    " c.merged, c.languages, c.code, c.text, c.boilerplate, c.levels"
)
"""The columns of a passage that its checksum covers, in the order of the table."""

_DOCUMENT_QUERIES = (
    "SELECT row, collection, path, digest, recipe, date, record, remarks, text FROM documents"
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
_REUSE_WAIT_SECONDS = 1.0
"""Time limit for waiting while another process locks the database of another index."""
_OWNER_COLUMNS = {"vectors": "digest", "term_vectors": "term"}
"""Column that identifies the owner of a vector, by table."""


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


def damaged_vectors(session: SqliteSession, table: str) -> list[int]:
    """Return the rows of vectors that do not match their checksum or have the wrong length."""
    column = _OWNER_COLUMNS[table]
    with _undecodable_text(session):
        return [
            row
            for row, name, vector, stored, dimension in session.each(
                f"SELECT v.row, v.{column}, v.vector, v.checksum, m.dimension FROM {table} v"
                " JOIN models m ON m.row = v.model"
            )
            if not isinstance(vector, bytes)
            or len(vector) != 4 * dimension
            or vector_checksum(session.key, str(name), vector) != stored
        ]


def _document_checksums(
    session: SqliteSession, documents: Sequence[int] | None = None
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


def stored_vectors(database: Path, model: str, digests: Sequence[str]) -> dict[str, Vector]:
    """Return vectors from the database of another index by text digest; those that are missing or damaged are left out."""
    import numpy as np

    if not is_plain_file(database):
        return {}
    try:
        session = connect(database, wait_seconds=_REUSE_WAIT_SECONDS)
    except StoreError:
        return {}
    try:
        check_schema(session)
        key = str(session.value("SELECT library FROM state")).encode()
        rows = session.all(
            "SELECT v.digest, v.vector, v.checksum FROM json_each(?) d CROSS JOIN vectors v ON v.digest = d.value"
            " JOIN models m ON m.row = v.model AND m.name = ? AND length(v.vector) = 4 * m.dimension",
            [list(digests), model],
        )
    except StoreError:
        return {}
    finally:
        session.close()
    return {
        digest: np.frombuffer(vector, dtype="<f4")
        for digest, vector, checksum in rows
        if vector_checksum(key, digest, vector) == checksum
    }
