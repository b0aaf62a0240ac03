"""The lexical index in a real database: commits, tombstones, merges, repair and caches, compared with the in-memory engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight.answer import Filters
from marklight.engines.memory import MemoryEngine
from marklight.engines.postgres import lexical_merge
from marklight.engines.postgres.connections import Connections, ServerAddress
from marklight.engines.postgres.indexes import Change, IndexedEntry
from marklight.engines.postgres.lexical_index import TABLES, PostgresLexical
from marklight.engines.postgres.lexical_search import PostgresLexicalReader
from marklight.engines.postgres.session import PostgresSession
from marklight.model import Batch, Entry
from marklight.ports import FIELD_BOOSTS, LexicalReader
from tests.contracts.builders import commit, entry, id_of
from tests.servers.postgres import PostgresServer

CHUNKS = 'CREATE TABLE chunks (row bigint PRIMARY KEY, id text COLLATE "C", document bigint)'


class Store:
    """The lexical index with just the table of passages that it needs, and the same commits in memory."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.index = PostgresLexical(1_000_000)
        self.memory = MemoryEngine()
        self.rows = itertools.count(1)
        self.documents: dict[str, int] = {}

    def commit(self, batch: Batch) -> None:
        with self.connections.connection() as connection:
            session = PostgresSession(self.connections, connection)
            with session.transaction():
                self.apply(session, batch)
        commit(self.memory, batch)

    def apply(self, session: PostgresSession, batch: Batch) -> None:
        paths = [
            *(id.path for id in batch.removed),
            *(each.document.id.path for each in batch.entries),
        ]
        deleted = [
            self.documents.pop(path) for path in dict.fromkeys(paths) if path in self.documents
        ]
        session.run("DELETE FROM chunks WHERE document = ANY(?)", [deleted])
        inserted = []
        for each in {each.document.id: each for each in batch.entries}.values():
            document = self.documents[each.document.id.path] = next(self.rows)
            rows = [next(self.rows) for _ in each.chunks]
            inserted.append(IndexedEntry(each, document, rows))
            session.insert(
                "chunks",
                "row, id, document",
                [(row, chunk.id, document) for row, chunk in zip(rows, each.chunks, strict=True)],
            )
        self.index.apply(session, Change(batch, inserted, deleted, ()))

    @contextmanager
    def reader(self) -> Iterator[PostgresLexicalReader]:
        with self.connections.connection() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SELECT 1 FROM chunks")
            session = PostgresSession(self.connections, connection)
            yield self.index.reader(SimpleNamespace(session=session, row_filter=lambda _: None))
            connection.execute("ROLLBACK")

    def merge(self) -> None:
        self.index.after_commit(self.connections)

    def segments(self) -> int:
        with self.connections.connection() as connection:
            return int(connection.execute("SELECT count(*) FROM segments").fetchall()[0][0])


_names = itertools.count(1)


@contextmanager
def new_store(server: PostgresServer) -> Iterator[Store]:
    name = f"lexical_{next(_names)}"
    server.sql(f"CREATE SCHEMA {name}")
    connections = Connections(ServerAddress(server.address(), name))
    try:
        with connections.connection() as connection:
            for statement in (*TABLES.split(";"), CHUNKS):
                connection.execute(statement.encode())
        yield Store(connections)
    finally:
        connections.close()
        server.sql("SET client_min_messages = warning", f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def store(server: PostgresServer) -> Iterator[Store]:
    with new_store(server) as store:
        yield store


WORDS = "apple pear plum getUserById zebra 日本語 run c++".split()
TERMS = ["appl", "pear", "user", "日本", "c++", "run", "none"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    return entry(
        draw(st.sampled_from(["a.md", "b.md", "c.md", "d.md"])),
        *draw(st.lists(texts, max_size=3)),
        title=draw(texts),
        code=draw(texts),
    )


batches = st.builds(
    Batch,
    entries=st.lists(entries(), max_size=3).map(tuple),
    removed=st.lists(st.sampled_from(["a.md", "b.md", "c.md"]).map(id_of), max_size=2).map(tuple),
)


def same(expected: LexicalReader, actual: LexicalReader, chunks: Sequence[str]) -> None:
    assert actual.existing_terms(TERMS) == expected.existing_terms(TERMS)
    for terms in (["appl"], ["pear", "user", "pear"], TERMS):
        for limit in (1, 3, 99):
            for own, wanted in (
                [
                    reader.search(terms, FIELD_BOOSTS, Filters(), limit)
                    for reader in (actual, expected)
                ],
                [reader.search_code(terms, Filters(), limit) for reader in (actual, expected)],
            ):
                assert [each.score for each in own] == pytest.approx(
                    [each.score for each in wanted], abs=2e-4
                )
        coverage = actual.term_coverage(terms, chunks)
        assert coverage == expected.term_coverage(terms, chunks)
    every = {
        each.chunk_id: each.score for each in expected.search(TERMS, FIELD_BOOSTS, Filters(), 99)
    }
    found = {
        each.chunk_id: each.score for each in actual.search(TERMS, FIELD_BOOSTS, Filters(), 99)
    }
    assert found == pytest.approx(every, abs=2e-4)


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=st.lists(batches, min_size=1, max_size=6), factor=st.integers(2, 3))
def test_every_snapshot_equals_the_memory_engine(
    server: PostgresServer, steps: list[Batch], factor: int
) -> None:
    with new_store(server) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical_merge, "MERGE_FACTOR", factor)
        patch.setattr(lexical_merge, "MIN_DELETED", 0)
        for batch in steps:
            store.commit(batch)
            with store.memory.snapshot() as expected, store.reader() as actual:
                chunks = [
                    chunk.id
                    for id in expected.documents.files()
                    for chunk in expected.documents.chunks_of(id)
                ]
                same(expected.lexical, actual, [*chunks, "none"])
                store.merge()
                # The snapshot is older than the merge.
                same(expected.lexical, actual, [*chunks, "none"])
                with store.reader() as merged:
                    same(expected.lexical, merged, [*chunks, "none"])
