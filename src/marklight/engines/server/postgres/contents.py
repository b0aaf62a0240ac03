"""Read everything that a library stores: vectors in the format of pgvector, states of files of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.engines.relational.contents import RelationalContents
from marklight.engines.server.postgres.vector_table import STORED, unpack
from marklight.model import DocumentId, FileState

if TYPE_CHECKING:
    from marklight.engines.server.postgres.snapshot import PostgresSnapshot
    from marklight.model import Matrix


class PostgresContents(RelationalContents):
    """Documents and vectors, ordered by key."""

    stored_vector = STORED

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._documents = snapshot.documents

    def file_states(self, documents: Sequence[DocumentId]) -> Mapping[DocumentId, FileState]:
        files = self._documents.files_of(documents)
        return {id: each.file for id, each in files.items()}

    def decode_vectors(self, rows: Sequence[bytes], dimension: int) -> Matrix:
        return unpack(rows, dimension)
