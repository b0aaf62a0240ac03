"""Lexical index in PostgreSQL: tables of immutable segments, which commits add and merges replace.

A commit adds a segment with its passages, and a list of the documents that it deletes from older segments (tombstones). So
commits write no common row, and a snapshot sees exactly the segments of its commit. Segments are merged by tiers in transactions
of their own, which also drops deleted passages; commits go on meanwhile, and snapshots keep seeing the segments that were merged.
A merge that is interrupted is rolled back. An index that does not match the passages is rebuilt from them.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marklight.engines.lexical import (
    NO_TERMS,
    analyzer_fingerprint,
    document_terms,
    passage_terms,
    shared_terms,
)
from marklight.engines.relational.records import CHUNK, chunk
from marklight.engines.server.bm25 import Ints
from marklight.engines.server.postgres.indexes import DerivedIndex, RowReader
from marklight.engines.server.postgres.lexical_search import LexicalCache, PostgresLexicalReader
from marklight.engines.server.postgres.schema import lock_key
from marklight.engines.server.postgres.segments import (
    MAX_PASSAGES,
    NO_ROWS,
    DamagedSegment,
    Passage,
    Passages,
    PostingTable,
    build,
    decode_blocks,
    encode_blocks,
    merge,
    stored_lengths,
)
from marklight.engines.server.postgres.session import PostgresSession
from marklight.errors import StoreError

if TYPE_CHECKING:
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.postgres.engine import PostgresSnapshot
    from marklight.engines.server.postgres.indexes import IndexChange

TABLES = """
CREATE TABLE segments (
    id bigint PRIMARY KEY,                 -- random, so that it is never used again
    analyzer text COLLATE "C" NOT NULL,    -- fingerprint of the analyzer that produced its terms
    passages bigint NOT NULL,              -- with those that were deleted since
    net_passages bigint NOT NULL,          -- passages that its commits added, minus those that they deleted
    passage_rows bytea NOT NULL,           -- rows of its passages, ascending: 8 bytes each
    document_rows bytea NOT NULL,          -- rows of their documents
    lengths bytea NOT NULL,                -- two bytes for each field and passage
    deleted bytea NOT NULL                 -- rows of documents that its commits deleted from other segments
);
ALTER TABLE segments ALTER passage_rows SET STORAGE EXTERNAL;
ALTER TABLE segments ALTER document_rows SET STORAGE EXTERNAL;
ALTER TABLE segments ALTER lengths SET STORAGE EXTERNAL;
ALTER TABLE segments ALTER deleted SET STORAGE EXTERNAL;
CREATE TABLE postings (
    segment bigint NOT NULL,
    first_term bytea NOT NULL,
    data bytea NOT NULL,                   -- postings of this term and the following ones, see segments.py
    PRIMARY KEY (segment, first_term)
);
ALTER TABLE postings ALTER data SET STORAGE EXTERNAL;
"""

TIER_BITS = 3
"""Segments of a tier differ in size by at most 8 times."""
MERGE_FACTOR = 8
"""Segments of one tier that are merged. Each passage is written again some five times until its segment is full, and a
search reads at most seven segments of each tier."""
MAX_DELETED_SHARE, MIN_DELETED = 0.25, 200
"""Segments are rewritten when more passages are deleted than this share of the living ones, and than so many."""
SLICE_BYTES = 1_000_000
"""Postings that are merged at once: in memory they take 40 times as much. A merge of 56,000 passages takes 0.7 s of processor time."""
OTHER_ANALYZER = (
    "The lexical index was rebuilt, because this version of Marklight analyzes text differently;"
    " that happens once after an update"
)
OTHER_COUNT = "The lexical index was rebuilt, because documents were indexed without it"
PART_PASSAGES = 8_192
"""Passages that are analyzed at once in a rebuild, which bounds its memory; merges follow."""


class PostgresLexical(DerivedIndex[RowReader]):
    """The lexical index of one library, with its cache."""

    tables = ("segments", "postings")
    create_tables = TABLES

    def __init__(self, cache_bytes: int) -> None:
        super().__init__()
        self.cache = LexicalCache(cache_bytes)
        self._is_prepared = False

    def prepare(self, connections: Connections) -> None:
        """Rebuild the index if it is outdated; checked once, where the library exists and the role may write."""
        if self._is_prepared:
            return
        from marklight.engines.server.postgres.commit import try_exclusive

        with suppress(StoreError):
            with connections.connection() as connection:
                reason = outdated_reason(PostgresSession(connections, connection))
            if reason:
                with try_exclusive(connections) as session:
                    if session is None:
                        return
                    with session.transaction():
                        # Another process may have done it meanwhile.
                        if outdated_reason(session):
                            rebuild(session)
                self.notices.append(reason)
                self.after_commit(connections)
            self._is_prepared = True

    def apply(self, session: PostgresSession, change: IndexChange) -> None:
        """Add the passages of a commit, and tombstones of the documents that it deletes."""
        passages = [
            Passage(row, item.document, passage_terms(shared, chunk))
            for item in change.inserted
            for shared in [document_terms(item.entry.document)]
            for row, chunk in zip(item.chunk_rows, item.entry.chunks, strict=True)
        ]
        add_passages(session, passages, change.deleted_documents, len(change.deleted_chunks))

    def after_commit(self, connections: Connections) -> None:
        """Merge segments where there are many of one size."""
        merge_all(connections)

    def reader(self, snapshot: PostgresSnapshot) -> PostgresLexicalReader:
        return PostgresLexicalReader(snapshot, self.cache)

    def check(self, session: PostgresSession) -> list[str]:
        """Compare the index with the passages, rebuild it if it differs, and return the problems found."""
        if outdated_reason(session) == OTHER_ANALYZER:
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

    def close(self) -> None:
        """Drop the cache."""
        self.cache.clear()


def add_passages(
    session: PostgresSession,
    passages: Iterable[Passage],
    deleted_documents: Sequence[int] = (),
    deleted_passages: int = 0,
) -> None:
    """Store passages as segments, with tombstones of deleted documents."""
    ordered, tombstones = sorted(passages), np.array(sorted(deleted_documents), np.int64)
    for begin in range(0, max(len(ordered), bool(len(tombstones))), MAX_PASSAGES):
        added, table = build(ordered[begin : begin + MAX_PASSAGES])
        segment = insert_segment(session, added, len(added) - deleted_passages, tombstones)
        insert_postings(session, segment, encode_blocks(table))
        tombstones, deleted_passages = NO_ROWS, 0


def insert_segment(
    session: PostgresSession, passages: Passages, net_passages: int, deleted: Ints
) -> int:
    """Store a segment without its postings and return its id."""
    id = secrets.randbits(62)
    values = (
        *(id, analyzer_fingerprint(), len(passages), net_passages),
        *(*passages.encode(), deleted.astype("<i8").tobytes()),
    )
    session.run("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return id


def insert_postings(
    session: PostgresSession, segment: int, blocks: Iterable[tuple[bytes, bytes]]
) -> None:
    """Store blocks of postings; they must not be read from the same session."""
    with (
        session.locked() as connection,
        connection.cursor().copy("COPY postings FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.set_types(["int8", "bytea", "bytea"])
        for first_term, data in blocks:
            copy.write_row((segment, first_term, data))


class SegmentSize(NamedTuple):
    """Number of passages of a segment."""

    id: int
    passages: int

    @property
    def tier(self) -> int:
        return (max(1, self.passages) - 1).bit_length() // TIER_BITS


def merge_all(connections: Connections) -> None:
    """Merge until no tier has too many segments; return at once where another process merges."""
    with connections.connection() as connection:
        session = PostgresSession(connections, connection)
        while _merge_once(session):
            pass


def _merge_once(session: PostgresSession) -> bool:
    """Merge one set of segments in a transaction; return false if there is none."""
    if not _choose(session):  # without a lock: most commits need no merge
        return False
    with session.transaction():
        if not session.value("SELECT pg_try_advisory_xact_lock(?)", [merge_key(session)]):
            return False
        # Statements of the transaction see what an earlier merge committed.
        chosen = _choose(session)
        if chosen:
            merge_segments(session, chosen)
            # Without statistics, the planner reads all blocks of a small number of segments.
            session.run("ANALYZE segments, postings")
        return bool(chosen)


def merge_key(session: PostgresSession) -> int:
    """Return the key of the advisory lock under which segments are replaced."""
    return lock_key(session.connections.address.library, "merge")


def _choose(session: PostgresSession) -> list[int]:
    """Return the segments to be merged next; none if there is nothing to do."""
    rows = session.all(
        "SELECT id, passages, net_passages FROM segments WHERE analyzer = ? ORDER BY passages, id",
        [analyzer_fingerprint()],
    )
    sizes = [SegmentSize(id, passages) for id, passages, _ in rows]
    if by_size := choose_by_size(sizes):
        return by_size
    living = sum(net for _, _, net in rows)
    deleted = sum(each.passages for each in sizes) - living
    if deleted > max(MIN_DELETED, MAX_DELETED_SHARE * living):
        return _most_deleted(session, sizes)
    return []


def choose_by_size(sizes: Sequence[SegmentSize]) -> list[int]:
    """Return the segments of the smallest tier that has too many, with all smaller ones, as many as one segment can hold."""
    for tier in sorted({each.tier for each in sizes}):
        if sum(each.tier == tier for each in sizes) >= MERGE_FACTOR:
            chosen: list[int] = []
            total = 0
            for each in sizes:
                if each.tier <= tier and total + each.passages <= MAX_PASSAGES:
                    chosen.append(each.id)
                    total += each.passages
            if len(chosen) > 1:
                return chosen
    return []


def _most_deleted(session: PostgresSession, sizes: Sequence[SegmentSize]) -> list[int]:
    """Return the segment with the highest share of deleted passages."""
    deleted = _tombstones(session)
    shares = {
        each.id: float(np.isin(_documents(session, each.id), deleted).mean())
        for each in sizes
        if each.passages
    }
    worst = max(shares, key=shares.__getitem__, default=None)
    return [worst] if worst is not None and shares[worst] else []


def _documents(session: PostgresSession, segment: int) -> Ints:
    """Return the documents of the passages of a segment."""
    rows = session.value("SELECT document_rows FROM segments WHERE id = ?", [segment])
    return np.frombuffer(rows or b"", "<i8")


def _tombstones(session: PostgresSession) -> Ints:
    """Return all documents that were deleted while their segment stayed."""
    rows = session.all("SELECT deleted FROM segments WHERE deleted <> ''")
    return np.unique(np.frombuffer(b"".join(row for (row,) in rows), "<i8"))


def merge_segments(session: PostgresSession, ids: Sequence[int]) -> None:
    """Replace segments by one without their deleted passages."""
    rows = session.all(
        "SELECT id, passage_rows, document_rows, lengths, deleted, net_passages"
        " FROM segments WHERE id = ANY(?) ORDER BY id",
        [list(ids)],
    )
    olds = {id: Passages.decode(*columns[:3]) for id, *columns in rows}
    merged, offsets = _merge_passages(olds, _tombstones(session))
    deleted = _needed_tombstones(session, b"".join(row[4] for row in rows), ids)
    net_passages = sum(row[5] for row in rows)
    if len(merged) or len(deleted) or net_passages:
        segment = insert_segment(session, merged, net_passages, deleted)
        for first, end in _slices(session, ids):
            insert_postings(session, segment, _merged_blocks(session, offsets, first, end))
    session.run("DELETE FROM postings WHERE segment = ANY(?)", [list(ids)])
    session.run("DELETE FROM segments WHERE id = ANY(?)", [list(ids)])


def _merge_passages(
    olds: Mapping[int, Passages], deleted: Ints
) -> tuple[Passages, Mapping[int, Ints]]:
    """Return the living passages of segments, and for each segment the new offsets; -1 for deleted passages."""
    living = {id: ~np.isin(each.documents, deleted) for id, each in olds.items()}
    every = list(olds.values())
    alive = np.concatenate(list(living.values()))
    passage_rows = np.concatenate([each.rows for each in every])[alive]
    order = np.argsort(passage_rows)
    merged = Passages(
        passage_rows[order],
        np.concatenate([each.documents for each in every])[alive][order],
        np.concatenate([each.lengths for each in every], axis=1)[:, alive][:, order],
    )
    places = np.full(len(alive), -1, np.int64)
    places[np.flatnonzero(alive)[order]] = np.arange(len(order))
    ends = np.cumsum([len(each) for each in every])
    return merged, dict(zip(olds, np.split(places, ends[:-1]), strict=True))


def _needed_tombstones(session: PostgresSession, deleted: bytes, ids: Sequence[int]) -> Ints:
    """Return those tombstones of the merged segments whose documents other segments still have."""
    own = np.unique(np.frombuffer(deleted, "<i8"))
    found = np.zeros(len(own), bool)
    if len(own):
        others = session.all(
            "SELECT id FROM segments WHERE NOT id = ANY(?) AND passages > 0", [list(ids)]
        )
        for (other,) in others:
            found |= np.isin(own, _documents(session, other))
    return own[found]


def _merged_blocks(
    session: PostgresSession, offsets: Mapping[int, Ints], first: bytes, end: bytes | None
) -> list[tuple[bytes, bytes]]:
    """Return the blocks of the merged postings of a range of terms."""
    blocks: dict[int, list[bytes]] = {}
    # A block that begins before the range may reach into it.
    for segment, data in session.all(
        "SELECT p.segment, p.data FROM postings p JOIN unnest(?::bigint[]) s(id) ON p.segment = s.id"
        " WHERE p.first_term >= coalesce((SELECT b.first_term FROM postings b WHERE b.segment = s.id"
        " AND b.first_term <= ? ORDER BY b.first_term DESC LIMIT 1), '')"
        " AND (?::bytea IS NULL OR p.first_term < ?) ORDER BY p.segment, p.first_term",
        [list(offsets), first, end, end],
    ):
        blocks.setdefault(segment, []).append(data)
    tables = [_restricted(decode_blocks(own), first, end) for own in blocks.values()]
    return list(encode_blocks(merge(tables, [offsets[id] for id in blocks]))) if tables else []


def _slices(session: PostgresSession, ids: Sequence[int]) -> list[tuple[bytes, bytes | None]]:
    """Return half-open ranges of terms with about as many postings each."""
    cuts, total = [b""], 0
    for first, size in session.each(
        "SELECT first_term, length(data) FROM postings WHERE segment = ANY(?) ORDER BY first_term",
        [list(ids)],
    ):
        if total > SLICE_BYTES and first > cuts[-1]:
            cuts.append(first)
            total = 0
        total += size
    return list(zip(cuts, [*cuts[1:], None], strict=True))


def _restricted(table: PostingTable, first: bytes, end: bytes | None) -> PostingTable:
    """Return the postings of a range of terms."""
    low = bisect_left(table.terms, first)
    high = len(table.terms) if end is None else bisect_left(table.terms, end)
    own = slice(*np.searchsorted(table.term, [low, high]))
    return PostingTable(
        table.terms[low:high],
        table.term[own] - low,
        table.field[own],
        table.offset[own],
        table.frequency[own],
    )


def outdated_reason(session: PostgresSession) -> str:
    """Return why the index has to be rebuilt; empty if its analyzer and its number of passages are right."""
    other_analyzer, other_count = session.all(
        "SELECT count(*) FILTER (WHERE analyzer <> ?) > 0,"
        " coalesce(sum(net_passages), 0) <> (SELECT chunks FROM state) FROM segments",
        [analyzer_fingerprint()],
    )[0]
    return OTHER_ANALYZER if other_analyzer else OTHER_COUNT if other_count else ""


def rebuild(session: PostgresSession) -> None:
    """Write the index again from the passages, in the transaction of a session that excludes other writers."""
    session.value("SELECT pg_advisory_xact_lock(?)", [merge_key(session)])
    for table in PostgresLexical.tables:
        session.run(f"DELETE FROM {table}")
    part: list[Passage] = []
    for passage in stored_passages(session):
        if len(part) >= PART_PASSAGES:
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


def find_difference(session: PostgresSession) -> str:
    """Return how the index differs from the passages; empty if it does not."""
    if outdated_reason(session):
        return "the number of its passages is wrong"
    deleted, count = _tombstones(session), 0
    chunks: dict[int, int] = dict(session.all("SELECT row, document FROM chunks"))
    for id, *columns in session.all(
        "SELECT id, passage_rows, document_rows, lengths FROM segments"
    ):
        passages = Passages.decode(*columns)
        living = ~np.isin(passages.documents, deleted)
        count += int(living.sum())
        pairs = zip(
            passages.rows[living].tolist(), passages.documents[living].tolist(), strict=True
        )
        if any(chunks.get(row) != document for row, document in pairs):
            return "it had other passages than the database"
        blocks = session.each("SELECT data FROM postings WHERE segment = ?", [id])
        if (stored_lengths((data for (data,) in blocks), len(passages)) != passages.lengths).any():
            return "the lengths of its passages differ from their postings"
    if count != len(chunks):
        return f"it had {count} passages instead of {len(chunks)}"
    orphans = "SELECT 1 FROM postings p WHERE NOT EXISTS (SELECT 1 FROM segments s WHERE s.id = p.segment) LIMIT 1"
    return "it had postings without a segment" if session.value(orphans) else ""
