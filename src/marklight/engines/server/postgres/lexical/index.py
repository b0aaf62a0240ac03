"""Lexical index in PostgreSQL: tables of immutable segments, which commits add and merges replace.

A commit adds a segment with its passages, and a list of the documents that it deletes from older segments (tombstones). So
commits write no common row, and a snapshot sees exactly the segments of its commit. Sums over all segments give the exact number
of living passages and their lengths.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marklight.engines.lexical import analyzer_fingerprint, document_terms, passage_terms
from marklight.engines.server.postgres.lexical.cache import LexicalCache
from marklight.engines.server.postgres.lexical.posting_blocks import encode_blocks
from marklight.engines.server.postgres.lexical.segments import (
    FIELDS,
    MAX_PASSAGES,
    Ints,
    Passage,
    Passages,
    build,
)
from marklight.engines.server.postgres.session import PostgresSession
from marklight.errors import StoreError

if TYPE_CHECKING:
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.postgres.indexes import Change
    from marklight.engines.server.postgres.lexical.search import (
        FilteringSnapshot,
        PostgresLexicalReader,
    )

TABLES = """
CREATE TABLE segments (
    id bigint PRIMARY KEY,                 -- random, so that it is never used again
    analyzer text COLLATE "C" NOT NULL,    -- fingerprint of the analyzer that produced its terms
    passages bigint NOT NULL,              -- with those that were deleted since
    net_passages bigint NOT NULL,          -- passages that its commits added, minus those that they deleted
    net_lengths bigint[] NOT NULL,         -- the same for the sums of the lengths of each field
    passage_rows bytea NOT NULL,           -- rows of its passages, ascending: 8 bytes each
    document_rows bytea NOT NULL,          -- rows of their documents
    lengths bytea NOT NULL,                -- a byte for each field and passage
    deleted bytea NOT NULL                 -- rows of documents that its commits deleted from other segments
);
ALTER TABLE segments ALTER passage_rows SET STORAGE EXTERNAL;
ALTER TABLE segments ALTER document_rows SET STORAGE EXTERNAL;
ALTER TABLE segments ALTER lengths SET STORAGE EXTERNAL;
ALTER TABLE segments ALTER deleted SET STORAGE EXTERNAL;
CREATE TABLE postings (
    segment bigint NOT NULL,
    first_term bytea NOT NULL,
    data bytea NOT NULL,                   -- postings of this term and the following ones, see posting_blocks.py
    PRIMARY KEY (segment, first_term)
);
ALTER TABLE postings ALTER data SET STORAGE EXTERNAL;
CREATE TABLE document_lengths (
    document bigint PRIMARY KEY,
    passages bigint NOT NULL,
    lengths bigint[] NOT NULL              -- exact sums over its passages by field, subtracted when it is deleted
)
"""
"""No foreign keys: the rows of a deleted document are read after the document itself is gone."""


class NewSegment(NamedTuple):
    """A segment to be stored, but for its postings."""

    passages: Passages
    net_passages: int
    net_lengths: Sequence[int]
    deleted: Ints

    def insert(self, session: PostgresSession) -> int:
        """Store the segment without its postings and return its id."""
        id = secrets.randbits(62)
        values = (
            *(id, analyzer_fingerprint(), len(self.passages)),
            *(self.net_passages, list(self.net_lengths)),
            *(*self.passages.encode(), self.deleted.astype("<i8").tobytes()),
        )
        session.run("INSERT INTO segments VALUES (?, ?, ?, ?, ?::bigint[], ?, ?, ?, ?)", values)
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


class PostgresLexical:
    """The lexical index of one library, with its cache."""

    tables: Sequence[str] = ("segments", "postings", "document_lengths")
    create_tables = TABLES

    def __init__(self, cache_bytes: int) -> None:
        self.cache = LexicalCache(cache_bytes)
        self._is_prepared = False
        self._notices: deque[str] = deque()

    def prepare(self, connections: Connections) -> None:
        """Rebuild the index if another analyzer wrote it; checked once, where the library exists and the role may write."""
        if self._is_prepared:
            return
        from marklight.engines.server.postgres.lexical.repair import REBUILT, is_outdated, rebuild
        from marklight.engines.server.postgres.writers import try_exclusive

        with suppress(StoreError):
            with connections.connection() as connection:
                outdated = is_outdated(PostgresSession(connections, connection))
            if outdated:
                with try_exclusive(connections) as session:
                    if session is None:
                        return
                    with session.transaction():
                        # Another process may have done it meanwhile.
                        if is_outdated(session):
                            rebuild(session)
                self._notices.append(REBUILT)
                self.after_commit(connections)
            self._is_prepared = True

    def apply(self, session: PostgresSession, change: Change) -> None:
        """Add the passages of a commit, and tombstones of the documents that it deletes."""
        passages = [
            Passage(row, item.document, passage_terms(shared, chunk))
            for item in change.inserted
            for shared in [document_terms(item.entry.document)]
            for row, chunk in zip(item.chunks, item.entry.chunks, strict=True)
        ]
        add_passages(session, passages, change.deleted_documents)

    def finish(self, session: PostgresSession, change: Change, generation: int) -> None:
        """Do nothing: commits write segments in any order."""

    def after_commit(self, connections: Connections) -> None:
        """Merge segments where there are many of one size."""
        from marklight.engines.server.postgres.lexical.merge import merge_all

        merge_all(connections)

    def reader(self, snapshot: FilteringSnapshot) -> PostgresLexicalReader:
        """Return the reader for a snapshot."""
        from marklight.engines.server.postgres.lexical.search import PostgresLexicalReader

        return PostgresLexicalReader(snapshot, self.cache)

    def clean(self, session: PostgresSession, keep: Iterable[str]) -> int:  # noqa: ARG002
        """Return 0: no vectors are here."""
        return 0

    def check(self, session: PostgresSession) -> list[str]:
        """Compare the index with the passages, rebuild it if it differs, and return the problems found."""
        from marklight.engines.server.postgres.lexical import repair

        return repair.check(session)

    def status(self, session: PostgresSession) -> Mapping[str, Any]:  # noqa: ARG002
        """Return nothing: the index is in PostgreSQL."""
        return {}

    def take_notices(self) -> list[str]:
        """Return and clear notices about automatic repairs."""
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def close(self) -> None:
        """Drop the cache."""
        self.cache.clear()


def add_passages(
    session: PostgresSession, passages: Iterable[Passage], deleted_documents: Sequence[int] = ()
) -> None:
    """Store passages as segments, with tombstones of deleted documents."""
    deleted: list[int] = []
    net_passages, net_lengths = 0, np.zeros(len(FIELDS), np.int64)
    if deleted_documents:
        for document, count, lengths in session.all(
            "DELETE FROM document_lengths WHERE document = ANY(?) RETURNING document, passages, lengths",
            [sorted(deleted_documents)],
        ):
            deleted.append(document)
            net_passages -= count
            net_lengths -= lengths
    tombstones = np.array(sorted(deleted), np.int64)
    document_lengths = _DocumentLengths()
    for part in _parts(passages):
        added, table, lengths = build(part)
        document_lengths.add(added, lengths)
        segment = NewSegment(
            added,
            net_passages + len(added),
            (net_lengths + lengths.sum(axis=1)).tolist(),
            tombstones,
        )
        insert_postings(session, segment.insert(session), encode_blocks(table))
        tombstones, net_passages, net_lengths = tombstones[:0], 0, np.zeros_like(net_lengths)
    if len(tombstones):
        empty, _, _ = build([])
        NewSegment(empty, net_passages, net_lengths.tolist(), tombstones).insert(session)
    document_lengths.insert(session)


def _parts(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    """Yield passages in order of their rows, as many at a time as a segment can have."""
    part: list[Passage] = []
    for passage in sorted(passages):
        part.append(passage)
        if len(part) == MAX_PASSAGES:
            yield part
            part = []
    if part:
        yield part


class _DocumentLengths:
    """Exact lengths of documents, summed over their passages, which may be in two segments."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sums: dict[int, Ints] = {}

    def add(self, passages: Passages, lengths: Ints) -> None:
        """Add the passages of a segment."""
        documents, places, counts = np.unique(
            passages.documents, return_inverse=True, return_counts=True
        )
        sums = np.zeros((len(documents), len(FIELDS)), np.int64)
        np.add.at(sums, places, lengths.T)
        self._counts.update(dict(zip(documents.tolist(), counts.tolist(), strict=True)))
        for document, own in zip(documents.tolist(), sums, strict=True):
            self._sums[document] = self._sums.get(document, 0) + own

    def insert(self, session: PostgresSession) -> None:
        """Store them."""
        rows = (
            (document, self._counts[document], own.tolist()) for document, own in self._sums.items()
        )
        session.insert("document_lengths", "document, passages, lengths", rows)
