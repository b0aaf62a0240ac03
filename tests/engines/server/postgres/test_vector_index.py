"""The HNSW index of PostgreSQL: when it is built, that nobody waits for it, and that an unusable one is replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from marklight.engines import PostgresSettings
from marklight.engines.relational.write import ChangedRows, InsertedEntry, delete_unused_vectors
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import PostgresVectors
from marklight.model import Batch
from marklight.query import Filters
from tests.contracts.builders import entry
from tests.engines.server.postgres.vector_library import VectorLibrary, brute_force, near_topics
from tests.servers.postgres import new_library, replicated, shared_server

NO_FILTERS = Filters()

Open = Callable[..., VectorLibrary]


@pytest.fixture
def reopen() -> Iterator[Open]:
    """Return a function that opens the same library each time it is called."""
    opened: list[VectorLibrary] = []
    with new_library() as address:

        def open_library(**settings: int) -> VectorLibrary:
            opened.append(VectorLibrary(address, **settings))
            return opened[-1]

        yield open_library
        for library in opened:
            library.close()


def test_the_index_is_built_when_a_library_becomes_large(reopen: Open) -> None:
    library, matrix = reopen(exact_below=100), near_topics(120)
    library.add(matrix[:99])
    library.build()
    assert library.indexes() == {}
    library.add(matrix[99:], first=99)
    library.build()
    assert library.indexes() == {"vectors_hnsw_1": True}
    assert library.search(matrix[5], 1) == brute_force(matrix, matrix[5], 1)


def test_the_index_is_built_at_once_when_most_passages_have_a_vector(reopen: Open) -> None:
    library, matrix = reopen(exact_below=50), near_topics(100)
    library.add(matrix, model="other")
    library.build()
    library.embed(matrix[:79])
    library.build()
    assert library.indexes() == {"vectors_hnsw_1": True}
    library.embed(matrix[79:80], first=79)
    library.build()
    assert library.indexes() == {"vectors_hnsw_1": True, "vectors_hnsw_2": True}


def test_an_open_snapshot_delays_the_index_but_neither_commits_nor_searches(reopen: Open) -> None:
    library, matrix = reopen(exact_below=100), near_topics(300)
    library.add(matrix[:99])
    with library.reader() as reader:
        query = matrix[3]
        best = reader.search(query, "m", NO_FILTERS, 5)
        library.add(matrix[99:200], first=99)
        library.add(matrix[200:], first=200)
        # The build waits for the snapshot to end; until then all vectors are compared.
        assert library.search(query, 5) == brute_force(matrix, query, 5)
        assert library.indexes().get("vectors_hnsw_1", False) is False
        assert reader.search(query, "m", NO_FILTERS, 5) == best
    library.build()
    assert library.indexes() == {"vectors_hnsw_1": True}


def test_an_index_that_a_crash_left_incomplete_is_built_again(reopen: Open) -> None:
    library, matrix = reopen(exact_below=100), near_topics(150)
    library.add(matrix)
    library.build()
    with library.session() as session:
        # As the server leaves it if it stops during CREATE INDEX CONCURRENTLY.
        session.run(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'vectors_hnsw_1'::regclass"
        )
    assert library.search(matrix[1], 5) == brute_force(matrix, matrix[1], 5)
    again = reopen(exact_below=100)
    with again.session() as session:
        with session.transaction():
            assert again.index.check(session) == [
                "The vector index vectors_hnsw_1 was unusable and is being rebuilt"
            ]
        again.index.after_commit(again.connections)
        again.build()
        assert again.indexes() == {"vectors_hnsw_1": True}
        with session.transaction():
            assert again.index.check(session) == []


def test_one_process_builds_while_others_go_on(reopen: Open) -> None:
    first, second, matrix = reopen(exact_below=100), reopen(exact_below=100), near_topics(200)
    with first.session() as session:
        key = session.lock_key("vector index")
        session.value("SELECT pg_advisory_lock(?)", [key])  # as if a third one were building
        first.add(matrix[:150])
        first.build()
        assert first.indexes() == {}
        session.value("SELECT pg_advisory_unlock(?)", [key])
    first.add(matrix[150:170], first=150)
    second.add(matrix[170:], first=170)
    first.build()
    second.build()
    assert first.indexes() == {"vectors_hnsw_1": True}


def test_cleaning_deletes_other_models_and_unused_vectors_with_the_index(reopen: Open) -> None:
    library, matrix = reopen(exact_below=50), near_topics(100)
    library.add(matrix)
    library.embed(matrix[:90], model="n")
    library.build()
    library.embed(matrix[:7], first=500)
    assert library.indexes() == {"vectors_hnsw_1": True, "vectors_hnsw_2": True}
    with library.session() as session:
        with library.reader() as reader, session.transaction():
            # A snapshot that has used the index does not block cleaning.
            assert len(reader.search(matrix[0], "n", NO_FILTERS, 5)) == 5
            library.index.maintain()
            assert delete_unused_vectors(session, ["m"]) == 97
            assert session.value("SELECT unused_vectors FROM state") == 0
        library.index.after_commit(library.connections)
        library.build()
        assert library.indexes() == {"vectors_hnsw_1": True}
        assert session.all("SELECT name FROM models") == [("m",)]
        with session.transaction():
            assert delete_unused_vectors(session, ["m"]) == 0
    assert library.search(matrix[4], 5) == brute_force(matrix, matrix[4], 5)


def test_a_build_that_fails_is_reported_and_tried_again(reopen: Open) -> None:
    library, matrix = reopen(exact_below=100), near_topics(200)
    library.add(matrix[:99])
    with library.reader() as reader, library.session() as session:
        reader.search(matrix[0], "m", NO_FILTERS, 5)
        library.add(matrix[99:150], first=99)
        while not library.indexes():  # it exists from when the build begins
            time.sleep(0.01)
        session.run(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
            " WHERE c.relname = 'vectors' AND l.mode = 'ShareUpdateExclusiveLock'"
        )
        library.index.wait()
        notice = library.index.notices.popleft()
        assert "could not be built, so searches compare all vectors" in notice
        assert not library.index.notices
        assert library.indexes() == {"vectors_hnsw_1": False}
    assert library.search(matrix[0], 3) == brute_force(matrix[:150], matrix[0], 3)
    library.add(matrix[150:], first=150)
    library.build()
    assert library.indexes() == {"vectors_hnsw_1": True}


def test_a_role_that_does_not_own_the_table_does_not_try_to_build(reopen: Open) -> None:
    library, matrix = reopen(exact_below=10**6), near_topics(120)
    library.add(matrix)
    schema, role = sql.Identifier(library.connections.address.library), sql.Identifier("reader")
    with psycopg.connect(shared_server().address(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role))
        connection.execute(
            sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(schema, role)
        )
        try:
            limited = reopen(exact_below=100)
            limited.connections.address = limited.connections.address._replace(
                dsn=limited.connections.address.dsn.replace("postgres@", "reader@")
            )
            limited.connections.close()
            limited.index.after_commit(limited.connections)
            limited.build()
            assert limited.indexes() == {}
            assert limited.search(matrix[0], 3) == brute_force(matrix, matrix[0], 3)
            limited.close()
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


class SmallSharedMemory:
    """A connection to a server whose shared memory is too small for a parallel build."""

    closed = False

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.is_parallel = True

    def execute(self, statement: Any, parameters: Sequence[Any] = ()) -> None:
        text = statement if isinstance(statement, str) else statement.as_string()
        self.statements.append(" ".join(text.split()[:3]))
        if text.startswith("SET max_parallel_maintenance_workers = 0"):
            self.is_parallel = False
        if text.startswith("CREATE") and self.is_parallel:
            raise errors.OutOfMemory("could not resize shared memory segment")


def test_a_server_with_little_shared_memory_builds_the_index_in_one_process() -> None:
    connection: Any = SmallSharedMemory()
    PostgresVectors(PostgresSettings())._create(connection, 1, 384, 100_000)
    assert connection.statements[-4:] == [
        "CREATE INDEX CONCURRENTLY",
        "DROP INDEX CONCURRENTLY",
        "SET max_parallel_maintenance_workers =",
        "CREATE INDEX CONCURRENTLY",
    ]


def test_opening_a_library_builds_an_index_that_others_could_not_build(reopen: Open) -> None:
    library, matrix = reopen(exact_below=10**6), near_topics(120)
    library.add(matrix)
    owner = reopen(exact_below=100)
    for _ in range(2):
        owner.index.prepare(owner.connections)
        owner.build()
        assert owner.indexes() == {"vectors_hnsw_1": True}


def test_a_replica_builds_no_index() -> None:
    matrix = near_topics(120)
    with replicated(1) as server:
        primary = VectorLibrary(server.address(), exact_below=10**6)
        primary.add(matrix)
        server.wait_for_replicas()
        replica = VectorLibrary(server.replicas[0].address(), exact_below=100)
        replica.index.prepare(replica.connections)
        replica.build()
        assert replica.indexes() == {}
        assert replica.search(matrix[0], 3) == brute_force(matrix, matrix[0], 3)
        # An index of the primary is used there too.
        owner = VectorLibrary(server.address(), exact_below=100)
        owner.index.prepare(owner.connections)
        owner.build()
        server.wait_for_replicas()
        with replica.reader(settings=PostgresSettings(exact_below=0)) as reader:
            assert reader.search(matrix[0], "m", NO_FILTERS, 1) == brute_force(matrix, matrix[0], 1)
        for library in (primary, replica, owner):
            library.close()


def test_commits_that_become_visible_late_make_passages_pending_again(reopen: Open) -> None:
    library, matrix = reopen(), near_topics(40)

    def embedded_to(session: PostgresSession) -> int:
        return int(session.value("SELECT embedded_to FROM models"))

    library.add(matrix[:30])
    with library.session() as session:
        assert embedded_to(session) == 30
        # A commit with the rows 21 and 22, which were reserved before those of the others.
        late = InsertedEntry(entry("late.md", "one", "two"), 99, (21, 22))
        library.index.finish(session, ChangedRows(Batch(), (late,)), 5)
        assert embedded_to(session) == 20
        library.index.finish(session, ChangedRows(Batch(), (replace(late, chunk_rows=(40,)),)), 6)
        assert embedded_to(session) == 20
    library.add(matrix[30:], first=30)
    with library.session() as session:
        assert embedded_to(session) == 40


def test_closing_does_not_wait_for_a_long_build(reopen: Open) -> None:
    library, matrix = reopen(exact_below=100), near_topics(150)
    library.add(matrix[:99])
    with library.reader() as reader:
        reader.search(matrix[0], "m", NO_FILTERS, 5)
        library.add(matrix[99:], first=99)
        began = time.monotonic()
        library.index.close()
        assert time.monotonic() - began < 10
    library.build()
    assert library.indexes() == {"vectors_hnsw_1": True}
