"""Digests of the blocks of documents: a row for each block of a document, read with bounded counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.engines.relational.documents import GIVEN_DOCUMENTS
from marklight.model import DocumentId
from marklight.ports import SharedBlock, StoredBlock

if TYPE_CHECKING:
    from marklight.engines.relational import SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot
    from marklight.engines.relational.write import InsertedEntry

_STORED = (
    "SELECT i.value, (SELECT count(*) FROM (SELECT 1 FROM blocks b WHERE b.digest = i.value LIMIT ?) few),"
    " (SELECT max(boilerplate) FROM (SELECT boilerplate FROM blocks b WHERE b.digest = i.value LIMIT 1) one)"
    " FROM integers(?) i WHERE EXISTS (SELECT 1 FROM blocks b WHERE b.digest = i.value)"
)
_ROWS = f"SELECT x.row FROM {GIVEN_DOCUMENTS}"
_BLOCKS_OF = (
    f"SELECT DISTINCT b.digest FROM {GIVEN_DOCUMENTS} CROSS JOIN blocks b ON b.document = x.row"
)
_NEXT_ORIGIN = (
    "SELECT min(b.origin) FROM blocks b WHERE b.digest = {digest}"
    " AND b.document NOT IN (SELECT value FROM integers(?) n)"
)
_ORIGINS = (
    "WITH RECURSIVE found (digest, origin, number) AS ("
    " SELECT i.value, ("
    + _NEXT_ORIGIN.format(digest="i.value")
    + "), 1 FROM integers(?) i UNION ALL SELECT f.digest, ("
    + _NEXT_ORIGIN.format(digest="f.digest AND b.origin > f.origin")
    + "), f.number + 1 FROM found f WHERE f.origin IS NOT NULL AND f.number < ?)"
    " SELECT digest, origin FROM found WHERE origin IS NOT NULL"
)
"""Each step is one search in the index, however many documents have the same origin."""


def insert(session: SqlSession, inserted: Iterable[InsertedEntry]) -> None:
    """Insert the blocks of new documents."""
    rows: list[tuple[int, int, int, int]] = []
    for item in inserted:
        if digests := item.entry.block_digests:
            origin = item.entry.document.origin
            rows += ((key, origin, item.document, int(shared)) for key, shared in digests.items())
    session.insert("blocks", "digest, origin, document, boilerplate", sorted(rows))


class RelationalBlocks:
    """Digests of the blocks of all documents."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._session = snapshot.session

    def stored(self, digests: Collection[int], limit: int) -> Mapping[int, StoredBlock]:
        """Return the blocks that any document has, with the number of documents up to a limit."""
        rows = self._session.all(_STORED, [limit, list(digests)]) if digests else []
        return {key: StoredBlock(count, bool(shared)) for key, count, shared in rows}

    def origins(
        self, digests: Collection[int], limit: int, without: Collection[DocumentId]
    ) -> Mapping[int, Collection[int]]:
        """Return up to `limit` different origins (`Document.origin`) of documents with each block, without some documents."""
        found: dict[int, list[int]] = defaultdict(list)
        if digests and limit > 0:
            rows = [row for (row,) in self._session.all(_ROWS, [list(without)])]
            for key, origin in self._session.all(_ORIGINS, [rows, list(digests), rows, limit]):
                found[key].append(origin)
        return found

    def digests_of(self, documents: Collection[DocumentId]) -> set[int]:
        """Return the blocks of documents; missing ids are skipped."""
        rows = self._session.all(_BLOCKS_OF, [list(documents)])
        return {digest for (digest,) in rows}

    def boilerplate_of(self, documents: Collection[DocumentId]) -> frozenset[int]:
        """Return those blocks of documents that were boilerplate when they were chunked."""
        rows = self._session.all(f"{_BLOCKS_OF} WHERE b.boilerplate = 1", [list(documents)])
        return frozenset(digest for (digest,) in rows)

    def documents_with(self, digests: Collection[int]) -> list[DocumentId]:
        """Return the documents with any of these blocks, ordered by id."""
        rows = self._session.all(
            "SELECT DISTINCT d.collection, d.path FROM integers(?) i"
            " CROSS JOIN blocks b ON b.digest = i.value CROSS JOIN documents d ON d.row = b.document"
            " ORDER BY 1, 2",
            [list(digests)],
        )
        return [DocumentId(*row) for row in rows]

    def count(self) -> int:
        """Return the number of different blocks that are boilerplate."""
        return int(
            self._session.value("SELECT count(DISTINCT digest) FROM blocks WHERE boilerplate = 1")
        )

    def most_shared(self, limit: int) -> Sequence[SharedBlock]:
        """Return the blocks of boilerplate that most documents have, those in most documents first."""
        rows = self._session.all(
            "SELECT s.digest, s.documents, d.collection, d.path FROM (SELECT digest, count(*) AS documents,"
            " min(document) AS example FROM blocks WHERE boilerplate = 1 GROUP BY digest"
            " ORDER BY 2 DESC, 1 LIMIT ?) s CROSS JOIN documents d ON d.row = s.example ORDER BY 2 DESC, 1",
            [max(0, limit)],
        )
        return [SharedBlock(digest, count, DocumentId(*id)) for digest, count, *id in rows]
