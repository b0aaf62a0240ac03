"""Read everything that a library stores, page by page in the order of keys, for copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from marklight.engines.embedded.contents import PAGE_VECTORS, EmbeddedContents
from marklight.engines.postgres.vector_codec import unpack
from marklight.engines.postgres.vector_table import STORED
from marklight.model import Vectors

if TYPE_CHECKING:
    from marklight.engines.postgres.snapshot import PostgresSnapshot

_VECTORS = (
    f"SELECT v.digest, {STORED} FROM vectors v WHERE v.model = ? AND v.digest > ?"
    " AND EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest) ORDER BY v.digest LIMIT ?"
)


class PostgresContents(EmbeddedContents):
    """Documents and vectors, ordered by key; vectors are stored in the format of pgvector."""

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        source: Any = snapshot
        super().__init__(source)

    def vectors(self, model: str) -> Iterator[Vectors]:
        found, last = (
            self._session.one("SELECT row, dimension FROM models WHERE name = ?", [model]),
            "",
        )
        if found is None:
            return
        row, dimension = found
        while page := self._session.all(_VECTORS, [row, last, PAGE_VECTORS]):
            keys = tuple(key for key, _ in page)
            yield Vectors(model, keys, unpack([stored for _, stored in page], dimension))
            last = keys[-1]
