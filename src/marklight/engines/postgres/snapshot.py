"""Snapshot of the PostgreSQL engine: readers over one read-only transaction."""

from __future__ import annotations

from marklight.engines.postgres.session import SnapshotSession


class PostgresSnapshot:
    """Consistent view of one commit."""

    def __init__(self, session: SnapshotSession, generation: int) -> None:
        self.session = session
        self.generation = generation
