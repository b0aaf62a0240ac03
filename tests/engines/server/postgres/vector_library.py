"""A library in PostgreSQL with documents, passages and vectors only, written by plain statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marklight.engines import PostgresSettings, parse_address
from marklight.engines.relational.filters import RowFilter
from marklight.engines.relational.snapshot import SnapshotCache
from marklight.engines.relational.write import ChangedRows
from marklight.engines.server.postgres import schema
from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import PostgresVectors, add_vectors
from marklight.engines.server.postgres.vector_search import PostgresVectorReader
from marklight.model import Batch, Vectors
from marklight.ports import ScoredChunk
from marklight.query import Filters

Floats = NDArray[np.float32]


class Snapshot:
    """The parts of a snapshot that the reader uses."""

    def __init__(self, session: PostgresSession, rows: RowFilter | None) -> None:
        self.session = session
        self._rows = rows
        self.cache = SnapshotCache(0)
        self.document_count, self.unused_vectors = session.all(
            "SELECT documents, unused_vectors FROM state"
        )[0]

    def row_filter(self, filters: Filters) -> RowFilter | None:
        return self._rows


class VectorLibrary:
    """Passages with ids and digests made of their numbers, and ten passages in each document."""

    def __init__(self, address: str, **settings: int) -> None:
        parsed = parse_address(address)
        self.connections = Connections(ServerAddress(parsed.dsn, parsed.library))
        self.index = PostgresVectors(PostgresSettings(**settings))
        with self.connections.connection() as connection:
            schema.prepare(self.connections, connection, [self.index])

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        with self.connections.connection() as connection:
            yield PostgresSession(self.connections, connection)

    def add(self, matrix: Floats, first: int = 0, model: str = "m", documents: int = 0) -> None:
        """Commit passages with these vectors, numbered from `first`."""
        numbers = range(first, first + len(matrix))
        with self.session() as session, session.transaction():
            owners = sorted({self.document(number, documents) for number in numbers})
            known = {row for (row,) in session.all("SELECT row FROM documents")}
            session.insert(
                "documents",
                "row, collection, path, size, mtime_ns, ctime_ns, digest, recipe, timestamp",
                (
                    (row, "docs", f"{row}.md", 1, 1, 1, "", "", "")
                    for row in owners
                    if row not in known
                ),
            )
            session.insert(
                "chunks",
                "row, id, document, ordinal, digest, kind, parent, anchor, first_line, last_line,"
                " title, headings, merged, languages, code, text, boilerplate, levels",
                (
                    (
                        number + 1,
                        f"id{number:06}",
                        self.document(number, documents),
                        number,
                        f"digest{number:06}",
                        "prose",
                        "",
                        "",
                        1,
                        1,
                        *([""] * 8),
                    )
                    for number in numbers
                ),
            )
        self.embed(matrix, first, model)

    @staticmethod
    def document(number: int, documents: int) -> int:
        """Return the row of the document of a passage."""
        return 1 + (number % documents if documents else number // 10)

    def embed(self, matrix: Floats, first: int = 0, model: str = "m") -> None:
        """Commit vectors of passages that exist, or of none."""
        digests = tuple(f"digest{number:06}" for number in range(first, first + len(matrix)))
        vectors = Vectors(model, digests, matrix)
        with self.session() as session:
            with session.transaction():
                add_vectors(session, vectors)
                session.run(
                    "UPDATE models m SET embedded = (SELECT count(*) FROM chunks c JOIN vectors v"
                    " ON v.digest = c.digest AND v.model = m.row)"
                )
                session.run(
                    "UPDATE state SET documents = (SELECT count(*) FROM documents),"
                    " chunks = (SELECT count(*) FROM chunks), unused_vectors = (SELECT count(*) FROM vectors v"
                    " WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest))"
                )
                self.index.finish(session, ChangedRows(Batch(vectors=vectors)), 1)
            self.index.after_commit(self.connections)

    def build(self) -> None:
        """Wait for the HNSW index."""
        self.index.wait()
        assert not self.index.notices

    @contextmanager
    def reader(
        self, rows: RowFilter | None = None, settings: PostgresSettings | None = None
    ) -> Iterator[PostgresVectorReader]:
        with self.session() as session, session.transaction():
            session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshot: Any = Snapshot(session, rows)
            yield PostgresVectorReader(snapshot, settings or self.index.settings)
            session.run("SELECT pg_stat_force_next_flush()")  # for `index_scans`

    def search(
        self, query: Floats, limit: int, rows: RowFilter | None = None, model: str = "m"
    ) -> list[ScoredChunk]:
        with self.reader(rows) as reader:
            return reader.search(query, model, Filters(), limit)

    def indexes(self) -> dict[str, bool]:
        """Return the HNSW indexes, with True for those that are complete."""
        with self.session() as session:
            return dict(
                session.all(
                    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
                    " WHERE i.indrelid = to_regclass('vectors') AND c.relname LIKE '%hnsw%'"
                )
            )

    def index_scans(self) -> int:
        """Return how often PostgreSQL has used an HNSW index of this library."""
        with self.session() as session:
            return int(
                session.value(
                    "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes"
                    " WHERE schemaname = current_schema() AND indexrelname LIKE '%hnsw%'"
                )
            )

    def close(self) -> None:
        self.index.close()
        self.connections.close()


def near_topics(count: int, size: int = 48, seed: int = 0) -> Floats:
    """Return vectors that are distributed like those of texts: clustered around a few topics."""
    chance = np.random.default_rng(seed)
    topics = np.random.default_rng(99).normal(size=(60, size))
    rows = topics[chance.integers(0, 60, count)] + 0.8 * chance.normal(size=(count, size))
    return rows.astype(np.float32)


def brute_force(
    matrix: Floats, query: Floats, limit: int, numbers: Sequence[int] | None = None
) -> list[ScoredChunk]:
    """Return the best passages by a comparison of all, with the arithmetic of the embedded engine."""
    from marklight.vector_math import unit_rows

    scores: Any = np.vecdot(unit_rows(matrix), unit_rows(query))
    chosen = range(len(matrix)) if numbers is None else numbers
    ranked = sorted((-float(scores[number]), f"id{number:06}") for number in chosen)
    return [ScoredChunk(id, -score) for score, id in ranked[:limit]]
