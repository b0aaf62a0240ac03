"""Check the lexical index against the passages, and rebuild it where it differs or another analyzer wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from marklight.engines.lexical import NO_TERMS, analyzer_fingerprint, passage_terms, shared_terms
from marklight.engines.relational.records import CHUNK, chunk
from marklight.engines.server.postgres.lexical.index import add_passages
from marklight.engines.server.postgres.lexical.merge import living_passages, merge_key
from marklight.engines.server.postgres.lexical.posting_blocks import decode_blocks
from marklight.engines.server.postgres.lexical.segments import (
    FIELDS,
    DamagedSegment,
    Passage,
    Passages,
)

if TYPE_CHECKING:
    from marklight.engines.server.postgres.session import PostgresSession

REBUILT = (
    "The lexical index was rebuilt, because this version of Marklight analyzes text differently;"
    " that happens once after an update"
)
PART_PASSAGES = 8_192
"""Passages that are analyzed at once in a rebuild, which bounds its memory; merges follow."""


def is_outdated(session: PostgresSession) -> bool:
    """Return true if another analyzer wrote a segment."""
    query = "SELECT 1 FROM segments WHERE analyzer <> ? LIMIT 1"
    return session.value(query, [analyzer_fingerprint()]) is not None


def rebuild(session: PostgresSession) -> None:
    """Write the index again from the passages, in the transaction of a session that excludes other writers."""
    session.value("SELECT pg_advisory_xact_lock(?)", [merge_key(session)])
    for table in ("segments", "postings", "document_lengths"):
        session.run(f"DELETE FROM {table}")
    part: list[Passage] = []
    for passage in stored_passages(session):
        # A document is in one part, because its lengths are stored once.
        if len(part) >= PART_PASSAGES and passage.document != part[-1].document:
            add_passages(session, part)
            part = []
        part.append(passage)
    add_passages(session, part)


def stored_passages(session: PostgresSession) -> Iterator[Passage]:
    """Yield the terms of all passages, those of a document one after another."""
    last = -1
    shared = NO_TERMS
    for row, document, record, *columns in session.each(
        f"SELECT c.row, c.document, t.record, {CHUNK} FROM chunks c"
        " JOIN documents d ON d.row = c.document JOIN contents t ON t.document = c.document"
        " ORDER BY c.document, c.row"
    ):
        if document != last:
            last, shared = document, shared_terms(json.loads(record))
        yield Passage(row, document, passage_terms(shared, chunk(columns)))


def check(session: PostgresSession) -> list[str]:
    """Return the problems found, after rebuilding the index if there are any; no other writer may be active."""
    if is_outdated(session):
        rebuild(session)
        return []
    try:
        reason = find_difference(session)
    except DamagedSegment as error:
        reason = str(error)
    if not reason:
        return []
    rebuild(session)
    return [f"The lexical index was rebuilt from the passages ({reason})"]


def find_difference(session: PostgresSession) -> str:
    """Return how the index differs from the passages; empty if it does not."""
    living = living_passages(session)
    rows, documents = (np.concatenate(columns) for columns in zip(*living, strict=True))
    stored = np.array(
        session.all("SELECT row, document FROM chunks ORDER BY row"), np.int64
    ).reshape(-1, 2)
    order = np.argsort(rows)
    if len(rows) != len(stored):
        return f"it had {len(rows)} passages instead of {len(stored)}"
    if (rows[order] != stored[:, 0]).any() or (documents[order] != stored[:, 1]).any():
        return "it had other passages than the database"
    return _different_sums(session, len(stored)) or _damaged_postings(session)


def _different_sums(session: PostgresSession, passages: int) -> str:
    """Compare the sums over segments with those over documents."""
    segments = session.all("SELECT net_passages, net_lengths FROM segments")
    totals = np.array([lengths for _, lengths in segments], np.int64).reshape(-1, len(FIELDS))
    documents = session.all("SELECT document, passages, lengths FROM document_lengths")
    expected = np.array([lengths for *_, lengths in documents], np.int64).reshape(-1, len(FIELDS))
    if sum(count for count, _ in segments) != passages:
        return "the number of its passages is wrong"
    if (totals.sum(axis=0) != expected.sum(axis=0)).any():
        return "the lengths of its fields are wrong"
    with_passages = {row for (row,) in session.all("SELECT DISTINCT document FROM chunks")}
    if {document for document, *_ in documents} != with_passages:
        return "the lengths of its documents are incomplete"
    return ""


def _damaged_postings(session: PostgresSession) -> str:
    """Decode all postings of all segments, and compare the lengths of passages with them."""
    for id, *columns in session.all(
        "SELECT id, passage_rows, document_rows, lengths FROM segments"
    ):
        passages = Passages.decode(*columns)
        sums = np.zeros((len(FIELDS), len(passages)), np.int64)
        for (data,) in session.each("SELECT data FROM postings WHERE segment = ?", [id]):
            table = decode_blocks([data])
            if len(table.offset) and int(table.offset.max()) >= len(passages):
                return "a posting is outside of its segment"
            np.add.at(sums, (table.field, table.offset), table.frequency)
        if reason := passages.compare_lengths(sums):
            return reason
    orphans = "SELECT 1 FROM postings p WHERE NOT EXISTS (SELECT 1 FROM segments s WHERE s.id = p.segment) LIMIT 1"
    return "it had postings without a segment" if session.value(orphans) else ""
