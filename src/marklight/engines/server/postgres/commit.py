"""Apply a batch to a library in one transaction; other commits run at the same time but for a short last part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from marklight.batch import Batch
from marklight.engines.relational import write
from marklight.engines.relational.documents import column
from marklight.engines.server.postgres import file_states, vector_table
from marklight.engines.server.postgres.indexes import Change, IndexedEntry
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.text_codec import encode
from marklight.engines.server.postgres.writers import lock_documents
from marklight.model import DocumentId

if TYPE_CHECKING:
    from marklight.engines.server.postgres.engine import PostgresEngine

MAX_PATH_BYTES = 2000
"""Longest collection and path together: rows of PostgreSQL's indexes have at most 2,704 bytes."""


def apply(engine: PostgresEngine, session: PostgresSession, batch: Batch) -> int:
    """Apply a batch and return the new generation.

    Locks are taken in this order: documents, rows of the tables, and last the row of the state, so that generations have
    the order of commits. What needs that row is short, since all other commits wait for it.
    """
    machine = engine.settings.machine
    with session.transaction():
        _lock(session, engine.address.library, batch)
        others = file_states.of_other_machines(session, machine, batch.entries)
        rows = write.replace_documents(session, batch)
        states = ((item.document, item.entry.document.file) for item in rows.inserted)
        file_states.add(session, machine, states)
        for item in rows.inserted:
            for other, file in others.get(item.entry.document.id, ()):
                file_states.add(session, other, [(item.document, file)])
        change = _change(session, batch, rows, file_states.touch(session, machine, batch.touched))
        file_states.replace_failures(session, machine, _replaced(batch), batch.failures)
        added = vector_table.add_vectors(session, batch.vectors)
        vector_table.add_term_vectors(session, batch.concepts)
        for index in (engine.lexical, engine.vectors):
            index.apply(session, change)
        session.run("UPDATE state SET committed = clock_timestamp()")  # locks the row
        generation = write.finish(
            session, batch, rows, [write.AddedVectors(*added)] if added else []
        )
        for index in (engine.lexical, engine.vectors):
            index.finish(session, change, generation)
        engine.queue.finish(session, change)
    return generation


def _replaced(batch: Batch) -> list[DocumentId]:
    return [*batch.removed, *(entry.document.id for entry in batch.entries)]


def _lock(session: PostgresSession, library: str, batch: Batch) -> None:
    documents = [*_replaced(batch), *(id for id, _ in batch.touched)]
    lock_documents(session, library, documents, all=batch.communities is not None)


def _change(
    session: PostgresSession,
    batch: Batch,
    rows: write.Change,
    touched: list[DocumentId],
) -> Change:
    return Change(
        batch,
        [IndexedEntry(item.entry, item.document, item.chunk_rows) for item in rows.inserted],
        sorted(rows.deleted.values()),
        sorted(rows.deleted_chunks),
        sorted(column(session, "row", touched).values()),
    )


def without_long_paths(batch: Batch) -> tuple[Batch, int]:
    """Return the batch without documents whose path cannot be indexed, and how many there are."""
    entries = tuple(entry for entry in batch.entries if _fits(entry.document.id))
    failures = tuple(failure for failure in batch.failures if _fits(failure.document))
    left_out = len(batch.entries) - len(entries)
    if not left_out and len(failures) == len(batch.failures):
        return batch, 0
    return replace(batch, entries=entries, failures=failures), left_out


def _fits(id: DocumentId) -> bool:
    # A character has at most 6 bytes when it is encoded.
    characters = len(id.collection) + len(id.path)
    return characters * 6 <= MAX_PATH_BYTES or (
        len(encode(id.collection + id.path).encode()) <= MAX_PATH_BYTES
    )
