"""Snapshot of the PostgreSQL engine: readers over one read-only transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.batch import Failure
from marklight.engines.relational.documents import RelationalDocuments
from marklight.engines.relational.snapshot import RelationalSnapshot, RelationalStatus
from marklight.engines.server.postgres import file_states
from marklight.model import DocumentId
from marklight.once import once

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter
    from marklight.engines.relational.session import Row
    from marklight.engines.server.postgres.contents import PostgresContents
    from marklight.engines.server.postgres.engine import PostgresEngine
    from marklight.engines.server.postgres.indexes import RowReader
    from marklight.engines.server.postgres.session import SnapshotSession
    from marklight.ports import IndexedFile, PathRange, VectorReader


class PostgresSnapshot(RelationalSnapshot):
    """Consistent view of one commit; keyword and vector search come from the indexes of the engine."""

    session: SnapshotSession

    def __init__(self, engine: PostgresEngine, session: SnapshotSession, state: Row) -> None:
        """Take the columns of `schema.READ_STATE`."""
        _, generation, library, self.document_count, self.chunk_count, *counts = state
        self.embeddable_count, self.unused_vectors = counts
        super().__init__(session, engine.caches, library, generation)
        self.engine = engine

    @once
    def documents(self) -> PostgresDocuments:
        return PostgresDocuments(self)

    @once
    def lexical(self) -> RowReader:
        return self.engine.lexical.reader(self)

    @once
    def vectors(self) -> VectorReader:
        return self.engine.vectors.reader(self)

    @once
    def contents(self) -> PostgresContents:
        from marklight.engines.server.postgres.contents import PostgresContents

        return PostgresContents(self)

    @once
    def status(self) -> PostgresStatus:
        return PostgresStatus(self)

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> Sequence[int]:
        return self.lexical.rows_with_terms(terms, rows)

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> Mapping[str, Sequence[int]]:
        return self.lexical.rows_by_term(terms, field, rows)


class PostgresDocuments(RelationalDocuments):
    """Documents with the states of their files on this machine."""

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._files_session = snapshot.session
        self._machine = snapshot.engine.settings.machine

    def files(self, ranges: Sequence[PathRange] | None = None) -> Mapping[DocumentId, IndexedFile]:
        return file_states.files(self._files_session, self._machine, ranges)

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        return file_states.files_of(self._files_session, self._machine, documents)


class PostgresStatus(RelationalStatus):
    """Counts, manifest and remarks of the library, and the failures of this machine."""

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._failures_session = snapshot.session
        self._machine = snapshot.engine.settings.machine

    def _count_failures(self) -> int:
        return file_states.count_failures(self._failures_session, self._machine)

    def failures(self) -> Sequence[Failure]:
        return file_states.failures(self._failures_session, self._machine)
