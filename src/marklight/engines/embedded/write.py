"""A batch into the tables: what leaves, what comes, and the counters that follow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from marklight.engines.embedded import links
from marklight.engines.embedded.checksums import seal
from marklight.engines.embedded.counters import count_embedded
from marklight.engines.embedded.documents import column
from marklight.engines.embedded.insert import Placed, add_chunks, add_documents, add_links
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.vocabulary import counting
from marklight.engines.metadata_filters import clamp_times, timestamp
from marklight.model import Batch, DocumentId, Entry


def apply(session: Session, batch: Batch) -> list[Placed]:
    """Everything in a batch but its vectors; returns what is new to the words."""
    entering = list({entry.document.id: entry for entry in batch.entries}.values())
    ids = [*batch.removed, *(entry.document.id for entry in entering)]
    session.many("DELETE FROM failures WHERE collection = ? AND path = ?", ids)
    leaving: dict[DocumentId, int] = column(session, "row", ids)
    placed = []
    if leaving or entering:
        tied = links.stored_keys(session, leaving)
        # A document that comes again stays where it belonged.
        grouped = column(session, "community", leaving)
        paired = links.edges_of(session, leaving.values())
        with counting(session, leaving.values(), entering):
            _remove(session, sorted(leaving.values()))
            placed = _add(session, entering)
        _regroup(session, grouped)
    for id, file in batch.touched:
        date = session.value("SELECT date FROM documents WHERE collection = ? AND path = ?", id)
        session.run(
            "UPDATE documents SET size = ?, mtime_ns = ?, ctime_ns = ?, moment = ?"
            " WHERE collection = ? AND path = ?",
            [*clamp_times(file), timestamp(date, file.mtime_ns), *id],
        )
    session.many(
        "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                *failure.document,
                failure.reason,
                *(clamp_times(failure.file) if failure.file else (None, None, None)),
            )
            for failure in batch.failures
        ),
    )
    session.many("INSERT OR REPLACE INTO manifest VALUES (?, ?)", batch.manifest.items())
    if batch.communities is not None:
        session.run("UPDATE documents SET community = NULL WHERE community IS NOT NULL")
        _regroup(session, batch.communities)
    session.run("UPDATE state SET generation = generation + 1")
    if leaving or entering:
        arrived = links.new_keys(entering)
        if arrived != tied:
            session.run("UPDATE state SET linked = generation")
        if paired is not None:
            rows = {each.entry.document.id: each.document for each in placed}
            moved = {row: rows[id] for id, row in leaving.items() if id in rows}
            links.update(session, paired, moved, tied, arrived)
    if batch.communities is not None:
        links.rebuild(session)
    return placed


def _regroup(session: Session, communities: Mapping[DocumentId, int]) -> None:
    session.many(
        "UPDATE documents SET community = ? WHERE collection = ? AND path = ?",
        ((community, *id) for id, community in communities.items()),
    )


def _remove(session: Session, leaving: Sequence[int]) -> None:
    if not leaving:
        return
    those = "document IN (SELECT value FROM json_each(?))"
    rows = [json_list(leaving)]
    chunks = session.value(f"SELECT count(*) FROM chunks WHERE {those}", rows)
    count_embedded(session, -1, f"c.{those}", rows)
    session.run(f"INSERT INTO dead SELECT row, ? FROM chunks WHERE {those}", [time.time(), *rows])
    session.many("DELETE FROM documents WHERE row = ?", ((row,) for row in leaving))
    session.run(
        "UPDATE state SET documents = documents - ?, chunks = chunks - ?", [len(leaving), chunks]
    )


def _add(session: Session, entries: Sequence[Entry]) -> list[Placed]:
    if not entries:
        return []
    document = _last(session, "documents")
    chunk = last_chunk = _last(session, "chunks")
    placed = []
    for entry in entries:
        document += 1
        placed.append(Placed(entry, document, chunk + 1, session.key))
        chunk += len(entry.chunks)
    add_documents(session, placed)
    add_chunks(session, placed)
    add_links(session, placed)
    seal(session, [each.document for each in placed])
    count_embedded(session, 1, "c.row > ?", [last_chunk])
    session.run(
        "UPDATE state SET documents = documents + ?, chunks = chunks + ?",
        [len(entries), chunk - last_chunk],
    )
    return placed


def _last(session: Session, table: str) -> int:
    """The highest row that this table ever had: rows are numbered by us, upward, once."""
    return session.value("SELECT seq FROM sqlite_sequence WHERE name = ?", [table]) or 0
