"""A look at everything: the tables must be sound, and what is derived from them is made to fit."""

from __future__ import annotations

from collections.abc import Iterator

from marklight.engines.embedded import links, mend, refill, vector_writer
from marklight.engines.embedded.binary_vectors import BinaryVectorFile
from marklight.engines.embedded.checksums import damaged_documents, damaged_vectors
from marklight.engines.embedded.counters import COUNTERS, counting_waste
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.snapshot import Parts
from marklight.engines.embedded.sqlite_errors import damaged
from marklight.engines.embedded.vector_files import FileInUse, VectorFile, vector_file_info
from marklight.engines.embedded.write import apply
from marklight.engines.metadata_filters import timestamp
from marklight.model import Batch, DocumentId
from marklight.text import vocabulary_fingerprint

_NAMED = 3
"""Damaged documents that are named in a report."""


def check(parts: Parts, session: Session) -> list[str]:
    """What was found and mended; raises where the store itself is damaged."""
    report = [row[0] for row in session.all("PRAGMA integrity_check(5)")]
    if report != ["ok"]:
        raise damaged(session.path, "; ".join(report))
    if strays := session.all("PRAGMA foreign_key_check"):
        raise damaged(session.path, f"{len(strays)} rows belong to nothing")
    found = [*_damaged_documents(session), *_damaged_vectors(session)]
    with session.transaction():
        for table, column, truth in COUNTERS:
            if session.run(f"UPDATE {table} SET {column} = {truth} WHERE {column} != {truth}"):
                found.append(f"The count of {column} was wrong and has been put right")
        if _moments(session):
            found.append("The dates of documents were computed again")
        if renewed := list(filter(None, [_callings(session), _concepts(session), _edges(session)])):
            found.extend(renewed)
            # So that nobody goes on with what was read of them before.
            session.run("UPDATE state SET generation = generation + 1")
    parts.lexical.finish()
    if session.value("SELECT chunks FROM state") or parts.lexical.folder.exists():
        mended = mend.words(parts.lexical, session, look=True, verify=True)
        if mended or parts.lexical.drifted(session, most=0, least=0):
            # Not worth a word: ranks differ a little from those of a library made in one go.
            mend.renew(parts.lexical, session)
        found.extend(filter(None, [mended]))
    library = session.value("SELECT library FROM state")
    for (model,) in session.all("SELECT name FROM models WHERE places > 0"):
        place = vector_file_info(session, model)
        assert place
        for kind in (VectorFile, BinaryVectorFile):
            file = kind.at(parts.folder, library, place)
            wanted = kind is VectorFile or place.row_count > parts.exact_most
            if not wanted or file.matches_tables(session):
                continue
            parts.mapped_vectors.clear()  # Windows replaces no file that is mapped
            try:
                file.rebuild(session)
                found.append(f"The {kind.header_kind} of {model} were written anew from the store")
            except FileInUse as error:
                found.append(f"The {kind.header_kind} of {model} are damaged: {error}")
            parts.mapped_vectors.clear()  # whoever searched meanwhile has the old one
    if left := vector_writer.sweep(session, parts.folder, library) + mend.sweep(
        parts.lexical.folder
    ):
        found.append(f"{left} files or folders that nothing uses were deleted")
    return found


def _damaged_documents(session: Session) -> Iterator[str]:
    """Take documents out that do not match their checksums: their files are read again by the next refresh."""
    rows = damaged_documents(session)
    if not rows:
        return
    ids = [
        DocumentId(*row)
        for row in session.all(
            "SELECT collection, path FROM documents WHERE row IN (SELECT value FROM json_each(?))",
            [json_list(rows)],
        )
    ]
    batch = Batch(removed=tuple(ids))
    with session.transaction(), counting_waste(session, batch):
        apply(session, batch)
    named = ", ".join(sorted(id.path for id in ids)[:_NAMED])
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    yield f"Damaged in the index and read again from the disk by the next search: {named}{more}"


def _damaged_vectors(session: Session) -> Iterator[str]:
    """Delete vectors that do not match their checksums: they are computed again."""
    for table in ("vectors", "concept_vectors"):
        rows = damaged_vectors(session, table)
        if not rows:
            continue
        with session.transaction():
            session.many(f"DELETE FROM {table} WHERE row = ?", ((row,) for row in rows))
            session.run("UPDATE models SET done = 0")
            session.run("UPDATE state SET generation = generation + 1")
        yield f"{len(rows)} damaged vectors were deleted and are computed again"


def _moments(session: Session) -> int:
    """Compute the dates by which documents are sorted and filtered; return how many were wrong."""
    wrong = [
        (right, row)
        for row, date, mtime_ns, stored in session.all(
            "SELECT row, date, mtime_ns, moment FROM documents"
        )
        if (right := timestamp(date, mtime_ns)) != stored
    ]
    session.many("UPDATE documents SET moment = ? WHERE row = ?", wrong)
    return len(wrong)


def _callings(session: Session) -> str:
    stored = session.all("SELECT document, name, first, last, score FROM callings")
    if sorted(stored) == sorted(refill.stored_callings(session)):
        return ""
    refill.callings(session)
    return "The names of documents and sections were written anew from the store"


def _concepts(session: Session) -> str:
    if session.value("SELECT vocabulary FROM state") != vocabulary_fingerprint():
        return ""  # the next commit counts them in the present way
    if dict(session.all("SELECT * FROM concepts")) == refill.stored_concepts(session):
        return ""
    refill.concepts(session)
    return "The words of the vocabulary were counted anew"


def _edges(session: Session) -> str:
    if not links.is_up_to_date(session):
        return ""  # nobody reads them before they are resolved anew
    if set(session.all("SELECT source, target FROM edges")) == links.resolved_edges(session):
        return ""
    links.rebuild(session)
    return "Which documents link to which was found out anew"
