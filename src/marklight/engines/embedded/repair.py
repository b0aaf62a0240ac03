"""Check an index and repair it: verify the database, then rebuild derived tables and files that do not match it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from marklight.engines import names
from marklight.engines.embedded import lexical_repair, lexical_writer, links, vector_writer
from marklight.engines.embedded.checksums import damaged_documents, damaged_vectors
from marklight.engines.embedded.records import decode_texts
from marklight.engines.embedded.session import Row, Session, json_list
from marklight.engines.embedded.sqlite_errors import damaged
from marklight.engines.embedded.vector_files import (
    BinaryVectorFile,
    FileInUse,
    VectorFile,
    vector_file_info,
)
from marklight.engines.embedded.write import (
    COUNTERS,
    INSERT_TITLE,
    apply,
    counting_unused_vectors,
)
from marklight.engines.metadata_filters import timestamp
from marklight.model import Batch, DocumentId
from marklight.text import vocabulary_fingerprint, vocabulary_terms

if TYPE_CHECKING:
    from marklight.engines.embedded.snapshot import Parts

_LISTED = 3
"""Damaged documents that a finding lists by path, so that it fits on a line."""
_INTEGRITY_ERRORS = 5
"""Errors of the integrity check that are reported; one is enough to know that the database is damaged."""


def check(parts: Parts, session: Session) -> list[str]:
    """Check everything and repair derived data; return the findings, and raise StoreError if the database is damaged.

    The writer lock must be held.
    """
    report = [row[0] for row in session.all(f"PRAGMA integrity_check({_INTEGRITY_ERRORS})")]
    if report != ["ok"]:
        raise damaged(session.path, "; ".join(report))
    if orphans := session.all("PRAGMA foreign_key_check"):
        raise damaged(session.path, f"{len(orphans)} rows refer to missing rows")
    findings = [*_remove_damaged_documents(session), *_remove_damaged_vectors(session)]
    with session.transaction():
        findings += _repair_tables(session)
    findings += _repair_lexical_index(parts, session)
    library = session.value("SELECT library FROM state")
    for (model,) in session.all("SELECT name FROM models WHERE file_rows > 0"):
        findings += _repair_vector_files(parts, session, library, model)
    leftovers = vector_writer.sweep(session, parts.folder, library)
    leftovers += lexical_repair.sweep(parts.lexical.folder)
    if leftovers:
        findings.append(f"Deleted leftover files or folders of the index: {leftovers}")
    return findings


def _remove_damaged_documents(session: Session) -> Iterator[str]:
    """Remove documents that do not match their checksums: the next refresh reads their files again."""
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
    with session.transaction(), counting_unused_vectors(session, batch):
        apply(session, batch)
    paths = ", ".join(sorted(id.path for id in ids)[:_LISTED])
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    yield f"Damaged in the index, so the next search reads them again from disk: {paths}{more}"


def _remove_damaged_vectors(session: Session) -> Iterator[str]:
    """Delete vectors that do not match their checksums: they are computed again."""
    for table in ("vectors", "term_vectors"):
        rows = damaged_vectors(session, table)
        if not rows:
            continue
        with session.transaction():
            session.many(f"DELETE FROM {table} WHERE row = ?", ((row,) for row in rows))
            session.run("UPDATE models SET embedded_to = 0")
            session.run("UPDATE state SET generation = generation + 1")
        yield f"{len(rows)} damaged vectors were deleted and will be computed again"


def _repair_tables(session: Session) -> list[str]:
    """Recompute the counters and derived tables that are wrong."""
    findings = []
    for table, column, truth in COUNTERS:
        if session.run(f"UPDATE {table} SET {column} = {truth} WHERE {column} != {truth}"):
            findings.append(f"The counter `{column}` was wrong and has been corrected")
    if _repair_dates(session):
        findings.append("Dates of documents were wrong and have been recomputed")
    rebuilt = list(
        filter(None, [_repair_titles(session), _repair_terms(session), _repair_edges(session)])
    )
    if rebuilt:
        # A new generation, so that no reader continues with cached values.
        session.run("UPDATE state SET generation = generation + 1")
    return [*findings, *rebuilt]


def _repair_dates(session: Session) -> int:
    """Recompute the dates by which documents are sorted and filtered; return how many were wrong."""
    wrong = [
        (right, row)
        for row, date, mtime_ns, stored in session.all(
            "SELECT row, date, mtime_ns, timestamp FROM documents"
        )
        if (right := timestamp(date, mtime_ns)) != stored
    ]
    session.many("UPDATE documents SET timestamp = ? WHERE row = ?", wrong)
    return len(wrong)


def _repair_titles(session: Session) -> str:
    rows = list(_title_rows(session))
    if sorted(session.all("SELECT document, title, first, last, score FROM titles")) == sorted(
        rows
    ):
        return ""
    session.run("DELETE FROM titles")
    session.many(INSERT_TITLE, rows)
    return "The table of titles and headings was wrong and has been rebuilt"


def _title_rows(session: Session) -> Iterator[Row]:
    """Yield the titles and headings of the stored documents, with the columns of `INSERT_TITLE`."""
    passages = session.each(
        "SELECT document, ordinal, headings, merged FROM chunks ORDER BY document"
    )
    for document, group in groupby(passages, key=lambda row: row[0]):
        path, title, aliases = session.all(
            "SELECT path, json_extract(record, '$.title'), json_extract(record, '$.aliases')"
            " FROM documents JOIN contents ON document = row WHERE row = ?",
            [document],
        )[0]
        headed = [
            names.HeadedPassage(ordinal, decode_texts(headings), decode_texts(merged))
            for _, ordinal, headings, merged in group
        ]
        for row in names.title_entries(path, title, json.loads(aliases), headed):
            yield document, *row


def _repair_terms(session: Session) -> str:
    if session.value("SELECT vocabulary FROM state") != vocabulary_fingerprint():
        return ""  # counted by another version: the next commit counts them again
    if dict(session.all("SELECT * FROM terms")) == _document_frequencies(session):
        return ""
    recount_terms(session)
    return "Document frequencies of the vocabulary were wrong and have been recounted"


def recount_terms(session: Session) -> None:
    """Count the documents that contain each term of the vocabulary, from the stored texts."""
    frequencies = _document_frequencies(session)
    session.run("DELETE FROM terms")
    session.many("INSERT INTO terms VALUES (?, ?)", sorted(frequencies.items()))
    session.run("UPDATE state SET vocabulary = ?", [vocabulary_fingerprint()])


def _document_frequencies(session: Session) -> Counter[str]:
    frequencies: Counter[str] = Counter()
    for (text,) in session.each("SELECT text FROM contents"):
        frequencies.update(vocabulary_terms(text))
    return frequencies


def _repair_edges(session: Session) -> str:
    if not links.is_up_to_date(session):
        return ""  # not in use before they are resolved again
    if set(session.all("SELECT source, target FROM edges")) == links.resolved_edges(session):
        return ""
    links.rebuild(session)
    return "The table of links between documents was wrong and has been rebuilt"


def _repair_lexical_index(parts: Parts, session: Session) -> list[str]:
    lexical_writer.finish(parts.lexical)
    if not session.value("SELECT chunks FROM state") and not parts.lexical.folder.exists():
        return []
    finding = lexical_repair.catch_up(parts.lexical, session, compare=True, verify=True)
    if finding or parts.lexical.needs_compaction(session, share=0, least=0):
        # Not reported: scores only differ a little from those of an index that was built at once.
        lexical_repair.compact(parts.lexical, session)
    return [finding] if finding else []


def _repair_vector_files(parts: Parts, session: Session, library: str, model: str) -> Iterator[str]:
    info = vector_file_info(session, model)
    assert info
    for kind in (VectorFile, BinaryVectorFile):
        file = kind.at(parts.folder, library, info)
        needed = kind is VectorFile or info.row_count > parts.max_exact_vectors
        if not needed or file.matches_tables(session):
            continue
        parts.mapped_vectors.clear()  # Windows replaces no file that is mapped
        try:
            file.rebuild(session)
            yield f"The {kind.label} of {model} was damaged and has been rebuilt from the database"
        except FileInUse as error:
            yield f"The {kind.label} of {model} is damaged and could not be rebuilt: {error}"
        parts.mapped_vectors.clear()  # a search that ran meanwhile has mapped the old one
