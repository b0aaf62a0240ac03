"""Apply a batch to the tables: delete and insert documents with all their rows, and update the counters.

The counters are maintained by every commit, so that reading them takes the same time in any library.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marklight.engines.embedded import links
from marklight.engines.embedded.checksums import passage_checksum, store_checksums
from marklight.engines.embedded.documents import column
from marklight.engines.embedded.records import (
    encode_json,
    encode_levels,
    encode_record,
    encode_texts,
)
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.vocabulary import counting
from marklight.engines.metadata_filters import clamp_times, metadata_pairs, timestamp
from marklight.engines.names import title_entries_of
from marklight.levels import entry_levels
from marklight.model import Batch, DocumentId, Entry

INSERT_TITLE = "INSERT INTO titles (document, title, first, last, score) VALUES (?, ?, ?, ?, ?)"
"""Statement for the titles and headings of documents."""

UNUSED = "NOT EXISTS (SELECT 1 FROM chunks c WHERE c.digest = vectors.digest)"
"""SQL condition: no passage uses the vector."""

COUNTERS = (
    ("state", "documents", "(SELECT count(*) FROM documents)"),
    ("state", "chunks", "(SELECT count(*) FROM chunks)"),
    ("state", "unused_vectors", f"(SELECT count(*) FROM vectors WHERE {UNUSED})"),
    (
        "models",
        "embedded",
        "(SELECT count(*) FROM chunks c JOIN vectors v ON v.digest = c.digest"
        " WHERE v.model = models.row)",
    ),
)
"""Table and column of each counter, with the query for its value."""


@dataclass(frozen=True)
class InsertedEntry:
    """An entry with the row numbers that it got: of its document, and of the first of its passages."""

    entry: Entry
    document: int
    first_chunk: int
    key: bytes
    """Key of the checksums."""

    @cached_property
    def passages(self) -> list[tuple[Any, ...]]:
        """Return the rows of its passages; the last column is the checksum."""
        document = self.entry.document
        rows = []
        for row, (chunk, levels) in enumerate(
            zip(self.entry.chunks, entry_levels(self.entry), strict=True), self.first_chunk
        ):
            columns = (
                chunk.ordinal,
                chunk.digest,
                str(chunk.kind),
                chunk.parent,
                chunk.anchor,
                *chunk.lines,
                chunk.title,
                encode_texts(chunk.headings),
                encode_texts(chunk.merged),
                encode_texts(chunk.languages),
                chunk.code,
                chunk.text,
                encode_levels(levels),
            )
            checksum = passage_checksum(
                self.key, document.digest, document.recipe, (chunk.id, *columns)
            )
            rows.append((row, chunk.id, self.document, *columns, checksum))
        return rows


def apply(session: Session, batch: Batch) -> list[InsertedEntry]:
    """Apply a batch but for its vectors; return the entries that the lexical index must add."""
    entries = list({entry.document.id: entry for entry in batch.entries}.values())
    ids = [*batch.removed, *(entry.document.id for entry in entries)]
    session.many("DELETE FROM failures WHERE collection = ? AND path = ?", ids)
    deleted: dict[DocumentId, int] = column(session, "row", ids)
    inserted = []
    if deleted or entries:
        old_links = links.stored_keys(session, deleted)
        # A document that is replaced stays in its community.
        communities = column(session, "community", deleted)
        old_edges = links.edges_of(session, deleted.values())
        with counting(session, deleted.values(), entries):
            _delete(session, sorted(deleted.values()))
            inserted = _insert(session, entries)
        _set_communities(session, communities)
    for id, file in batch.touched:
        date = session.value("SELECT date FROM documents WHERE collection = ? AND path = ?", id)
        session.run(
            "UPDATE documents SET size = ?, mtime_ns = ?, ctime_ns = ?, timestamp = ?"
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
        _set_communities(session, batch.communities)
    session.run("UPDATE state SET generation = generation + 1")
    if deleted or entries:
        new_links = links.new_keys(entries)
        if new_links != old_links:
            session.run("UPDATE state SET links_changed = generation")
        if old_edges is not None:
            rows = {item.entry.document.id: item.document for item in inserted}
            replaced = {row: rows[id] for id, row in deleted.items() if id in rows}
            links.update(session, old_edges, replaced, old_links, new_links)
    if batch.communities is not None:
        links.rebuild(session)
    return inserted


def _set_communities(session: Session, communities: Mapping[DocumentId, int]) -> None:
    session.many(
        "UPDATE documents SET community = ? WHERE collection = ? AND path = ?",
        ((community, *id) for id, community in communities.items()),
    )


def _delete(session: Session, documents: Sequence[int]) -> None:
    """Delete documents; their passages are recorded as tombstones until the lexical index drops them."""
    if not documents:
        return
    condition = "document IN (SELECT value FROM json_each(?))"
    values = [json_list(documents)]
    chunks = session.value(f"SELECT count(*) FROM chunks WHERE {condition}", values)
    _count_embedded(session, -1, f"c.{condition}", values)
    session.run(
        f"INSERT INTO tombstones SELECT row, ? FROM chunks WHERE {condition}",
        [time.time(), *values],
    )
    session.many("DELETE FROM documents WHERE row = ?", ((row,) for row in documents))
    session.run(
        "DELETE FROM edges WHERE source IN (SELECT value FROM json_each(?))"
        " OR target IN (SELECT value FROM json_each(?))",
        values * 2,
    )
    session.run(
        "UPDATE state SET documents = documents - ?, chunks = chunks - ?", [len(documents), chunks]
    )


def _insert(session: Session, entries: Sequence[Entry]) -> list[InsertedEntry]:
    if not entries:
        return []
    document = _last_row(session, "documents")
    chunk = last_chunk = _last_row(session, "chunks")
    inserted = []
    for entry in entries:
        document += 1
        inserted.append(InsertedEntry(entry, document, chunk + 1, session.key))
        chunk += len(entry.chunks)
    _insert_documents(session, inserted)
    _insert_passages(session, inserted)
    _insert_links(session, inserted)
    store_checksums(session, [item.document for item in inserted])
    _count_embedded(session, 1, "c.row > ?", [last_chunk])
    session.run(
        "UPDATE state SET documents = documents + ?, chunks = chunks + ?",
        [len(entries), chunk - last_chunk],
    )
    return inserted


def _last_row(session: Session, table: str) -> int:
    """Return the highest row number that a table ever had: numbers ascend and are never reused."""
    return session.value("SELECT seq FROM sqlite_sequence WHERE name = ?", [table]) or 0


def _insert_documents(session: Session, inserted: Sequence[InsertedEntry]) -> None:
    """Insert documents with all that belongs to them but passages and links."""
    documents = [(item.document, item.entry.document) for item in inserted]
    session.many(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, 0)",
        (
            (
                row,
                *document.id,
                *clamp_times(document.file),
                document.digest,
                document.recipe,
                document.date,
                timestamp(document.date, document.file.mtime_ns),
            )
            for row, document in documents
        ),
    )
    session.many(
        "INSERT INTO contents VALUES (?, ?, ?, ?)",
        (
            (row, encode_record(document), encode_texts(document.remarks), document.text)
            for row, document in documents
        ),
    )
    session.many(
        "INSERT INTO metadata VALUES (?, ?, ?)",
        sorted((*fact, row) for row, document in documents for fact in metadata_pairs(document)),
    )
    session.many(
        "INSERT INTO names (key, strength, document) VALUES (?, ?, ?)",
        ((name.key, name.strength, row) for row, document in documents for name in document.names),
    )
    session.many(
        "INSERT INTO sections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                *(section.id, item.document, encode_texts(section.headings), section.anchor),
                *(*section.lines, *section.span),
            )
            for item in inserted
            for section in item.entry.sections
        ),
    )
    session.many(
        INSERT_TITLE,
        ((item.document, *title) for item in inserted for title in title_entries_of(item.entry)),
    )


def _insert_passages(session: Session, inserted: Sequence[InsertedEntry]) -> None:
    session.many(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (passage for item in inserted for passage in item.passages),
    )
    session.many(
        "INSERT OR IGNORE INTO languages VALUES (?, ?)",
        (
            (language.lower(), row)
            for item in inserted
            for row, chunk in enumerate(item.entry.chunks, item.first_chunk)
            for language in chunk.languages
        ),
    )


def _insert_links(session: Session, inserted: Sequence[InsertedEntry]) -> None:
    """Insert links, with every key that they may resolve to."""
    last = session.value("SELECT max(row) FROM links") or 0
    links = [
        (row, item.document, link)
        for row, (item, link) in enumerate(
            ((item, link) for item in inserted for link in item.entry.document.links), last + 1
        )
    ]
    session.many(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                row,
                document,
                link.type,
                link.target,
                link.fragment,
                link.text,
                link.line,
                encode_json(link.keys),
            )
            for row, document, link in links
        ),
    )
    session.many(
        "INSERT OR IGNORE INTO link_keys VALUES (?, ?)",
        ((key, row) for row, _, link in links for key in link.keys),
    )


def _count_embedded(session: Session, sign: int, condition: str, values: Sequence[object]) -> None:
    """Add passages to the counter of every model that has their vector, or subtract them."""
    if session.value("SELECT 1 FROM models") is None:
        return
    for model, count in session.all(
        "SELECT v.model, count(*) FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
        f" WHERE {condition} GROUP BY v.model",
        values,
    ):
        session.run(
            "UPDATE models SET embedded = embedded + ? WHERE row = ?", [sign * count, model]
        )


@contextmanager
def counting_unused_vectors(session: Session, batch: Batch) -> Iterator[None]:
    """Update the count of unused vectors over a commit; only the texts that it adds and deletes are read."""
    touched = {chunk.digest for entry in batch.entries for chunk in entry.chunks}
    touched.update(batch.vectors.digests if batch.vectors else ())
    for id in (*batch.removed, *(entry.document.id for entry in batch.entries)):
        old = session.all(
            "SELECT c.digest FROM documents d JOIN chunks c ON c.document = d.row"
            " WHERE d.collection = ? AND d.path = ?",
            id,
        )
        touched.update(digest for (digest,) in old)
    unused = (
        "SELECT count(*) FROM json_each(?) t CROSS JOIN vectors ON vectors.digest = t.value"
        f" WHERE {UNUSED}"
    )
    digests = [json_list(touched)]
    before = session.value(unused, digests)
    yield
    after = session.value(unused, digests)
    session.run("UPDATE state SET unused_vectors = unused_vectors + ?", [after - before])
