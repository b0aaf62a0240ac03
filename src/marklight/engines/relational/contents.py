"""Read everything that the tables store, group by group in the order of keys, for copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from marklight.engines.relational import records
from marklight.engines.relational.vocabulary import VOCABULARY
from marklight.model import DocumentId, Entry, FileState, Vectors

if TYPE_CHECKING:
    from marklight.engines.relational.session import Row
    from marklight.engines.relational.snapshot import RelationalSnapshot
    from marklight.model import Matrix

GROUP_DOCUMENTS, GROUP_BYTES = 128, 4_000_000
"""Documents that are read together with all that belongs to them: six queries; fewer if their files are large."""
GROUP_VECTORS = 1024
"""Vectors that are read together: 1.5 MB with 384 numbers a vector."""

_IDS = (
    "SELECT path, collection, row, size FROM documents WHERE (path, collection) > (?, ?)"
    " ORDER BY path, collection LIMIT ?"
)
_GIVEN = "FROM integers(?) i CROSS JOIN"
_DOCUMENTS = (
    "SELECT d.row, d.collection, d.path, d.size, d.mtime_ns, d.ctime_ns, d.digest, d.recipe, d.date,"
    f" c.record, c.remarks, c.text {_GIVEN} documents d ON d.row = i.value CROSS JOIN contents c ON c.document = d.row"
)
_LINKS = (
    f"SELECT l.document, {records.LINK} {_GIVEN} links l ON l.document = i.value ORDER BY l.row"
)
_NAMES = (
    f"SELECT n.document, n.key, n.strength {_GIVEN} names n ON n.document = i.value ORDER BY n.row"
)
_SECTIONS = (
    "SELECT s.document, s.id, s.headings, s.anchor, s.first_line, s.last_line, s.span_from, s.span_to"
    f" {_GIVEN} sections s ON s.document = i.value ORDER BY s.row"
)
_CHUNKS = (
    f"SELECT c.document, {records.CHUNK} {_GIVEN} documents d ON d.row = i.value"
    " CROSS JOIN chunks c ON c.document = d.row ORDER BY c.document, c.ordinal"
)
_BLOCKS = f"SELECT b.document, b.digest, b.boilerplate {_GIVEN} blocks b ON b.document = i.value ORDER BY 1, 2"
_TERM_VECTORS = (
    "SELECT v.term, v.vector FROM term_vectors v WHERE v.model = ? AND v.term > ?"
    f" AND v.term IN (SELECT w.term FROM ({VOCABULARY}) w) ORDER BY v.term LIMIT ?"
)


class RelationalContents:
    """Documents and vectors, ordered by key."""

    stored_vector: ClassVar[str] = "v.vector"
    """Column of a vector of a passage."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._session = snapshot.session

    def entries(self) -> Iterator[Entry]:
        """Yield all documents with their passages and sections, ordered by path, then by collection."""
        last = ("", "")
        while page := self._session.all(_IDS, [*last, GROUP_DOCUMENTS]):
            rows: list[int] = []
            size = 0
            for path, collection, row, length in page:
                rows.append(row)
                size += length
                last = path, collection
                if size >= GROUP_BYTES:
                    break  # the next query begins after this document
            yield from self._read(rows)

    def _read(self, rows: list[int]) -> Iterator[Entry]:
        """Yield the documents of some rows, in this order, with everything that belongs to them."""
        stored = {row: columns for row, *columns in self._session.all(_DOCUMENTS, [rows])}
        links, names = self._by_document(_LINKS, rows), self._by_document(_NAMES, rows)
        sections, chunks = self._by_document(_SECTIONS, rows), self._by_document(_CHUNKS, rows)
        blocks = self._by_document(_BLOCKS, rows)
        documents = {
            row: records.document(tuple(columns[:-1]), columns[-1], links[row], names[row])
            for row, columns in stored.items()
        }
        files = self.file_states([document.id for document in documents.values()])
        for row in rows:
            if document := documents.get(row):
                document = replace(document, file=files.get(document.id, document.file))
                own = tuple(map(records.chunk, chunks[row]))
                digests = {key: bool(shared) for key, shared in blocks[row]}
                yield Entry(
                    document,
                    own,
                    tuple(map(records.section, sections[row])),
                    block_digests=digests,
                )

    def _by_document(self, query: str, rows: list[int]) -> Mapping[int, list[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for document, *columns in self._session.all(query, [rows]):
            found[document].append(tuple(columns))
        return found

    def file_states(self, documents: Sequence[DocumentId]) -> Mapping[DocumentId, FileState]:  # noqa: ARG002
        """Return the states of files that differ from those stored with the documents."""
        return {}

    def models(self) -> Mapping[str, int]:
        """Return the fingerprints of models that have any vector, with the dimension of their vectors."""
        return dict(
            self._session.all(
                "SELECT name, dimension FROM models m WHERE EXISTS (SELECT 1 FROM vectors v WHERE v.model = m.row)"
                " OR EXISTS (SELECT 1 FROM term_vectors v WHERE v.model = m.row)"
            )
        )

    def vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors that passages use, with the bits that were committed, in groups ordered by digest."""
        query = (
            f"SELECT v.digest, {self.stored_vector} FROM vectors v WHERE v.model = ? AND v.digest > ?"
            " AND EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest) ORDER BY v.digest LIMIT ?"
        )
        for keys, rows, dimension in self._groups(query, model):
            yield Vectors(model, keys, self.decode_vectors(rows, dimension))

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors of vocabulary terms, with the bits that were committed, in groups ordered by term."""
        for keys, rows, dimension in self._groups(_TERM_VECTORS, model):
            yield Vectors(model, keys, _matrix(rows, dimension))

    def _groups(self, query: str, model: str) -> Iterator[tuple[tuple[str, ...], list[bytes], int]]:
        found = self._session.one("SELECT row, dimension FROM models WHERE name = ?", [model])
        if found is None:
            return
        row, dimension = found
        last = ""
        while page := self._session.all(query, [row, last, GROUP_VECTORS]):
            keys = tuple(key for key, _ in page)
            yield keys, [stored for _, stored in page], dimension
            last = keys[-1]

    def decode_vectors(self, rows: Sequence[bytes], dimension: int) -> Matrix:
        """Return stored vectors of passages as rows."""
        return _matrix(rows, dimension)


@records.raises_damaged
def _matrix(rows: Sequence[bytes], dimension: int) -> Matrix:
    if any(len(row) != 4 * dimension for row in rows):
        raise ValueError("a vector of another length")
    numbers = np.frombuffer(b"".join(rows), dtype="<f4").astype(np.float32, copy=False)
    return numbers.reshape(len(rows), dimension)
