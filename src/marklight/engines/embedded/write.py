"""A batch into the tables: what leaves, what comes, and the counters that follow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from marklight.engines.embedded.counters import count_embedded
from marklight.engines.embedded.records import packed, record, texts
from marklight.engines.embedded.session import Session, listed
from marklight.engines.facts import facts, moment
from marklight.model import Batch, DocumentId, Entry


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry with the rows it got: its document's, and the first of its passages'."""

    entry: Entry
    document: int
    first_chunk: int


def apply(session: Session, batch: Batch) -> list[Placed]:
    """Everything in a batch but its vectors; returns what is new to the words."""
    entering = list({entry.document.id: entry for entry in batch.entries}.values())
    ids = [*batch.removed, *(entry.document.id for entry in entering)]
    _remove(session, ids)
    placed = _add(session, entering)
    session.many(
        "UPDATE documents SET size = ?, mtime_ns = ?, moment = coalesce(date, ?)"
        " WHERE collection = ? AND path = ?",
        (
            (file.size, file.mtime_ns, moment(None, file.mtime_ns), *id)
            for id, file in batch.touched
        ),
    )
    session.many(
        "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)",
        (
            (
                *failure.document,
                failure.reason,
                failure.file.size if failure.file else None,
                failure.file.mtime_ns if failure.file else None,
            )
            for failure in batch.failures
        ),
    )
    session.many("INSERT OR REPLACE INTO manifest VALUES (?, ?)", batch.manifest.items())
    session.run("UPDATE state SET generation = generation + 1")
    return placed


def _remove(session: Session, ids: Sequence[DocumentId]) -> None:
    if not ids:
        return
    session.many("DELETE FROM failures WHERE collection = ? AND path = ?", ids)
    found = [
        session.value("SELECT row FROM documents WHERE collection = ? AND path = ?", id)
        for id in ids
    ]
    leaving = sorted({row for row in found if row is not None})
    if not leaving:
        return
    those = "document IN (SELECT value FROM json_each(?))"
    rows = [listed(leaving)]
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
        placed.append(Placed(entry, document, chunk + 1))
        chunk += len(entry.chunks)
    _add_documents(session, placed)
    _add_chunks(session, placed)
    _add_links(session, placed)
    count_embedded(session, 1, "c.row > ?", [last_chunk])
    session.run(
        "UPDATE state SET documents = documents + ?, chunks = chunks + ?",
        [len(entries), chunk - last_chunk],
    )
    return placed


def _last(session: Session, table: str) -> int:
    """The highest row that this table ever had: rows are numbered by us, upward, once."""
    return session.value("SELECT seq FROM sqlite_sequence WHERE name = ?", [table]) or 0


def _add_documents(session: Session, placed: Sequence[Placed]) -> None:
    documents = [(each.document, each.entry.document) for each in placed]
    session.many(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                row,
                *each.id,
                each.file.size,
                each.file.mtime_ns,
                each.digest,
                each.recipe,
                each.date,
                moment(each.date, each.file.mtime_ns),
            )
            for row, each in documents
        ),
    )
    session.many(
        "INSERT INTO contents VALUES (?, ?, ?)",
        ((row, record(each), each.text) for row, each in documents),
    )
    session.many(
        "INSERT INTO facts VALUES (?, ?, ?)",
        sorted((*fact, row) for row, each in documents for fact in facts(each)),
    )
    session.many(
        "INSERT INTO names (key, strength, document) VALUES (?, ?, ?)",
        ((name.key, name.strength, row) for row, each in documents for name in each.names),
    )
    session.many(
        "INSERT INTO sections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (part.id, each.document, texts(part.headings), part.anchor, *part.lines, *part.span)
            for each in placed
            for part in each.entry.sections
        ),
    )


def _add_chunks(session: Session, placed: Sequence[Placed]) -> None:
    session.many(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                row,
                chunk.id,
                each.document,
                chunk.ordinal,
                chunk.digest,
                chunk.kind,
                chunk.parent,
                chunk.anchor,
                *chunk.lines,
                chunk.title,
                texts(chunk.headings),
                texts(chunk.merged),
                texts(chunk.languages),
                chunk.code,
                chunk.text,
            )
            for each in placed
            for row, chunk in enumerate(each.entry.chunks, each.first_chunk)
        ),
    )
    session.many(
        "INSERT OR IGNORE INTO languages VALUES (?, ?)",
        (
            (language.lower(), row)
            for each in placed
            for row, chunk in enumerate(each.entry.chunks, each.first_chunk)
            for language in chunk.languages
        ),
    )


def _add_links(session: Session, placed: Sequence[Placed]) -> None:
    last = session.value("SELECT max(row) FROM links") or 0
    links = [
        (row, each.document, link)
        for row, (each, link) in enumerate(
            ((each, link) for each in placed for link in each.entry.document.links), last + 1
        )
    ]
    session.many(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                row,
                document,
                each.type,
                each.target,
                each.fragment,
                each.text,
                each.line,
                packed(each.keys),
            )
            for row, document, each in links
        ),
    )
    session.many(
        "INSERT OR IGNORE INTO link_keys VALUES (?, ?)",
        ((key, row) for row, _, each in links for key in each.keys),
    )
