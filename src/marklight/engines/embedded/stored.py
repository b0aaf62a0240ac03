"""Passages and sections as they stand in the tables of one view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from marklight.engines.embedded import records
from marklight.engines.embedded.read import FACTS, Facts, document_row, facts_in
from marklight.engines.embedded.session import Session, json_list
from marklight.model import Chunk, DocumentId, Section
from marklight.ports import Pending

_CHUNKS = f"SELECT {records.CHUNK} FROM chunks c JOIN documents d ON d.row = c.document"
_FACT_COLUMNS = len(FACTS.split(","))


class Passage(NamedTuple):
    """A passage with what is kept of it besides."""

    row: int
    levels: str
    """How far it can be widened, as stored; empty for one that an older format stored."""
    chunk: Chunk


def passages(
    session: Session, ids: Sequence[str]
) -> tuple[Mapping[str, Passage], Mapping[DocumentId, Facts]]:
    """These passages, and what is asked of their documents next."""
    known: dict[str, Passage] = {}
    facts: dict[DocumentId, Facts] = {}
    for row, levels, *columns in session.all(
        f"SELECT c.row, c.levels, {FACTS}, {records.CHUNK} FROM json_each(?) i"
        " CROSS JOIN chunks c ON c.id = i.value CROSS JOIN documents d ON d.row = c.document",
        [json_list(ids)],
    ):
        chunk = records.chunk(columns[_FACT_COLUMNS:])
        known[chunk.id] = Passage(row, levels, chunk)
        if chunk.document not in facts:
            facts[chunk.document] = facts_in(columns[:_FACT_COLUMNS])
    return known, facts


def owners(session: Session, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
    """Each passage's document."""
    found = session.all(
        "SELECT c.id, d.collection, d.path FROM json_each(?) j CROSS JOIN chunks c ON c.id = j.value"
        " CROSS JOIN documents d ON d.row = c.document",
        [json_list(chunks)],
    )
    return {id: DocumentId(collection, path) for id, collection, path in found}


def chunks_of(session: Session, id: DocumentId) -> list[Chunk]:
    """A document's passages from top to bottom."""
    where = "WHERE c.document = ? ORDER BY c.ordinal"
    return [
        records.chunk(row) for row in session.all(f"{_CHUNKS} {where}", [document_row(session, id)])
    ]


def beside(session: Session, id: DocumentId, ordinal: int, count: int) -> list[Chunk]:
    """By the index on places in a document, however long that is."""
    where = "WHERE d.collection = ? AND d.path = ? AND c.ordinal BETWEEN ? AND ? ORDER BY c.ordinal"
    places = [*id, ordinal - count, ordinal + count]
    return [records.chunk(row) for row in session.all(f"{_CHUNKS} {where}", places)]


def section(session: Session, id: str) -> tuple[DocumentId, Section] | None:
    """A section and whose it is."""
    row = session.one(
        "SELECT d.collection, d.path, s.id, headings, anchor, first_line, last_line, span_from,"
        " span_to FROM sections s JOIN documents d ON d.row = s.document WHERE s.id = ?"
        " ORDER BY s.row",
        [id],
    )
    return (DocumentId(row[0], row[1]), records.section(row[2:])) if row else None


def unembedded(session: Session, model: str, limit: int, first: Sequence[str]) -> list[Pending]:
    """Texts without a vector, oldest passage first after those that were asked for."""
    found = session.one("SELECT row, done FROM models WHERE name = ?", [model])
    number, done = found or (-1, 0)
    lacking = "NOT EXISTS (SELECT 1 FROM vectors v WHERE v.digest = c.digest AND v.model = ?)"
    wanted = json_list(first)
    rows: dict[str, int] = {}
    for row, digest in session.each(
        "SELECT c.row, c.digest FROM json_each(?) f CROSS JOIN chunks c ON c.id = f.value"
        f" WHERE {lacking} ORDER BY f.key",
        [wanted, number],
    ):
        rows.setdefault(digest, row)
    for row, digest in session.each(
        f"SELECT c.row, c.digest FROM chunks c WHERE c.row > ? AND {lacking} ORDER BY c.row",
        [done, number],
    ):
        if len(rows) >= limit:
            break
        rows.setdefault(digest, row)
    chosen = list(rows.values())[: max(0, limit)]
    texts = {
        row[0]: records.chunk(row[1:])
        for row in session.all(
            f"SELECT c.row, {records.CHUNK} FROM chunks c JOIN documents d ON d.row = c.document"
            " WHERE c.row IN (SELECT value FROM json_each(?))",
            [json_list(chosen)],
        )
    }
    return [Pending(texts[row].digest, texts[row]) for row in chosen]
