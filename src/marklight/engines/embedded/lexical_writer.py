"""Write the lexical index: turn passages into documents of tantivy, commit them, purge tombstones."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import tantivy
from tantivy import Query

from marklight.engines.embedded import lexical_index
from marklight.engines.embedded.lexical_index import (
    DATA_FILE,
    MANAGED,
    META,
    LexicalIndex,
    UnusableIndex,
    check_safe,
    new_commit,
    schema,
    tantivy_errors,
)
from marklight.engines.embedded.sqlite_errors import explain
from marklight.engines.lexical import NO_TERMS, document_terms, passage_terms, shared_terms
from marklight.engines.relational.records import CHUNK, chunk
from marklight.private_files import FILE_MODE, write_private

if TYPE_CHECKING:
    from marklight.engines.embedded.session import SqliteSession
    from marklight.engines.relational.write import InsertedEntry

HEAP_BYTES = 64_000_000
"""Memory of the one writing thread: a second thread gains nothing while Python produces the terms."""


def open_writer(folder: Path) -> tantivy.IndexWriter:
    """Open the index for writing; first rewrite the list by which tantivy deletes files from the directory listing."""
    check_safe(folder)
    names = [name for name in os.listdir(folder) if name == META or DATA_FILE.fullmatch(name)]
    write_private(folder / MANAGED, json.dumps(names).encode())
    return tantivy.Index.open(str(folder)).writer(heap_size=HEAP_BYTES, num_threads=1)


def make_private(folder: Path) -> None:
    """Let this user alone read the files of an index, which tantivy creates by the umask."""
    if os.name == "nt":
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # deleted by a merge
                if entry.stat(follow_symlinks=False).st_mode & 0o077 and not entry.is_symlink():
                    os.chmod(entry.path, FILE_MODE)


def prepare(index: LexicalIndex, session: SqliteSession) -> None:
    """Bring the index up to date with the tables and open its writer."""
    if index.writer is not None:
        return
    from marklight.engines.embedded import lexical_repair

    for force in (False, True):
        lexical_repair.catch_up(index, session, rebuild=force)
        try:
            with tantivy_errors():
                index.writer = open_writer(index.folder)
                return
        except UnusableIndex as error:
            if force:
                raise explain(error, index.folder) from error


def add(index: LexicalIndex, session: SqliteSession, inserted: Sequence[InsertedEntry]) -> None:
    """Commit new passages, purge old tombstones, and record the commit in the tables."""
    assert index.writer is not None
    before = time.time() - lexical_index.GRACE_SECONDS
    commit = new_commit()
    try:
        with tantivy_errors():
            index.write_stamp(index.stamp().followed_by(commit))
            for passage in inserted_passages(inserted):
                index.writer.add_document(passage)
            tombstones = session.all("SELECT chunk FROM tombstones WHERE since < ?", [before])
            delete_passages(index.writer, [row for (row,) in tombstones])
            opstamp = index.writer.commit()
            make_private(index.folder)
    except UnusableIndex as error:
        index.abandon_writer()
        raise explain(error, index.folder) from error
    session.run("DELETE FROM tombstones WHERE since < ?", [before])
    session.run("UPDATE state SET opstamp = ?, lexical_commit = ?", [opstamp, commit])


def finish(index: LexicalIndex) -> None:
    """Wait for merges and release tantivy's own lock."""
    writer, index.writer = index.writer, None
    if writer is not None:
        # Everything is committed: a merge that fails, on a full disk for one, loses nothing.
        with suppress(UnusableIndex), tantivy_errors():
            writer.wait_merging_threads()
            make_private(index.folder)


def inserted_passages(inserted: Iterable[InsertedEntry]) -> Iterator[tantivy.Document]:
    """Yield the passages of a commit."""
    for item in inserted:
        shared = document_terms(item.entry.document)
        for (row, *_, checksum), passage in zip(item.passages, item.entry.chunks, strict=True):
            yield _document(row, checksum, item.document, passage_terms(shared, passage))


def stored_passages(
    session: SqliteSession, rows: list[int] | None = None
) -> Iterator[tantivy.Document]:
    """Yield the passages of the tables: all, or those with these row numbers."""
    last: int = -1
    shared = NO_TERMS
    condition = "WHERE c.row IN (SELECT value FROM json_each(?))" if rows is not None else ""
    for row, checksum, document, record, *columns in session.each(
        f"SELECT c.row, c.checksum, c.document, t.record, {CHUNK} FROM chunks c"
        " JOIN documents d ON d.row = c.document JOIN contents t ON t.document = c.document"
        f" {condition} ORDER BY c.row",
        [] if rows is None else [rows],
    ):
        if document != last:
            last, shared = document, shared_terms(json.loads(record))
        yield _document(row, checksum, document, passage_terms(shared, chunk(tuple(columns))))


def _document(
    row: int, checksum: int, document: int, fields: Mapping[str, Sequence[str]]
) -> tantivy.Document:
    passage = tantivy.Document()
    passage.add_unsigned("row", row)
    passage.add_unsigned("checksum", checksum)
    passage.add_unsigned("document", document)
    for field, terms in fields.items():
        if terms:
            passage.add_text(field, " ".join(terms))
    return passage


def delete_passages(writer: tantivy.IndexWriter, rows: Sequence[int]) -> None:
    """Delete passages with the next commit."""
    if rows:
        # By query: `delete_documents_by_term` takes any number for a signed one and finds nothing.
        writer.delete_documents_by_query(Query.term_set_query(schema(), "row", rows))
