"""Derived parts made right from the tables: caught up where that is enough, else built anew."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.engines.embedded.lexical_files import (
    HEAP_BYTES,
    Outdated,
    Unfit,
    demand_safe,
    demand_sound,
    make_private,
    open_writer,
    sound,
)
from marklight.engines.embedded.lexical_index import Stamp, died, new_commit
from marklight.engines.embedded.passages import (
    checksums_at,
    delete,
    rows_at,
    schema,
    stored_passages,
)
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.sqlite_errors import explain
from marklight.engines.lexical import analyzer_fingerprint
from marklight.private_files import FOLDER_MODE, remove

if TYPE_CHECKING:
    import tantivy

    from marklight.engines.embedded.lexical_index import LexicalIndex

RENEWED = (
    "the index of words was built anew, as happens once after an update that finds words better"
)
_OURS = re.compile(r"words-(new|old)-[0-9a-f]{8}")


def words(
    index: LexicalIndex,
    session: Session,
    look: bool = False,
    anew: bool = False,
    verify: bool = False,
) -> str:
    """Make the index equal to the tables, and return what was done, nothing if all was well.

    With `look`, even where its commit is the expected one; with `verify`, after all its files are verified by their
    checksums; with `anew`, whatever it holds. The writer lock must be held.
    """
    library, expected, commit = session.all("SELECT library, opstamp, lexical_commit FROM state")[0]
    try:
        if anew:
            raise Unfit("it could not be searched")
        stamp = index.stamp_of(library)
        agrees = index.opstamp(library) == expected and stamp.commits[-1:] == [commit]
        if agrees and not look:
            return ""
        with sound():
            if verify:
                demand_sound(index.folder, schema())
            if stamp.died > died(session):
                raise Unfit("newer than the tables")
            if not agrees:
                # Before anything changes: from then on it is of no history but this one.
                index.put_stamp(stamp.at(commit).followed_by(new_commit()))
            added, deleted = _catch_up(index.folder, session)
        if not added and not deleted and agrees:
            return ""
        done = (
            f"The index of words was caught up: {added} passages added, {deleted} taken out"
            if added or deleted
            else ""
        )
    except Unfit as reason:
        try:
            with sound():
                _rebuild(index, session, library, commit)
        except Unfit as error:
            raise explain(error, index.folder) from error
        done = f"The index of words was built anew from the stored text ({reason})"
        if isinstance(reason, Outdated):
            index.news.append(RENEWED)
    index.forget()
    _agree(index, session)
    return done


def _agree(index: LexicalIndex, session: Session) -> None:
    """Note in the tables which commit of the index belongs to them."""
    library = session.value("SELECT library FROM state")
    session.run(
        "UPDATE state SET opstamp = ?, lexical_commit = ?",
        [index.opstamp(library), index.stamp().commits[-1]],
    )


def renew(index: LexicalIndex, session: Session) -> None:
    """Build the index anew without what died; the writer's place must be held.

    In one commit of its own, so that whoever looks or dies meanwhile has the old or the new.
    """
    before = index.stamp()
    stamp = before._replace(
        recipe=analyzer_fingerprint(), died=died(session), whole=False
    ).followed_by(new_commit())
    try:
        with sound():
            index.put_stamp(stamp)
            writer = open_writer(index.folder)
            writer.delete_all_documents()
            for passage in stored_passages(session):
                writer.add_document(passage)
            writer.commit()
            writer.wait_merging_threads()
            make_private(index.folder)
            with session.transaction():
                _agree(index, session)
                session.run("DELETE FROM dead")
            index.put_stamp(stamp._replace(whole=True))
    except Unfit as error:
        raise explain(error, index.folder) from error
    finally:
        index.forget()


def _catch_up(folder: Path, session: Session) -> tuple[int, int]:
    """Compare the passages of both sides by row and checksum: the index may be ahead, behind or of another history."""
    held = _held(folder)
    known: dict[int, int] = dict(session.all("SELECT row, checksum FROM chunks"))
    spared = {row for (row,) in session.each("SELECT chunk FROM dead")}
    rows = [row for row, _ in held]
    if len(rows) != len(set(rows)):
        raise Unfit("passages stand in it twice")
    if any(row in known and known[row] != sum for row, sum in held):
        raise Unfit("of another history than the tables")
    extra, missing = set(rows) - known.keys() - spared, known.keys() - set(rows)
    if extra or missing:
        writer = open_writer(folder)
        delete(writer, list(extra))
        for passage in stored_passages(session, json_list(missing)):
            writer.add_document(passage)
        writer.commit()
        writer.wait_merging_threads()
        make_private(folder)
    return len(missing), len(extra)


def _held(folder: Path) -> list[tuple[int, int]]:
    """Return the row and the checksum of every passage that the index holds."""
    import tantivy

    demand_safe(folder)
    index = tantivy.Index.open(str(folder))
    index.config_reader("manual")
    index.reload()
    searcher = index.searcher()
    if not searcher.num_docs:
        return []
    hits = searcher.search(tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
    places = [address for _, address in hits]
    return list(zip(rows_at(searcher, places), checksums_at(searcher, places), strict=True))


def _rebuild(words: LexicalIndex, session: Session, library: str, commit: str) -> None:
    """Build the index of a commit in a folder beside the old one, which is replaced when the new one is whole."""
    import tantivy

    folder = words.folder
    fresh, old = (
        folder.with_name(f"words-{part}-{secrets.token_hex(4)}") for part in ("new", "old")
    )
    sweep(folder)
    try:
        fresh.mkdir(FOLDER_MODE)
        _fill(tantivy.Index(schema(), path=str(fresh)), session)
        make_private(fresh)
        words.put_stamp(
            Stamp(library, analyzer_fingerprint(), died(session), True, [commit or new_commit()]),
            fresh,
        )
        if os.path.lexists(folder):
            os.rename(folder, old)
        os.rename(fresh, folder)
    finally:
        remove(fresh)
        remove(old)


def sweep(folder: Path) -> int:
    """Delete what a killed rebuild left; returns how many folders."""
    left = [each for each in folder.parent.glob("words-*-*") if _OURS.fullmatch(each.name)]
    for each in left:
        remove(each)
    return sum(not os.path.lexists(each) for each in left)


def aside(session: Session) -> tantivy.Index:
    """An index in memory, for a view that the one on disk cannot serve and that may not mend it."""
    import tantivy

    index = tantivy.Index(schema())
    _fill(index, session)
    index.config_reader("manual")
    index.reload()
    return index


def _fill(index: tantivy.Index, session: Session) -> None:
    writer = index.writer(heap_size=HEAP_BYTES, num_threads=1)
    for passage in stored_passages(session):
        writer.add_document(passage)
    writer.commit()
    writer.wait_merging_threads()
