"""Check an index and repair it: verify the database, then rebuild derived tables and files that do not match it."""

from __future__ import annotations

from collections.abc import Iterator

from marklight.engines.embedded import lexical_writer, vector_files
from marklight.engines.embedded.engine import Parts, replace_documents
from marklight.engines.embedded.lexical_index import UnusableIndex, table_state
from marklight.engines.embedded.session import SqliteSession, damaged
from marklight.engines.embedded.stored_rows import damaged_documents, damaged_term_vectors
from marklight.engines.embedded.vector_files import BinaryVectorFile, VectorFile, vector_file_info
from marklight.engines.relational.write import finish, repair_tables
from marklight.model import Batch, DocumentId

_LISTED = 3
"""Damaged documents that a finding lists by path, so that it fits on a line."""
_INTEGRITY_ERRORS = 5
"""Errors of the integrity check that are reported; one is enough to know that the database is damaged."""


def check(parts: Parts, session: SqliteSession) -> list[str]:
    """Check everything and repair derived data; return the findings, and raise StoreError if the database is damaged.

    The writer lock must be held.
    """
    rows = session.all(f"PRAGMA integrity_check({_INTEGRITY_ERRORS})")
    report = [line for row in rows for line in row[0].splitlines()]
    if report != ["ok"]:
        raise damaged(session.path, "; ".join(report))
    if orphans := session.all("PRAGMA foreign_key_check"):
        raise damaged(session.path, f"{len(orphans)} rows refer to missing rows")
    library = session.value("SELECT library FROM state")
    findings = list(_remove_damaged_documents(session))
    damaged_terms = damaged_term_vectors(session)
    with session.transaction():
        session.many("DELETE FROM term_vectors WHERE model = ? AND term = ?", damaged_terms)
    damaged_count = len(damaged_terms)
    for (model,) in session.all("SELECT name FROM models WHERE file_rows > 0"):
        damaged_count += _repair_vector_files(parts, session, library, model, findings)
    if damaged_count:
        session.run("UPDATE state SET generation = generation + 1")
        parts.forget()
        findings.append(f"{damaged_count} damaged vectors were deleted and will be computed again")
    with session.transaction():
        findings += repair_tables(session)
    findings += _repair_lexical_index(parts, session)
    leftovers = vector_files.sweep(session, parts.folder, library)
    leftovers += lexical_writer.sweep(parts.lexical, session)
    if leftovers:
        findings.append(f"Deleted leftover files or folders of the index: {leftovers}")
    return findings


def _remove_damaged_documents(session: SqliteSession) -> Iterator[str]:
    """Remove documents that do not match their checksums: the next refresh reads their files again."""
    rows = damaged_documents(session)
    if not rows:
        return
    ids = [
        DocumentId(*row)
        for row in session.all(
            "SELECT collection, path FROM documents WHERE row IN (SELECT value FROM json_each(?))",
            [list(rows)],
        )
    ]
    batch = Batch(removed=tuple(ids))
    with session.transaction():
        finish(session, replace_documents(session, batch))
    paths = ", ".join(sorted(id.path for id in ids)[:_LISTED])
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    yield f"Damaged in the index, so the next search reads them again from disk: {paths}{more}"


def _repair_lexical_index(parts: Parts, session: SqliteSession) -> list[str]:
    lexical_writer.finish(parts.lexical, session)
    state = table_state(session)
    if not state.folder and not session.value("SELECT chunks FROM state"):
        return []
    try:
        parts.lexical.require_match(state)
        lexical_writer.verify_files(parts.lexical.folder / state.folder)
    except UnusableIndex as reason:
        lexical_writer.rebuild(parts.lexical, session, reason)
        return [f"The lexical index was rebuilt from the database ({reason})"]
    if parts.lexical.has_many_deleted(session, share=0, least=0):
        # Not reported: scores only differ a little from those of an index that was built at once.
        lexical_writer.rebuild(parts.lexical, session)
    return []


def _repair_vector_files(
    parts: Parts, session: SqliteSession, library: str, model: str, findings: list[str]
) -> int:
    """Discard the vectors of a file that is unusable, else delete those that are damaged; return how many were."""
    info = vector_file_info(session, model)
    assert info
    file = VectorFile.at(parts.folder, library, info)
    if not file.is_complete():
        with session.transaction():
            vector_files.discard(session, info)
        findings.append(f"{vector_files.UNUSABLE}: its vectors will be computed again")
        return 0
    rows = file.map()
    places = vector_files.damaged_rows(session, info, rows)
    if places:
        with session.transaction():
            session.many(
                "DELETE FROM vectors WHERE model = ? AND file_row = ?",
                ((info.model_row, place) for place in places),
            )
            session.run("UPDATE models SET embedded_to = 0")
    binary = BinaryVectorFile.at(parts.folder, library, info)
    if info.row_count > parts.max_exact_vectors and not binary.matches(rows):
        parts.mapped_vectors.clear()  # Windows replaces no file that is mapped
        binary.write(block for _, block in vector_files.blocks(rows))
        parts.mapped_vectors.clear()  # a search that ran meanwhile has mapped the old one
        findings.append(f"The binary vectors of {model} were damaged and have been rebuilt")
    return len(places)
