"""The schema of a library: created once, migrated under a lock, refused if it is newer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from marklight.engines.server.postgres import schema
from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.errors import StoreError
from tests.servers.postgres import PASSWORD, PostgresServer


@pytest.fixture
def library(server: PostgresServer) -> Iterator[str]:
    name = "schema_test"
    yield name
    server.sql("SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {name} CASCADE")


def opened(server: PostgresServer, library: str) -> Connections:
    return Connections(ServerAddress(server.address(), library))


def prepare(connections: Connections) -> int | None:
    with connections.connection() as connection:
        schema.prepare(connections, connection)
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
    assert prepare(connections) == schema.current_version()
    before = tables(server, library)
    assert {"documents", "chunks", "file_states"} <= {row[0] for row in before}
    assert prepare(connections) == schema.current_version()
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
    assert versions == [schema.current_version()] * 6
    assert server.sql(f"SELECT count(*) FROM {library}.state") == [(1,)]
    for pool in pools:
        pool.close()


def test_a_newer_schema_is_refused(server: PostgresServer, library: str) -> None:
    connections = opened(server, library)
    prepare(connections)
    server.sql(f"INSERT INTO {library}.migrations (version) VALUES (99)")
    with pytest.raises(StoreError, match=r"newer version of Marklight \(schema 99") as raised:
        prepare(connections)
    assert "Upgrade with" in str(raised.value)
    connections.close()


@pytest.fixture
def second_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program have one more migration than the library."""
    added = (*schema.MIGRATIONS, lambda: "ALTER TABLE state ADD COLUMN added bigint DEFAULT 7")
    monkeypatch.setattr(schema, "MIGRATIONS", added)


def test_an_older_schema_is_migrated_and_keeps_its_rows(
    server: PostgresServer, library: str, request: pytest.FixtureRequest
) -> None:
    connections = opened(server, library)
    prepare(connections)
    server.sql(f"INSERT INTO {library}.manifest VALUES ('key', 'value')")
    request.getfixturevalue("second_version")
    assert prepare(connections) == schema.current_version()
    assert server.sql(f"SELECT added FROM {library}.state") == [(7,)]
    assert server.sql(f"SELECT * FROM {library}.manifest") == [("key", "value")]
    connections.close()


def test_a_failed_migration_changes_nothing(
    server: PostgresServer, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = opened(server, library)
    prepare(connections)
    before = tables(server, library)
    broken = "ALTER TABLE state ADD COLUMN added bigint; SELECT 1 / 0"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, lambda: broken))
    with pytest.raises(StoreError, match="division by zero"):
        prepare(connections)
    assert tables(server, library) == before
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
    assert prepare(connections) == schema.current_version()
    connections.close()


def test_a_role_that_does_not_own_the_schema_may_not_migrate_it(
    server: PostgresServer, library: str, role: str, request: pytest.FixtureRequest
) -> None:
    owner = opened(server, library)
    prepare(owner)
    server.sql(
        f"GRANT USAGE ON SCHEMA {library} TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {library} TO {role}",
    )
    connections = Connections(ServerAddress(server.tcp_address(user=role), library))
    assert prepare(connections) == schema.current_version()
    request.getfixturevalue("second_version")
    with pytest.raises(StoreError, match="this role may not migrate it") as raised:
        prepare(connections)
    assert f"the role that owns the schema {library}" in str(raised.value)
    assert prepare(owner) == schema.current_version()
    assert prepare(connections) == schema.current_version()
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
