"""Write the lexical index: add the passages of a commit, purge tombstones, rebuild the index from the tables.

tantivy ends each data file with a CRC-32 of what comes before, which it does not verify itself: `doctor` does.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import tantivy
from tantivy import Query

from marklight.engines.embedded import lexical_index
from marklight.engines.embedded.lexical_index import (
    DATA_FILE,
    MANAGED,
    MAX_JSON_BYTES,
    META,
    LexicalIndex,
    OutdatedAnalyzer,
    Stamp,
    UnusableIndex,
    check_safe,
    count_deleted,
    schema,
    table_state,
    tantivy_errors,
)
from marklight.engines.embedded.session import explain
from marklight.engines.relational.documents import passages_to_index
from marklight.errors import StoreError
from marklight.lexical import analyzer_fingerprint, entry_terms, joined, passage_terms
from marklight.platforms import check_address_space
from marklight.private_files import (
    FILE_MODE,
    make_private_folder,
    open_private,
    read_private,
    remove,
    remove_foreign,
    write_private,
)

if TYPE_CHECKING:
    from marklight.engines.embedded.engine import Parts
    from marklight.engines.embedded.session import SqliteSession
    from marklight.engines.relational.write import InsertedEntry

HEAP_BYTES = 64_000_000
"""Memory of the one writing thread: a second thread gains nothing while Python produces the terms."""
REBUILT = (
    "The lexical index was rebuilt, because this version of Marklight analyzes text differently;"
    " that happens once after an update"
)
_BUILD = re.compile(r"[0-9a-f]{16}")
"""Names of the folders of builds."""
_FOOTER_MAGIC = 1337
_CHECKSUM_BLOCK = 1 << 20
"""Bytes of a data file that are read at once."""


def prepare(index: LexicalIndex, session: SqliteSession) -> None:
    """Open the writer of the index; rebuild the index first if it does not match the tables."""
    if index.writer is not None:
        return
    check_address_space(StoreError)
    for last_try in (False, True):
        state = table_state(session)
        try:
            index.require_match(state)
            with tantivy_errors():
                index.writer = _open_writer(index.folder / state.folder)
                return
        except UnusableIndex as reason:
            if last_try:
                raise explain(reason, index.folder) from reason
            rebuild(index, session, reason)


def _open_writer(folder: Path) -> tantivy.IndexWriter:
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


def add(
    index: LexicalIndex, session: SqliteSession, inserted: Sequence[InsertedEntry]
) -> Callable[[], None]:
    """Begin to commit new passages and to purge old tombstones; return a function that waits for it and records it in the tables."""
    assert index.writer is not None
    before = time.time() - lexical_index.GRACE_SECONDS
    state, commit = table_state(session), secrets.token_hex(8)
    try:
        with tantivy_errors():
            stamp = index.stamp(state)
            index.write_stamp(state.folder, stamp._replace(commits=[state.commit, commit]))
            for item in inserted:
                terms = item.entry.terms or entry_terms(item.entry)
                for row, fields in zip(item.chunk_rows, terms, strict=True):
                    index.writer.add_document(_document(row, item.document, fields))
            tombstones = session.all("SELECT chunk FROM tombstones WHERE since < ?", [before])
            if rows := [row for (row,) in tombstones]:
                # By query: `delete_documents_by_term` takes any number for a signed one and finds nothing.
                deleted = Query.term_set_query(schema(), "row", rows)
                index.writer.delete_documents_by_query(deleted)
    except UnusableIndex as error:
        index.abandon_writer()
        raise explain(error, index.folder) from error
    # Meanwhile the tables are written: tantivy waits for the disk most of the time.
    index.commit = Future[int]()
    Thread(target=_run, args=(index.writer.commit, index.commit)).start()

    def record() -> None:
        try:
            with tantivy_errors():
                assert index.commit is not None
                opstamp = index.commit.result()
                make_private(index.folder / state.folder)
        except UnusableIndex as error:
            index.abandon_writer()
            raise explain(error, index.folder) from error
        session.run("DELETE FROM tombstones WHERE since < ?", [before])
        session.run("UPDATE state SET opstamp = ?, lexical_commit = ?", [opstamp, commit])

    return record


def _run(function: Callable[[], int], result: Future[int]) -> None:
    try:
        result.set_result(function())
    except BaseException as error:  # a panic in Rust is no subclass of Exception
        result.set_exception(error)


def finish(index: LexicalIndex, session: SqliteSession) -> None:
    """Wait for merges and release tantivy's own lock."""
    writer, index.writer = index.writer, None
    if writer is not None:
        # Everything is committed: a merge that fails, on a full disk for one, loses nothing.
        with suppress(UnusableIndex), tantivy_errors():
            writer.wait_merging_threads()
            make_private(index.folder / table_state(session).folder)


def rebuild(
    index: LexicalIndex, session: SqliteSession, reason: UnusableIndex | None = None
) -> None:
    """Build the index from the tables in a new folder, then replace the old one; the writer lock must be held.

    A concurrent reader, and a process after a crash, has the old index or the new one.
    """
    index.abandon_writer()
    old, name = table_state(session).folder, secrets.token_hex(8)
    folder, commit = index.folder / name, secrets.token_hex(8)
    try:
        with tantivy_errors():
            remove_foreign(index.folder, stat.S_ISDIR)
            sweep(index, session)
            make_private_folder(folder)
            opstamp = _fill(tantivy.Index(schema(), path=str(folder)), session)
            make_private(folder)
            stamp = Stamp(analyzer_fingerprint(), count_deleted(session), [commit])
            index.write_stamp(name, stamp)
    except UnusableIndex as error:
        with suppress(OSError):
            remove(folder)
        raise explain(error, index.folder) from error
    with session.transaction():
        session.run("DELETE FROM tombstones")
        session.run(
            "UPDATE state SET lexical = ?, lexical_commit = ?, opstamp = ?", [name, commit, opstamp]
        )
    index.forget()
    if isinstance(reason, OutdatedAnalyzer):
        index.notices.append(REBUILT)
    if _BUILD.fullmatch(old):
        with suppress(
            OSError
        ):  # Windows keeps files that another process has mapped; the next build deletes them
            remove(index.folder / old)


def rebuild_if_unlocked(parts: Parts, reason: UnusableIndex | None = None) -> None:
    """Rebuild the index if the writer lock is free, for a given reason, or if it cannot be opened or does not match.

    If another process writes, the snapshot works without the index, and the writer rebuilds it.
    """
    parts.lexical.forget()
    try:
        with parts.writer_lock.hold(0):
            session = parts.store.writer_session()
            state = table_state(session)
            try:
                if reason:
                    raise reason
                parts.lexical.require_match(state)
                parts.lexical.open(state, lambda: state)
            except UnusableIndex as mismatch:
                rebuild(parts.lexical, session, mismatch)
    except StoreError:
        return


def sweep(index: LexicalIndex, session: SqliteSession) -> int:
    """Delete the folders of builds that the tables do not name; return their number."""
    current, deleted = table_state(session).folder, 0
    for path in index.folder.glob("*"):
        if _BUILD.fullmatch(path.name) and path.name != current:
            with suppress(OSError):
                remove(path)
                deleted += 1
    return deleted


def build_in_memory(session: SqliteSession) -> tantivy.Index:
    """Build an index in memory, for a snapshot that cannot use the one on disk and cannot rebuild it now."""
    index = tantivy.Index(schema())
    _fill(index, session)
    index.config_reader("manual")
    index.reload()
    return index


def _fill(index: tantivy.Index, session: SqliteSession) -> int:
    """Add all passages of the tables; return the number of the commit."""
    writer = index.writer(heap_size=HEAP_BYTES, num_threads=1)
    for passage in stored_passages(session):
        writer.add_document(passage)
    opstamp = writer.commit()
    writer.wait_merging_threads()
    return int(opstamp)


def stored_passages(session: SqliteSession) -> Iterator[tantivy.Document]:
    """Yield the passages of the tables."""
    for row, document, passage, shared in passages_to_index(session):
        yield _document(row, document, joined(passage_terms(shared, passage)))


def _document(row: int, document: int, fields: Mapping[str, str]) -> tantivy.Document:
    passage = tantivy.Document()
    passage.add_unsigned("row", row)
    passage.add_unsigned("document", document)
    for field, terms in fields.items():
        passage.add_text(field, terms)
    return passage


def verify_files(folder: Path) -> None:
    """Raise UnusableIndex where a data file does not match its checksum, or the index has another schema."""
    check_safe(folder)
    for name in os.listdir(folder):
        if DATA_FILE.fullmatch(name) and not _matches_checksum(folder / name):
            raise UnusableIndex(f"{name} is damaged")
    if _description(folder) != _expected_description():
        raise UnusableIndex(f"{META} is damaged")


def _matches_checksum(path: Path) -> bool:
    """Compare the CRC-32 in the footer of a data file with its content: body, JSON, its length, a magic number."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open(open_private(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(-8, os.SEEK_END)
            length = int.from_bytes(file.read(4), "little")
            magic = int.from_bytes(file.read(4), "little")
            remaining = size - 8 - length
            file.seek(remaining)
            footer = json.loads(file.read(length))
            file.seek(0)
            crc = 0
            while remaining and (block := file.read(min(_CHECKSUM_BLOCK, remaining))):
                crc, remaining = zlib.crc32(block, crc), remaining - len(block)
        return magic == _FOOTER_MAGIC and bool(footer["crc"] == crc) and not remaining
    return False


def _description(folder: Path) -> Any:
    """Return the part of `meta.json` that all indexes of a schema share."""
    try:
        meta = json.loads(read_private(folder / META, MAX_JSON_BYTES))
        return meta["schema"], meta["index_settings"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnusableIndex(str(error)) from error


@cache
def _expected_description() -> Any:
    # Threads of tantivy may still write into the folder while it is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tantivy.Index(schema(), path=folder)
        return _description(Path(folder))
