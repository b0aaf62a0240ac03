"""Read everything that the tables store, page by page in the order of keys, for copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from marklight.engines.relational import records
from marklight.engines.relational.vocabulary import VOCABULARY
from marklight.model import DocumentId, Entry, Vectors

if TYPE_CHECKING:
    from marklight.engines.embedded.snapshot import EmbeddedSnapshot
    from marklight.model import Matrix

PAGE_DOCUMENTS = 256
"""Ids of documents that are read at once; their texts are read one by one, as one may have 20 MB."""
PAGE_VECTORS = 1024
"""Vectors read at once: 1.5 MB with 384 numbers a vector."""

_SECTIONS = (
    "SELECT s.id, s.headings, s.anchor, s.first_line, s.last_line, s.span_from, s.span_to FROM sections s"
    " JOIN documents d ON d.row = s.document WHERE d.collection = ? AND d.path = ? ORDER BY s.row"
)
_VECTORS = (
    "SELECT v.digest, v.vector FROM vectors v WHERE v.model = ? AND v.digest > ?"
    " AND EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest) ORDER BY v.digest LIMIT ?"
)
_TERM_VECTORS = (
    "SELECT v.term, v.vector FROM term_vectors v WHERE v.model = ? AND v.term > ?"
    f" AND v.term IN (SELECT w.term FROM ({VOCABULARY}) w) ORDER BY v.term LIMIT ?"
)


class EmbeddedContents:
    """Documents and vectors, ordered by key."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def entries(self) -> Iterator[Entry]:
        documents, last = self._snapshot.documents, ("", "")
        while page := self._session.all(
            "SELECT path, collection FROM documents WHERE (path, collection) > (?, ?)"
            " ORDER BY path, collection LIMIT ?",
            [*last, PAGE_DOCUMENTS],
        ):
            for path, collection in page:
                id = DocumentId(collection, path)
                if document := documents.get(id):
                    sections = map(records.section, self._session.all(_SECTIONS, id))
                    yield Entry(document, tuple(documents.chunks_of(id)), tuple(sections))
            last = page[-1]

    def models(self) -> Mapping[str, int]:
        return dict(
            self._session.all(
                "SELECT name, dimension FROM models m WHERE EXISTS (SELECT 1 FROM vectors v WHERE v.model = m.row)"
                " OR EXISTS (SELECT 1 FROM term_vectors v WHERE v.model = m.row)"
            )
        )

    def vectors(self, model: str) -> Iterator[Vectors]:
        return self._pages(_VECTORS, model)

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        return self._pages(_TERM_VECTORS, model)

    def _pages(self, query: str, model: str) -> Iterator[Vectors]:
        row, last = self._session.value("SELECT row FROM models WHERE name = ?", [model]), ""
        while page := self._session.all(query, [row, last, PAGE_VECTORS]):
            keys = tuple(key for key, _ in page)
            yield Vectors(model, keys, _matrix([vector for _, vector in page]))
            last = keys[-1]


@records.raises_damaged
def _matrix(rows: list[bytes]) -> Matrix:
    """Return stored vectors as rows; all must have the same length."""
    lengths = {len(row) for row in rows}
    if len(lengths) != 1:
        raise ValueError("vectors of several lengths")
    numbers = np.frombuffer(b"".join(rows), dtype="<f4").astype(np.float32, copy=False)
    return numbers.reshape(len(rows), -1)
