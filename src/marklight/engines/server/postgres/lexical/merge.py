"""Merge segments of the lexical index by tiers, and drop deleted passages, in transactions of their own.

Commits go on meanwhile, and snapshots keep seeing the segments that were merged. A merge that is interrupted is rolled back.
Terms are merged in slices, so that memory does not grow with the size of a segment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marklight.engines.lexical import analyzer_fingerprint
from marklight.engines.server.postgres.lexical.index import NewSegment, insert_postings
from marklight.engines.server.postgres.lexical.posting_blocks import decode_blocks, encode_blocks
from marklight.engines.server.postgres.lexical.segments import (
    MAX_PASSAGES,
    NO_ROWS,
    Ints,
    Passages,
    PostingTable,
    merge,
)
from marklight.engines.server.postgres.schema import lock_key
from marklight.engines.server.postgres.session import PostgresSession

if TYPE_CHECKING:
    from marklight.engines.server.postgres.connections import Connections

TIER_BITS = 3
"""Segments of a tier differ in size by at most 8 times."""
MERGE_FACTOR = 8
"""Segments of one tier that are merged. Each passage is written again some five times until its segment is full, and a
search reads at most seven segments of each tier."""
MAX_DELETED_SHARE, MIN_DELETED = 0.25, 200
"""Segments are rewritten when more passages are deleted than this share of the living ones, and than so many."""
SLICE_BYTES = 1_000_000
"""Postings that are merged at once: in memory they take 40 times as much. A merge of 56,000 passages takes 0.7 s of processor time."""


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


def living_passages(session: PostgresSession) -> list[tuple[Ints, Ints]]:
    """Return the rows of all passages of the index that are not deleted, and of their documents, by segment."""
    deleted = _tombstones(session)
    found = [(NO_ROWS, NO_ROWS)]
    for columns in session.all("SELECT passage_rows, document_rows, lengths FROM segments"):
        passages = Passages.decode(*columns)
        living = ~passages.of_documents(deleted)
        found.append((passages.rows[living], passages.documents[living]))
    return found


def merge_segments(session: PostgresSession, ids: Sequence[int]) -> None:
    """Replace segments by one without their deleted passages."""
    rows = session.all(
        "SELECT id, passage_rows, document_rows, lengths, deleted, net_passages, net_lengths"
        " FROM segments WHERE id = ANY(?) ORDER BY id",
        [list(ids)],
    )
    olds = {id: Passages.decode(*columns[:3]) for id, *columns in rows}
    merged, offsets = _merge_passages(olds, _tombstones(session))
    net_lengths = [sum(lengths) for lengths in zip(*(row[6] for row in rows), strict=True)]
    new = NewSegment(
        merged,
        sum(row[5] for row in rows),
        net_lengths,
        _needed_tombstones(session, b"".join(row[4] for row in rows), ids),
    )
    if len(merged) or len(new.deleted) or new.net_passages or any(net_lengths):
        segment = new.insert(session)
        for first, end in _slices(session, ids):
            insert_postings(session, segment, _merged_blocks(session, offsets, first, end))
    session.run("DELETE FROM postings WHERE segment = ANY(?)", [list(ids)])
    session.run("DELETE FROM segments WHERE id = ANY(?)", [list(ids)])


def _merge_passages(
    olds: Mapping[int, Passages], deleted: Ints
) -> tuple[Passages, Mapping[int, Ints]]:
    """Return the living passages of segments, and for each segment the new offsets; -1 for deleted passages."""
    living = {id: ~each.of_documents(deleted) for id, each in olds.items()}
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
