"""The schema of a library: created once under a lock, with the tables of its indexes, refused if it has another version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from marklight.engines import Host, PostgresSettings, ServerSettings
from marklight.engines.server.postgres import DerivedIndex, schema
from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.engines.server.postgres.lexical_index import PostgresLexical
from marklight.engines.server.postgres.vector_index import PostgresVectors
from marklight.engines.server.qdrant import open_indexes
from marklight.errors import StoreError
from tests.servers.postgres import PASSWORD, PostgresServer


@pytest.fixture
def library(server: PostgresServer) -> Iterator[str]:
    name = "schema_test"
    yield name
    server.sql("SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {name} CASCADE")


def opened(server: PostgresServer, library: str) -> Connections:
    return Connections(ServerAddress(server.address(), library))


PLAIN = (PostgresLexical(0), PostgresVectors(PostgresSettings()))
FLEET = open_indexes([Host("127.0.0.1", 1)], ServerSettings())


def prepare(connections: Connections, indexes: Sequence[DerivedIndex[Any]] = PLAIN) -> int | None:
    with connections.connection() as connection:
        schema.prepare(connections, connection, indexes)
        return schema.read_version(connection)


def tables(server: PostgresServer, library: str) -> list[tuple[object, ...]]:
    return server.sql(
        "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns"
        f" WHERE table_schema = '{library}' ORDER BY 1, 2"
    )


def test_preparing_creates_all_tables_and_a_second_time_nothing(
    server: PostgresServer, library: str
) -> None:
    connections = opened(server, library)
    with connections.connection() as connection:
        assert schema.read_version(connection) is None
    assert prepare(connections) == schema.VERSION
    before = tables(server, library)
    assert {"documents", "chunks", "file_states"} <= {row[0] for row in before}
    assert prepare(connections) == schema.VERSION
    assert tables(server, library) == before
    connections.close()


def test_all_texts_sort_by_code_point(server: PostgresServer, library: str) -> None:
    connections = opened(server, library)
    prepare(connections)
    connections.close()
    texts = [row for row in tables(server, library) if row[2] == "text"]
    assert [row for row in texts if row[3] != "C"] == []


def test_many_processes_may_create_the_same_library_at_once(
    server: PostgresServer, library: str
) -> None:
    pools = [opened(server, library) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        versions = list(threads.map(prepare, pools))
    assert versions == [schema.VERSION] * 6
    assert server.sql(f"SELECT count(*) FROM {library}.state") == [(1,)]
    for pool in pools:
        pool.close()


def test_the_tables_of_an_index_are_created_when_it_is_configured(
    server: PostgresServer, library: str
) -> None:
    connections = opened(server, library)
    prepare(connections)
    created = {row[0] for row in tables(server, library)}
    assert {"segments", "postings", "vectors", "models"} <= created
    assert not {name for name in created if str(name).startswith(("outbox", "qdrant"))}
    server.sql(f"INSERT INTO {library}.manifest VALUES ('key', 'value')")
    prepare(connections, FLEET)
    assert {"outbox", "qdrant_state"} <= {row[0] for row in tables(server, library)}
    assert server.sql(f"SELECT * FROM {library}.manifest") == [("key", "value")]
    connections.close()


def test_a_schema_of_another_version_is_refused(server: PostgresServer, library: str) -> None:
    connections = opened(server, library)
    prepare(connections)
    server.sql(f"UPDATE {library}.state SET version = 99")
    with pytest.raises(StoreError, match=r"another version of Marklight \(schema 99") as raised:
        prepare(connections)
    assert "same version on all machines" in str(raised.value)
    connections.close()


@pytest.fixture
def role(server: PostgresServer) -> Iterator[str]:
    """A role that may connect and nothing else."""
    name = "limited"
    server.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    yield name
    server.sql(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_role_without_rights_learns_what_an_administrator_must_run(
    server: PostgresServer, library: str, role: str
) -> None:
    server.sql("CREATE EXTENSION IF NOT EXISTS vector")
    connections = Connections(ServerAddress(server.tcp_address(user=role), library))
    with pytest.raises(StoreError, match=f'CREATE SCHEMA "{library}" AUTHORIZATION "{role}"'):
        prepare(connections)
    server.sql(f"CREATE SCHEMA {library} AUTHORIZATION {role}")
    assert prepare(connections) == schema.VERSION
    connections.close()


def test_a_role_that_does_not_own_the_schema_may_not_create_tables(
    server: PostgresServer, library: str, role: str
) -> None:
    owner = opened(server, library)
    prepare(owner)
    server.sql(
        f"GRANT USAGE ON SCHEMA {library} TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {library} TO {role}",
    )
    connections = Connections(ServerAddress(server.tcp_address(user=role), library))
    assert prepare(connections) == schema.VERSION
    with pytest.raises(StoreError, match="this role may not create them") as raised:
        prepare(connections, FLEET)
    assert f"the role that owns the schema {library}" in str(raised.value)
    prepare(owner, FLEET)
    assert prepare(connections, FLEET) == schema.VERSION
    owner.close()
    connections.close()


def test_a_database_without_pgvector_learns_what_an_administrator_must_run(
    server: PostgresServer, role: str
) -> None:
    server.sql("CREATE DATABASE bare", f"GRANT CREATE ON DATABASE bare TO {role}")
    connections = Connections(ServerAddress(server.tcp_address("bare", user=role), "x"))
    with pytest.raises(StoreError, match="CREATE EXTENSION vector") as raised:
        prepare(connections)
    assert "which this role may not create" in str(raised.value)
    connections.close()
    assert server.sql("SELECT nspname FROM pg_namespace WHERE nspname = 'x'", database="bare") == []
    server.sql("DROP DATABASE bare WITH (FORCE)")
