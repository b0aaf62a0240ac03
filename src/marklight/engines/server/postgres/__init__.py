"""The PostgreSQL engine: one server for many people, one schema for each library."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from marklight.engines.relational.filters import RowReader
from marklight.ports import VectorReader

if TYPE_CHECKING:
    from marklight.engines.relational.write import ChangedRows
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.postgres.engine import PostgresSnapshot
    from marklight.engines.server.postgres.session import PostgresSession


Reader = TypeVar("Reader")


class DerivedIndex(Generic[Reader]):
    """An index over passages that follows the tables: written by the same transaction, or shipped after it.

    Its methods do nothing unless an index replaces them.
    """

    tables: Sequence[str]
    """Its own tables; the first of them shows whether they exist."""
    create_tables: str
    """Statements that create them."""

    def __init__(self) -> None:
        self.notices: deque[str] = deque()
        """Notices about automatic repairs."""

    def prepare(self, connections: Connections) -> None:
        """Bring the index up to date before a snapshot or a writer opens its transaction.

        Called often, so it should usually do nothing. The library may not exist, and the role may only read.
        """

    def apply(self, session: PostgresSession, change: ChangedRows) -> None:
        """Write rows in the transaction of a commit, while other commits do the same.

        The rows of documents and passages are written already. Rows that two commits may write must be written in sorted
        order with ON CONFLICT, so that no deadlock occurs.
        """

    def finish(self, session: PostgresSession, change: ChangedRows, generation: int) -> None:
        """Write what must be in the order of commits, in the same transaction; all other commits wait for it."""

    def after_commit(self, connections: Connections) -> None:
        """Do what need not be in the transaction, such as merging or shipping; an error does not undo the commit."""

    def reader(self, snapshot: PostgresSnapshot) -> Reader:
        """Return the reader for a snapshot; its session is `snapshot.session`."""
        raise NotImplementedError

    def maintain(self) -> None:
        """Check the index after this commit: cleaning or repairing may delete what it has."""

    def check(self, session: PostgresSession) -> list[str]:
        """Compare the index with the passages, rebuild it if it differs, and return the problems found."""
        raise NotImplementedError

    def status(self, session: PostgresSession) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what `marklight status` shows of a server of its own."""
        return {}

    def close(self) -> None:
        """Release caches and connections of its own."""


LexicalIndex = DerivedIndex[RowReader]
VectorIndex = DerivedIndex[VectorReader]
