"""Derived parts made right from the tables: caught up where that is enough, else built anew."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.engines.embedded.passages import delete, rows_at, schema, stored_passages
from marklight.engines.embedded.session import Session, listed
from marklight.engines.embedded.trouble import explain
from marklight.engines.embedded.words import HEAP_BYTES, Outdated, Stamp, Unfit, died, sound
from marklight.engines.fields import recipe

if TYPE_CHECKING:
    import tantivy

    from marklight.engines.embedded.words import Words

RENEWED = (
    "the index of words was built anew, as happens once after an update that finds words better"
)
_OURS = re.compile(r"words-(new|old)-[0-9a-f]{8}")


def words(index: Words, session: Session, look: bool = False, anew: bool = False) -> str:
    """Make the index equal to the tables; what was done, in words, nothing if all was well.

    With `look`, even where its opstamp is the expected one; with `anew`, whatever it holds. The
    writer's place must be held.
    """
    library, expected = session.all("SELECT library, opstamp FROM state")[0]
    try:
        if anew:
            raise Unfit("it could not be searched")
        if index.opstamp(library) == expected and not look:
            return ""
        with sound():
            if index.stamp().died > died(session):
                raise Unfit("newer than the tables")
            added, deleted = _catch_up(index.folder, session)
        if not added and not deleted and index.opstamp(library) == expected:
            return ""
        done = (
            f"The index of words was caught up: {added} passages added, {deleted} taken out"
            if added or deleted
            else ""
        )
    except Unfit as reason:
        try:
            with sound():
                _rebuild(index.folder, session, library)
        except Unfit as error:
            raise explain(error, index.folder) from error
        done = f"The index of words was built anew from the stored text ({reason})"
        if isinstance(reason, Outdated):
            index.news.append(RENEWED)
    index.forget()
    session.run("UPDATE state SET opstamp = ?", [index.opstamp(library)])
    return done


def renew(index: Words, session: Session) -> None:
    """Build the index anew without what died; the writer's place must be held.

    In one commit of its own, so that whoever looks or dies meanwhile has the old or the new.
    """
    import tantivy

    stamp = Stamp(session.value("SELECT library FROM state"), recipe(), died(session), whole=False)
    try:
        with sound():
            put_stamp(index.folder, stamp)
            writer = tantivy.Index.open(str(index.folder)).writer(HEAP_BYTES, 1)
            writer.delete_all_documents()
            for passage in stored_passages(session):
                writer.add_document(passage)
            writer.commit()
            writer.wait_merging_threads()
            opstamp = index.opstamp(stamp.library)
            with session.transaction():
                session.run("UPDATE state SET opstamp = ?", [opstamp])
                session.run("DELETE FROM dead")
            put_stamp(index.folder, stamp._replace(whole=True))
    except Unfit as error:
        raise explain(error, index.folder) from error
    finally:
        index.forget()


def put_stamp(folder: Path, stamp: Stamp) -> None:
    """Note what the words in this folder are, whole or not at all."""
    fresh = folder / "marklight.new"
    fresh.write_text(json.dumps(stamp._asdict()), encoding="utf-8")
    os.replace(fresh, folder / "marklight.json")


def _catch_up(folder: Path, session: Session) -> tuple[int, int]:
    """Compare the rows of both sides: after a crash, the index may be ahead or behind."""
    import tantivy

    index = tantivy.Index.open(str(folder))
    held = _all_rows(index)
    known = {row for (row,) in session.each("SELECT row FROM chunks")}
    spared = {row for (row,) in session.each("SELECT chunk FROM dead")}
    if len(held) != len(set(held)):
        raise Unfit("passages stand in it twice")
    extra, missing = set(held) - known - spared, known - set(held)
    if extra or missing:
        writer = index.writer(heap_size=HEAP_BYTES, num_threads=1)
        delete(writer, list(extra))
        for passage in stored_passages(session, listed(missing)):
            writer.add_document(passage)
        writer.commit()
        writer.wait_merging_threads()
    return len(missing), len(extra)


def _all_rows(index: tantivy.Index) -> list[int]:
    """Every passage that the index holds."""
    import tantivy

    index.config_reader("manual")
    index.reload()
    searcher = index.searcher()
    if not searcher.num_docs:
        return []
    hits = searcher.search(tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
    return rows_at(searcher, [address for _, address in hits])


def _rebuild(folder: Path, session: Session, library: str) -> None:
    """In a folder beside the old one, which is replaced when the new one is whole."""
    import tantivy

    fresh, old = (
        folder.with_name(f"words-{part}-{secrets.token_hex(4)}") for part in ("new", "old")
    )
    sweep(folder)
    try:
        fresh.mkdir()
        _fill(tantivy.Index(schema(), path=str(fresh)), session)
        put_stamp(fresh, Stamp(library, recipe(), died(session), whole=True))
        if folder.exists():
            os.rename(folder, old)
        os.rename(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def sweep(folder: Path) -> int:
    """Delete what a killed rebuild left; returns how many folders."""
    left = [each for each in folder.parent.glob("words-*-*") if _OURS.fullmatch(each.name)]
    for each in left:
        shutil.rmtree(each, ignore_errors=True)
    return sum(not each.exists() for each in left)


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
