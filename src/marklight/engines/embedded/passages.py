"""Passages as documents of the lexical index: one field of terms each, made by the analyzer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import tantivy
from tantivy import Query

from marklight.engines.embedded.records import CHUNK, chunk
from marklight.engines.embedded.session import Session
from marklight.engines.lexical import (
    CODE,
    PROSE,
    document_terms,
    passage_terms,
    shared_terms,
)

if TYPE_CHECKING:
    from marklight.engines.embedded.insert import Placed


@cache
def schema() -> tantivy.Schema:
    """A document for each passage; its words come ready made, so blanks are all that parts them."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_unsigned_field("checksum", fast=True)
    builder.add_unsigned_field("document", indexed=True)
    for field in (*PROSE, CODE):
        builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def placed_passages(placed: Iterable[Placed]) -> Iterator[tantivy.Document]:
    """Passages that are being committed."""
    for each in placed:
        shared = document_terms(each.entry.document)
        for (row, *_, sum), passage in zip(each.passages, each.entry.chunks, strict=True):
            yield _passage(row, sum, each.document, passage_terms(shared, passage))


def stored_passages(session: Session, rows: str = "") -> Iterator[tantivy.Document]:
    """Passages as the tables hold them: all, or those of a JSON list of rows."""
    last: int = -1
    shared: Mapping[str, list[str]] = {}
    which = "WHERE c.row IN (SELECT value FROM json_each(?))" if rows else ""
    for row, sum, document, record, *columns in session.each(
        f"SELECT c.row, c.checksum, c.document, t.record, {CHUNK} FROM chunks c"
        " JOIN documents d ON d.row = c.document JOIN contents t ON t.document = c.document"
        f" {which} ORDER BY c.row",
        [rows] if rows else [],
    ):
        if document != last:
            last, shared = document, shared_terms(json.loads(record))
        yield _passage(row, sum, document, passage_terms(shared, chunk(tuple(columns))))


def _passage(
    row: int, checksum: int, document: int, fields: Mapping[str, list[str]]
) -> tantivy.Document:
    passage = tantivy.Document()
    passage.add_unsigned("row", row)
    passage.add_unsigned("checksum", checksum)
    passage.add_unsigned("document", document)
    for field, found in fields.items():
        if found:
            passage.add_text(field, " ".join(found))
    return passage


def delete(writer: tantivy.IndexWriter, rows: Sequence[int]) -> None:
    """Take these passages out with the next commit."""
    if rows:
        # By query: `delete_documents_by_term` takes any number for a signed one and finds nothing.
        writer.delete_documents_by_query(Query.term_set_query(schema(), "row", rows))


def rows_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """The passages at these places of the index."""
    return [int(row or 0) for row in searcher.fast_field_values("row", addresses)]


def checksums_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """Return the checksums of the passages at these places of the index."""
    return [int(sum or 0) for sum in searcher.fast_field_values("checksum", addresses)]
