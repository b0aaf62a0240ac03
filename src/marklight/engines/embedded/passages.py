"""What tantivy is given and asked: passages as lists of words, questions without a syntax."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

import tantivy
from tantivy import Occur, Query

from marklight.engines.embedded.allowed import Allowed
from marklight.engines.embedded.insert import Placed
from marklight.engines.embedded.records import CHUNK, chunk
from marklight.engines.embedded.session import Session
from marklight.engines.lexical import (
    CODE,
    PHRASE_FIELDS,
    PROSE,
    WHOLE,
    document_terms,
    passage_terms,
    shared_terms,
)
from marklight.ports import ScoredChunk

DIGITS = 4
"""Of a score, behind the point: sums of the same numbers in another order differ in those after, which are no ranks."""


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


def question(
    schema: tantivy.Schema,
    words: Sequence[str],
    boosts: Mapping[str, float],
    allowed: Allowed | None,
) -> Query:
    """Any of these words in any of these fields, among what is allowed."""
    terms = Query.boolean_query(
        [
            (Occur.Should, Query.boost_query(Query.term_query(schema, field, word), times * boost))
            # Asked for as often as it stands there, a word of a pasted text would cost as much.
            for word, times in Counter(words).items()
            for field, boost in boosts.items()
            if boost > 0
        ]
    )
    return among(schema, terms, allowed)


def among(schema: tantivy.Schema, terms: Query, allowed: Allowed | None) -> Query:
    """The same, asked of what is allowed only."""
    if allowed is None or (allowed.but and not allowed.rows):
        return terms
    rows = Query.term_set_query(schema, allowed.column, allowed.rows)
    if allowed.but:
        return Query.boolean_query([(Occur.Must, terms), (Occur.MustNot, rows)])
    # A filter says who may answer, never how well.
    return Query.boolean_query(
        [(Occur.Must, terms), (Occur.Must, Query.const_score_query(rows, 0.0))]
    )


def holders(
    searcher: tantivy.Searcher, schema: tantivy.Schema, words: Sequence[str], may: Allowed | None
) -> list[int]:
    """Every passage that has all of these words in one of its texts, in no order."""
    query = Query.boolean_query(
        [
            (
                Occur.Should,
                Query.boolean_query(
                    [(Occur.Must, Query.term_query(schema, field, word)) for word in words]
                ),
            )
            for field in PHRASE_FIELDS
        ]
    )
    everything = max(1, searcher.num_docs)
    hits = searcher.search(among(schema, query, may), limit=everything, count=False).hits
    return rows_at(searcher, [address for _, address in hits])


def held(
    searcher: tantivy.Searcher,
    words: Sequence[str],
    beyond: int,
    living: Callable[[Sequence[int]], Mapping[int, str]],
) -> set[str]:
    """Words that a passage of the view has; up to `beyond` passages of the index are none of it.

    What more passages than those have is told by their number alone, a thousandth of the time.
    """
    found = {word: searcher.doc_freq(WHOLE, word) for word in dict.fromkeys(words)}
    return {
        word
        for word, often in found.items()
        if often > beyond
        or (often and best(searcher, Query.term_query(schema(), WHOLE, word), 1, living))
    }


def best(
    searcher: tantivy.Searcher,
    query: Query,
    limit: int,
    living: Callable[[Sequence[int]], Mapping[int, str]],
) -> list[ScoredChunk]:
    """The best passages that the view knows, ties in the order of their ids.

    The index may hold more than the view: passages of later commits, and dead ones. They are
    dropped, and more is asked for until the limit is filled with everything that ties for it.
    """
    everything = max(1, searcher.num_docs)
    ask = limit + limit // 4 + 8
    while True:
        ask = min(ask, everything)  # tantivy makes room for as many as are asked for
        hits = searcher.search(query, limit=ask, count=False).hits
        rows = rows_at(searcher, [address for _, address in hits])
        scores = [round(score, DIGITS) for score, _ in hits]
        # Each is a page of the store to look up: first as many as are enough if none of them is dead.
        enough = sum(score >= scores[limit - 1] for score in scores) if len(hits) > limit else 0
        for count in (enough, len(hits)):
            ids = living(rows[:count]) if count else {}
            found = [
                ScoredChunk(ids[row], score)
                for row, score in zip(rows[:count], scores, strict=False)
                if row in ids
            ]
            if len(found) >= limit and scores[-1] < found[limit - 1].score:
                return _ranked(found, limit)
        if len(hits) < ask or ask == everything:
            return _ranked(found, limit)
        ask *= 4


def _ranked(found: list[ScoredChunk], limit: int) -> list[ScoredChunk]:
    return sorted(found, key=lambda each: (-each.score, each.chunk_id))[:limit]


def rows_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """The passages at these places of the index."""
    return [int(row or 0) for row in searcher.fast_field_values("row", addresses)]


def checksums_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """Return the checksums of the passages at these places of the index."""
    return [int(sum or 0) for sum in searcher.fast_field_values("checksum", addresses)]
