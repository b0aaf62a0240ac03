"""Snapshot of the embedded engine: readers over one transaction of SQLite, and what snapshots share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.engines.embedded.session import SqliteSession
from marklight.engines.relational.cache import Caches
from marklight.engines.relational.snapshot import RelationalSnapshot, RelationalStatus
from marklight.model import DocumentId
from marklight.once import once

if TYPE_CHECKING:
    from marklight.engines.embedded.lexical_index import LexicalIndex
    from marklight.engines.embedded.lexical_search import EmbeddedLexical
    from marklight.engines.embedded.session import WriterLock
    from marklight.engines.embedded.store import Store
    from marklight.engines.embedded.vector_files import MappedVectors
    from marklight.engines.embedded.vector_search import EmbeddedVectors
    from marklight.engines.relational.filters import RowFilter


@dataclass(frozen=True, slots=True)
class Parts:
    """Resources of an engine that its snapshots share."""

    folder: Path
    writer_lock: WriterLock
    store: Store
    lexical: LexicalIndex
    mapped_vectors: MappedVectors
    max_exact_vectors: int
    """Vectors up to which all are compared with the query."""
    caches: Caches = field(default_factory=Caches)

    def forget(self) -> None:
        """Drop everything that was read or mapped."""
        self.mapped_vectors.clear()
        self.caches.clear()
        self.lexical.forget()


class EmbeddedSnapshot(RelationalSnapshot):
    """Consistent view of one commit; its readers import what they need when they are first used."""

    session: SqliteSession

    def __init__(self, parts: Parts, session: SqliteSession) -> None:
        generation, library, *state = session.all(
            "SELECT generation, library, opstamp, lexical_commit, chunks, unused_vectors FROM state"
        )[0]
        super().__init__(session, parts.caches, library, generation)
        self.parts = parts
        self.opened_at = time.monotonic()
        self.opstamp: int = state[0]
        self.lexical_commit: str = state[1]
        self.chunk_count: int = state[2]
        self.unused_vectors: int = state[3]
        if parts.lexical.is_open:
            self.lexical.open_early()

    @once
    def lexical(self) -> EmbeddedLexical:
        from marklight.engines.embedded.lexical_search import EmbeddedLexical

        return EmbeddedLexical(self)

    @once
    def vectors(self) -> EmbeddedVectors:
        from marklight.engines.embedded.vector_search import EmbeddedVectors

        return EmbeddedVectors(self)

    @once
    def status(self) -> EmbeddedStatus:
        return EmbeddedStatus(self.session)

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> Sequence[int]:
        return self.lexical.rows_with_terms(terms, rows)


class EmbeddedStatus(RelationalStatus):
    """Counts, manifest, failures and integrity of the tables."""

    _session: SqliteSession

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:
        from marklight.engines.embedded.checksums import damaged_passages

        return damaged_passages(self._session, ids)

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        from marklight.engines.embedded import checksums
        from marklight.engines.relational.documents import column

        rows: Mapping[DocumentId, int] = column(self._session, "row", documents)
        damaged = set(checksums.damaged_documents(self._session, list(rows.values())))
        return {id for id, row in rows.items() if row in damaged}
