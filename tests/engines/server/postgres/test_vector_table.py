"""Vectors in PostgreSQL: exact bits, one row for each digest and model, and concurrent inserts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from psycopg import sql

from marklight.engines.server.postgres import vector_index
from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import (
    Packed,
    PackedDumper,
    add_term_vectors,
    add_vectors,
    pack_integers,
    pack_vector,
    unpack,
)
from marklight.errors import StoreError
from marklight.model import Vectors
from tests.servers.postgres import shared_server

LIBRARY = "test_vector_table"


@pytest.fixture
def connections() -> Iterator[Connections]:
    """Connections to a library that has the tables of vectors only."""
    server = shared_server()
    name = sql.Identifier(LIBRARY)
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
    pool = Connections(ServerAddress(server.address(), LIBRARY))
    with pool.connection() as connection:
        for statement in vector_index.TABLES.split(";"):
            connection.execute(statement.encode())
    yield pool
    with pool.connection() as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(name))
    pool.close()


@contextmanager
def session_of(connections: Connections) -> Iterator[PostgresSession]:
    with connections.connection() as connection:
        connection.adapters.register_dumper(Packed, PackedDumper)
        yield PostgresSession(connections, connection)


@pytest.fixture
def session(connections: Connections) -> Iterator[PostgresSession]:
    with session_of(connections) as session:
        yield session


def stored(session: PostgresSession, dimension: int) -> dict[str, bytes]:
    rows = session.all(f"SELECT v.digest, {vector_index.STORED} FROM vectors v ORDER BY 1")
    matrix = unpack([row for _, row in rows], dimension)
    return {digest: vector.tobytes() for (digest, _), vector in zip(rows, matrix, strict=True)}


def every_kind_of_number() -> NDArray[np.float32]:
    """Return rows with ordinary numbers, and with each kind that a conversion could change."""
    bits = np.random.default_rng(3).integers(0, 2**32, size=(50, 6), dtype=np.uint32)
    odd = [0.0, -0.0, 1e-45, -1e38, np.inf, -np.inf]
    return np.concatenate(
        [
            bits.view(np.float32),  # including NaNs with any payload
            np.array([odd, [np.nan] * 6, [1 / 3] * 6], dtype=np.float32),
        ]
    )


def test_vectors_are_stored_with_the_bits_that_were_given(session: PostgresSession) -> None:
    rows = every_kind_of_number()
    digests = tuple(f"{at:03}" for at in range(len(rows)))
    added = add_vectors(session, Vectors("m", digests, rows))
    assert added
    assert sorted(added.digests) == list(digests)
    given = {digest: row.tobytes() for digest, row in zip(digests, rows, strict=True)}
    assert stored(session, 6) == given
    finite = np.isfinite(rows).all(axis=1).sum()
    assert session.value("SELECT count(*) FROM vectors WHERE raw IS NULL") == finite


def test_existing_vectors_stay_and_are_not_reported(session: PostgresSession) -> None:
    first = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32)
    # Of equal digests the first counts.
    added = add_vectors(session, Vectors("m", ("b", "a", "b"), first))
    assert added
    assert added.digests == ["a", "b"]
    again = add_vectors(session, Vectors("m", ("c", "b"), first[:2] + 10))
    assert again == (added.model_row, ["c"])
    assert stored(session, 2) == {
        "a": first[1].tobytes(),
        "b": first[0].tobytes(),
        "c": (first[0] + 10).tobytes(),
    }
    other = add_vectors(session, Vectors("n", ("a",), first[:1]))
    assert other
    assert other.model_row != added.model_row
    assert other.digests == ["a"]
    assert add_vectors(session, None) is None
    assert add_vectors(session, Vectors("m", (), first[:0])) is None


def test_vectors_of_another_dimension_are_refused(session: PostgresSession) -> None:
    add_vectors(session, Vectors("m", ("a",), np.ones((1, 3), np.float32)))
    for add in (add_vectors, add_term_vectors):
        with pytest.raises(
            StoreError, match=r"produces vectors of 2 numbers.*vectors of 3 numbers"
        ):
            add(session, Vectors("m", ("b",), np.ones((1, 2), np.float32)))


def test_term_vectors_are_stored_once(session: PostgresSession) -> None:
    rows = np.array([[3, 4], [1, -1], [0, 1]], np.float32)
    add_term_vectors(session, Vectors("m", ("pear", "apple", "pear"), rows))
    add_term_vectors(session, Vectors("m", ("pear",), rows[2:]))
    add_term_vectors(session, None)
    assert dict(session.all("SELECT term, vector FROM term_vectors")) == {
        "apple": np.array([127, -127], np.int8).tobytes(),
        "pear": np.array([95, 127], np.int8).tobytes(),
    }


def test_commits_that_insert_the_same_vectors_wait_for_each_other(connections: Connections) -> None:
    digests = tuple(f"{at:03}" for at in range(100))
    rows = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    inserted: list[str] = []

    def insert(order: int) -> None:
        with session_of(connections) as session:
            for _ in range(5):
                with session.transaction():
                    added = add_vectors(session, Vectors("m", digests[::order], rows[::order]))
                    inserted.extend(added.digests if added else [])

    threads = [threading.Thread(target=insert, args=(order,)) for order in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(inserted) == list(digests)


def test_lists_of_integers_and_vectors_are_sent_in_binary_format(session: PostgresSession) -> None:
    for numbers in ([], [1], [3, -(2**63), 2**63 - 1, 3]):
        assert session.value("SELECT ?::bigint[]", [pack_integers(numbers)]) == numbers
    row = np.array([1.5, -2, 0], dtype=np.float32)
    assert session.value("SELECT (?::vector)::text", [pack_vector(row)]) == "[1.5,-2,0]"
