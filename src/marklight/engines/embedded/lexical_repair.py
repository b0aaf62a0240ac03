"""Repair the lexical index from the tables: catch up what is missing, compact it, or rebuild it.

tantivy ends each data file with a CRC-32 of what comes before, which it does not verify itself: `doctor` does.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tantivy

from marklight.engines.embedded.lexical_index import (
    DATA_FILE,
    MAX_JSON_BYTES,
    META,
    LexicalIndex,
    OutdatedAnalyzer,
    Stamp,
    UnusableIndex,
    check_safe,
    count_deleted,
    new_commit,
    rows_at,
    schema,
    tantivy_errors,
)
from marklight.engines.embedded.lexical_writer import (
    HEAP_BYTES,
    delete_passages,
    make_private,
    open_writer,
    stored_passages,
)
from marklight.engines.embedded.session import SqliteSession
from marklight.engines.embedded.sqlite_errors import explain
from marklight.engines.lexical import analyzer_fingerprint
from marklight.errors import StoreError
from marklight.private_files import FOLDER_MODE, open_private, read_private, remove

if TYPE_CHECKING:
    from marklight.engines.embedded.engine import Parts

REBUILT = (
    "The lexical index was rebuilt, because this version of Marklight analyzes text differently;"
    " that happens once after an update"
)
_DRAFT = re.compile(r"words-(new|old)-[0-9a-f]{8}")
"""Names of folders that a killed rebuild leaves."""
_FOOTER_MAGIC = 1337
_CHECKSUM_BLOCK = 1 << 20
"""Bytes of a data file that are read at once."""


def catch_up(
    index: LexicalIndex,
    session: SqliteSession,
    compare: bool = False,
    rebuild: bool = False,
    verify: bool = False,
) -> str:
    """Make the index equal to the tables, and return a finding; empty if nothing was wrong.

    With `compare`, even where its commit is the expected one; with `verify`, after all its files are verified by their
    checksums; with `rebuild`, in any case from the start. The writer lock must be held.
    """
    library, expected, commit = session.all("SELECT library, opstamp, lexical_commit FROM state")[0]
    try:
        if rebuild:
            raise UnusableIndex("it could not be searched")
        stamp = index.stamp_of(library)
        agrees = index.opstamp(library) == expected and stamp.commits[-1:] == [commit]
        if agrees and not compare:
            return ""
        with tantivy_errors():
            if verify:
                _verify_files(index.folder)
            if stamp.died > count_deleted(session):
                raise UnusableIndex("it is newer than the database")
            if not agrees:
                # Before anything changes: from then on it belongs to no history but this one.
                index.write_stamp(stamp.at(commit).followed_by(new_commit()))
            added, deleted = _synchronize(index.folder, session)
        if not added and not deleted and agrees:
            return ""
        finding = (
            f"The lexical index was out of date: {added} passages were added, {deleted} deleted"
            if added or deleted
            else ""
        )
    except UnusableIndex as reason:
        try:
            with tantivy_errors():
                _rebuild(index, session, library, commit)
        except UnusableIndex as error:
            raise explain(error, index.folder) from error
        finding = f"The lexical index was rebuilt from the database ({reason})"
        if isinstance(reason, OutdatedAnalyzer):
            index.notices.append(REBUILT)
    index.forget()
    _record_commit(index, session)
    return finding


def catch_up_after_crash(parts: Parts) -> bool:
    """Catch up an index that is ahead of the newest tables too, if the writer lock is free; return true if that was done.

    That is so after a crash, and where an older copy of the database was restored.
    """
    if parts.writer_lock.held:
        return False
    try:
        with parts.writer_lock.hold(0):
            session = parts.store.writer_session()
            newest = session.value("SELECT lexical_commit FROM state")
            if parts.lexical.stamp().commits[-1:] == [newest]:
                return False  # only the snapshot is older
            parts.lexical.forget()
            parts.lexical.abandon_writer()
            catch_up(parts.lexical, session, compare=True)
            return True
    except StoreError:
        return False


def repair_if_unlocked(parts: Parts, rebuild: bool = False) -> None:
    """Repair the index if the writer lock is free; else the writer repairs it, and the snapshot works without it."""
    parts.lexical.forget()
    try:
        with parts.writer_lock.hold(0):
            parts.lexical.abandon_writer()
            session = parts.store.writer_session()
            catch_up(parts.lexical, session, compare=True, rebuild=rebuild)
    except StoreError:
        return


def _record_commit(index: LexicalIndex, session: SqliteSession) -> None:
    """Store in the tables which commit of the index belongs to them."""
    library = session.value("SELECT library FROM state")
    session.run(
        "UPDATE state SET opstamp = ?, lexical_commit = ?",
        [index.opstamp(library), index.stamp().commits[-1]],
    )


def compact(index: LexicalIndex, session: SqliteSession) -> None:
    """Rebuild the index without tombstones, in one commit of its own; the writer lock must be held.

    A concurrent reader, and a process after a crash, has the old index or the new one.
    """
    stamp = (
        index.stamp()
        ._replace(recipe=analyzer_fingerprint(), died=count_deleted(session), whole=False)
        .followed_by(new_commit())
    )
    try:
        with tantivy_errors():
            index.write_stamp(stamp)
            writer = open_writer(index.folder)
            writer.delete_all_documents()
            for passage in stored_passages(session):
                writer.add_document(passage)
            writer.commit()
            writer.wait_merging_threads()
            make_private(index.folder)
            with session.transaction():
                _record_commit(index, session)
                session.run("DELETE FROM tombstones")
            index.write_stamp(stamp._replace(whole=True))
    except UnusableIndex as error:
        raise explain(error, index.folder) from error
    finally:
        index.forget()


def _synchronize(folder: Path, session: SqliteSession) -> tuple[int, int]:
    """Compare index and tables by row number and checksum; add missing passages and delete extra ones."""
    indexed = _indexed_passages(folder)
    stored: dict[int, int] = dict(session.all("SELECT row, checksum FROM chunks"))
    tombstones = {row for (row,) in session.each("SELECT chunk FROM tombstones")}
    rows = {row for row, _ in indexed}
    if len(rows) != len(indexed):
        raise UnusableIndex("it contains passages twice")
    if any(row in stored and stored[row] != checksum for row, checksum in indexed):
        raise UnusableIndex("it belongs to another history of the database")
    extra, missing = rows - stored.keys() - tombstones, stored.keys() - rows
    if extra or missing:
        writer = open_writer(folder)
        delete_passages(writer, list(extra))
        for passage in stored_passages(session, list(missing)):
            writer.add_document(passage)
        writer.commit()
        writer.wait_merging_threads()
        make_private(folder)
    return len(missing), len(extra)


def _indexed_passages(folder: Path) -> list[tuple[int, int]]:
    """Return the row number and the checksum of every passage in the index."""
    check_safe(folder)
    index = tantivy.Index.open(str(folder))
    index.config_reader("manual")
    index.reload()
    searcher = index.searcher()
    if not searcher.num_docs:
        return []
    hits = searcher.search(tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
    addresses = [address for _, address in hits]
    checksums = searcher.fast_field_values("checksum", addresses)
    return list(
        zip(rows_at(searcher, addresses), [int(sum or 0) for sum in checksums], strict=True)
    )


def _rebuild(index: LexicalIndex, session: SqliteSession, library: str, commit: str) -> None:
    """Build the index of a commit in a folder beside the old one, which is replaced when the new one is complete."""
    folder = index.folder
    fresh, old = (
        folder.with_name(f"words-{part}-{secrets.token_hex(4)}") for part in ("new", "old")
    )
    sweep(folder)
    try:
        fresh.mkdir(FOLDER_MODE)
        _fill(tantivy.Index(schema(), path=str(fresh)), session)
        make_private(fresh)
        index.write_stamp(
            Stamp(
                library,
                analyzer_fingerprint(),
                count_deleted(session),
                True,
                [commit or new_commit()],
            ),
            fresh,
        )
        if os.path.lexists(folder):
            os.rename(folder, old)
        os.rename(fresh, folder)
    finally:
        remove(fresh)
        remove(old)


def sweep(folder: Path) -> int:
    """Delete what a killed rebuild left; return the number of folders."""
    leftovers = [path for path in folder.parent.glob("words-*-*") if _DRAFT.fullmatch(path.name)]
    for path in leftovers:
        remove(path)
    return sum(not os.path.lexists(path) for path in leftovers)


def build_in_memory(session: SqliteSession) -> tantivy.Index:
    """Build an index in memory, for a snapshot that cannot use the one on disk and cannot repair it now."""
    index = tantivy.Index(schema())
    _fill(index, session)
    index.config_reader("manual")
    index.reload()
    return index


def _fill(index: tantivy.Index, session: SqliteSession) -> None:
    writer = index.writer(heap_size=HEAP_BYTES, num_threads=1)
    for passage in stored_passages(session):
        writer.add_document(passage)
    writer.commit()
    writer.wait_merging_threads()


def _verify_files(folder: Path) -> None:
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
