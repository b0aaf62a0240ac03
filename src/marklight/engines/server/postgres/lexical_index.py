"""Lexical index in PostgreSQL: tables of immutable segments, which commits add and merges replace.

A commit adds a segment with its passages, and a list of the documents that it deletes from older segments (tombstones). So
commits write no common row, and a snapshot sees exactly the segments of its commit. Segments are merged by tiers in transactions
of their own, which also drops deleted passages; commits go on meanwhile, and snapshots keep seeing the segments that were merged.
A merge that is interrupted is rolled back. An index that does not match the passages is rebuilt from them.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from marklight.engines.relational.documents import passages_to_index
from marklight.engines.relational.filters import RowReader
from marklight.engines.server.bm25 import Ints
from marklight.engines.server.postgres import DerivedIndex
from marklight.engines.server.postgres.lexical_search import LexicalCache, PostgresLexicalReader
from marklight.engines.server.postgres.segments import (
    MAX_PASSAGES,
    NO_ROWS,
    DamagedSegment,
    Passage,
    Passages,
    build,
    decode_blocks,
    encode_blocks,
    merge,
    stored_lengths,
)
from marklight.engines.server.postgres.session import PostgresSession, borrowed_session
from marklight.errors import StoreError
from marklight.lexical import analyzer_fingerprint, document_terms, passage_terms

if TYPE_CHECKING:
    from marklight.engines.relational.write import ChangedRows
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.postgres.engine import PostgresSnapshot

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
        with suppress(StoreError), borrowed_session(connections) as session:
            if reason := outdated_reason(session):
                with session.transaction():
                    key = session.lock_key("writers")
                    if not session.value("SELECT pg_try_advisory_xact_lock(?)", [key]):
                        return
                    if outdated_reason(session):  # else another process has done it meanwhile
                        rebuild(session)
                self.notices.append(reason)
                merge_all(session)
            self._is_prepared = True

    def apply(self, session: PostgresSession, change: ChangedRows) -> None:
        """Add the passages of a commit, and tombstones of the documents that it deletes."""
        passages = [
            Passage(row, item.document, passage_terms(shared, chunk))
            for item in change.inserted
            for shared in [document_terms(item.entry.document)]
            for row, chunk in zip(item.chunk_rows, item.entry.chunks, strict=True)
        ]
        add_passages(session, passages, change.deleted.values(), len(change.deleted_chunks))

    def after_commit(self, connections: Connections) -> None:
        """Merge segments where there are many of one size."""
        with borrowed_session(connections) as session:
            merge_all(session)

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
    deleted_documents: Iterable[int] = (),
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
    session.insert("postings", "segment, first_term, data", ((segment, *block) for block in blocks))


def merge_all(session: PostgresSession) -> None:
    """Merge until no tier has too many segments; return at once where another process merges."""
    while _choose(session) and _merge_once(session):  # most commits need no merge
        pass


def _merge_once(session: PostgresSession) -> bool:
    """Merge one set of segments in a transaction; return false if there is none."""
    with session.transaction():
        if not session.value("SELECT pg_try_advisory_xact_lock(?)", [session.lock_key("merge")]):
            return False
        # Statements of the transaction see what an earlier merge committed.
        chosen = _choose(session)
        if chosen:
            merge_segments(session, chosen)
        return bool(chosen)


def _choose(session: PostgresSession) -> list[int]:
    """Return the segments to be merged next; none if there is nothing to do, or if this role may not merge."""
    rows = session.all(
        "SELECT id, passages, net_passages FROM segments WHERE analyzer = ?"
        " AND has_table_privilege('segments', 'DELETE') ORDER BY passages, id",
        [analyzer_fingerprint()],
    )
    sizes = {id: passages for id, passages, _ in rows}
    if by_size := choose_by_size(sizes):
        return by_size
    living = sum(net for _, _, net in rows)
    if sum(sizes.values()) - living > max(MIN_DELETED, MAX_DELETED_SHARE * living):
        return _most_deleted(session, [id for id, passages in sizes.items() if passages])
    return []


def choose_by_size(sizes: Mapping[int, int]) -> list[int]:
    """Return the segments of the smallest tier that has too many, with all smaller ones, as many as one segment can hold.

    `sizes` has the passages of each segment, in ascending order.
    """
    tiers = {id: (max(1, size) - 1).bit_length() // TIER_BITS for id, size in sizes.items()}
    for tier, count in sorted(Counter(tiers.values()).items()):
        if count >= MERGE_FACTOR:
            chosen: list[int] = []
            total = 0
            for id, size in sizes.items():
                if tiers[id] <= tier and total + size <= MAX_PASSAGES:
                    chosen.append(id)
                    total += size
            if len(chosen) > 1:
                return chosen
    return []


def _most_deleted(session: PostgresSession, segments: Sequence[int]) -> list[int]:
    """Return the segment with the highest share of deleted passages."""
    deleted = _tombstones(session)
    shares = {id: float(np.isin(_documents(session, id), deleted).mean()) for id in segments}
    worst = max(segments, key=shares.__getitem__, default=0)
    return [worst] if shares.get(worst) else []


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
        cuts = _cuts(session, ids)
        for first, end in zip(cuts, [*cuts[1:], None], strict=False):  # no cut without postings
            insert_postings(session, segment, _merged_blocks(session, offsets, first, end))
    session.run("DELETE FROM postings WHERE segment = ANY(?)", [list(ids)])
    session.run("DELETE FROM segments WHERE id = ANY(?)", [list(ids)])


def _merge_passages(
    olds: Mapping[int, Passages], deleted: Ints
) -> tuple[Passages, Mapping[int, Ints]]:
    """Return the living passages of segments, and for each segment the new offsets; -1 for deleted passages."""
    parts = list(olds.values())
    documents = np.concatenate([part.documents for part in parts])
    passage_rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(passage_rows)
    order = order[~np.isin(documents[order], deleted)]
    lengths = np.concatenate([part.lengths for part in parts], axis=1)[:, order]
    places = np.full(len(documents), -1, np.int64)
    places[order] = np.arange(len(order))
    ends = np.cumsum([len(part) for part in parts])
    offsets = dict(zip(olds, np.split(places, ends[:-1]), strict=True))
    return Passages(passage_rows[order], documents[order], lengths), offsets


def _needed_tombstones(session: PostgresSession, deleted: bytes, ids: Sequence[int]) -> Ints:
    """Return those tombstones of the merged segments whose documents other segments still have."""
    tombstones = np.unique(np.frombuffer(deleted, "<i8"))
    needed = np.zeros(len(tombstones), bool)
    if len(tombstones):
        others = "SELECT id FROM segments WHERE NOT id = ANY(?) AND passages > 0"
        for (other,) in session.all(others, [list(ids)]):
            needed |= np.isin(tombstones, _documents(session, other))
    return tombstones[needed]


def _cuts(session: PostgresSession, ids: Sequence[int]) -> list[bytes]:
    """Return the first terms of ranges with about as many postings each."""
    rows = session.all(
        "SELECT min(first_term) FROM (SELECT first_term, sum(length(data)) OVER (ORDER BY first_term) / ?"
        " AS range FROM postings WHERE segment = ANY(?)) p GROUP BY range ORDER BY 1",
        [SLICE_BYTES, list(ids)],
    )
    return [first for (first,) in rows]


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
    tables = [decode_blocks(parts).between(first, end) for parts in blocks.values()]
    return list(encode_blocks(merge(tables, [offsets[id] for id in blocks]))) if tables else []


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
    session.value("SELECT pg_advisory_xact_lock(?)", [session.lock_key("merge")])
    for table in PostgresLexical.tables:
        session.run(f"DELETE FROM {table}")
    stored = passages_to_index(session)
    while part := list(islice(stored, PART_PASSAGES)):
        add_passages(
            session,
            (
                Passage(row, document, passage_terms(shared, chunk))
                for row, document, chunk, shared in part
            ),
        )


def find_difference(session: PostgresSession) -> str:
    """Return how the index differs from the passages; empty if it does not."""
    if outdated_reason(session):
        return "the number of its passages is wrong"
    deleted, indexed = _tombstones(session), dict[int, int]()
    for id, *columns in session.all(
        "SELECT id, passage_rows, document_rows, lengths FROM segments"
    ):
        passages = Passages.decode(*columns)
        living = ~np.isin(passages.documents, deleted)
        rows, documents = passages.rows[living].tolist(), passages.documents[living].tolist()
        indexed.update(zip(rows, documents, strict=True))
        blocks = session.each("SELECT data FROM postings WHERE segment = ?", [id])
        if (stored_lengths((data for (data,) in blocks), len(passages)) != passages.lengths).any():
            return "the lengths of its passages differ from their postings"
    if indexed != dict(session.all("SELECT row, document FROM chunks")):
        return "it had other passages than the database"
    orphans = "SELECT 1 FROM postings p WHERE NOT EXISTS (SELECT 1 FROM segments s WHERE s.id = p.segment) LIMIT 1"
    return "it had postings without a segment" if session.value(orphans) else ""
