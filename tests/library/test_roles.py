"""The roles that the documentation creates on a server: each can do what it needs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

import marklight
from marklight.errors import ReadOnly, StoreError
from marklight.library.shared_index import EmbeddingWorker
from tests.library.conftest import PAGES, paths
from tests.making import library, write
from tests.servers.postgres import PostgresServer, new_server
from tests.servers.qdrant import shared_node

ROLES = Path(__file__).parents[2] / "examples" / "team" / "roles.sql"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with the roles, exactly as the example creates them."""
    with new_server() as made:
        made.sql("CREATE DATABASE marklight")
        made.sql(ROLES.read_text(), database="marklight")
        yield made


@pytest.fixture(scope="module")
def indexed(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents, indexed by the owner."""
    folder = write(tmp_path_factory.mktemp("roles") / "docs", PAGES)
    with library(folder, engine=address(server, "docs_owner")) as lib:
        assert lib.index().index.embedded == 4
    return folder


def address(server: PostgresServer, role: str) -> str:
    return server.address("marklight", library="docs").replace("://postgres@", f"://{role}@")


def refused(server: PostgresServer, role: str, statement: str) -> bool:
    """Return whether the server refuses a statement for missing rights."""
    import psycopg

    with psycopg.connect(address(server, role).partition("&library")[0]) as connection:
        try:
            connection.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return True
        finally:
            connection.rollback()
    return False


def test_a_writer_indexes(server: PostgresServer, indexed: Path) -> None:
    write(indexed, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
    with library(indexed, engine=address(server, "ann")) as lib:
        answer = lib.search("zebra stripes")
        assert paths(answer)[0] == "new.md"
        assert answer.notices == []
        (indexed / "new.md").unlink()
        report = lib.index()
        assert (len(report.removed), report.notices) == (1, ())


def test_a_reader_only_searches(server: PostgresServer, indexed: Path) -> None:
    with library(indexed, engine=address(server, "ben")) as lib:
        assert paths(lib.search("refresh token"))[0] == "auth.md"
        with pytest.raises(ReadOnly):
            lib.index()
    assert refused(server, "ben", "DELETE FROM docs.documents")
    assert refused(server, "ben", "UPDATE docs.state SET generation = 0")


def test_a_worker_embeds(server: PostgresServer, indexed: Path) -> None:
    write(indexed, {"lion.md": "# Lion\n\nA lion has a mane.\n"})
    queue = {"embed": "workers"}
    with library(indexed, engine=address(server, "ann"), queue=queue) as lib:
        report = lib.index()
        assert report.index.pending == 1
        assert lib.status()["queue"]["waiting"] == 1
    with library(indexed, engine=address(server, "embedder"), queue=queue) as lib:
        messages: list[str] = []
        EmbeddingWorker(lib, messages.append).run(drain=True)
        assert not [message for message in messages if "may not" in message]
        status = lib.status()
        assert (status["pending"], status["queue"]["waiting"]) == (0, 0)
    (indexed / "lion.md").unlink()


DELETED = {
    "ann": {
        *("documents", "edges", "embedded_per_minute", "failures", "jobs", "models", "postings"),
        *("queued_models", "segments", "term_vectors", "terms", "titles", "vectors", "workers"),
    },
    "embedder": {"embedded_per_minute", "jobs", "workers"},
    "ben": set(),
}
INSERTED = {
    "embedder": {
        *("embedded_per_minute", "jobs", "manifest", "models", "queued_models", "term_vectors"),
        *("vectors", "workers"),
    },
    "ben": set(),
}


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("role", ["ann", "ben", "embedder"])
def test_each_role_has_the_least_rights_on_each_table(server: PostgresServer, role: str) -> None:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'docs'"
    tables = {str(name) for (name,) in server.sql(query, database="marklight")}
    assert len(tables) > 25
    inserted = INSERTED.get(role, tables - {"lock_secret", "roles", "state"})

    def allowed(statement: str) -> set[str]:
        statements = {table: statement.format(f"docs.{table}") for table in tables}
        return {table for table in tables if not refused(server, role, statements[table])}

    assert allowed("DELETE FROM {} WHERE false") == DELETED[role]
    assert (
        allowed("INSERT INTO {0} OVERRIDING SYSTEM VALUE SELECT * FROM {0} WHERE false") == inserted
    )
    secret = {"lock_secret", "roles"} if role == "ben" else {"roles"}
    assert allowed("SELECT 1 FROM {} LIMIT 1") == tables - secret
    for table in ("chunks", "contents", "links", "lock_secret", "metadata", "roles", "vectors"):
        (column,) = server.sql(
            f"SELECT attname FROM pg_attribute WHERE attrelid = 'docs.{table}'::regclass AND attnum = 1",
            database="marklight",
        )[0]
        assert refused(server, role, f'UPDATE docs.{table} SET "{column}" = DEFAULT WHERE false')


def test_a_login_that_guesses_the_key_of_a_lock_stops_nobody(
    server: PostgresServer, indexed: Path
) -> None:
    import psycopg

    guesses = [
        int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=8).digest(), signed=True)
        for start in (("marklight",), ())
        for parts in (
            (*start, "docs", "writers"),
            (*start, "docs", "documents"),
            (*start, "create"),
        )
    ]
    with psycopg.connect(address(server, "ben").partition("&library")[0]) as connection:
        for guess in guesses:
            connection.execute("SELECT pg_advisory_lock(%s)", [guess])
        write(indexed, {"okapi.md": "# Okapi\n\nAn okapi is shy.\n"})
        with library(indexed, engine=address(server, "ann")) as lib:
            assert len(lib.index().added) == 1
            (indexed / "okapi.md").unlink()
            assert len(lib.index().removed) == 1


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("role", ["ann", "ben", "embedder"])
def test_nobody_but_the_owner_changes_tables(server: PostgresServer, role: str) -> None:
    for statement in (
        "DROP TABLE docs.documents CASCADE",
        "CREATE TABLE docs.other (id int)",
        "ALTER TABLE docs.documents ADD COLUMN other int",
        "TRUNCATE docs.documents CASCADE",
        "CREATE SCHEMA other",
    ):
        assert refused(server, role, statement), statement


def test_a_role_without_rights_gets_a_clear_error(server: PostgresServer, indexed: Path) -> None:
    server.sql("CREATE ROLE stranger LOGIN")
    with (
        library(indexed, engine=address(server, "stranger")) as lib,
        pytest.raises(StoreError, match='permission denied for database "marklight"'),
    ):
        lib.search("refresh token")
    server.sql("GRANT CONNECT ON DATABASE marklight TO stranger")
    with (
        library(indexed, engine=address(server, "stranger")) as lib,
        pytest.raises(StoreError, match="docs"),
    ):
        lib.search("refresh token")


def test_the_rights_suffice_with_qdrant_too(server: PostgresServer, tmp_path: Path) -> None:
    node = shared_node()
    server.sql("CREATE DATABASE fleet")
    # Roles belong to the server, so here they exist already.
    lines = ROLES.read_text().splitlines()
    statements = "\n".join(line for line in lines if not line.startswith("CREATE ROLE"))
    server.sql(statements, database="fleet")
    folder, queue = write(tmp_path / "docs", PAGES), {"embed": "workers"}

    def opened(role: str, **settings: object) -> marklight.Library:
        name = server.address("fleet", library="docs", vectors=f"qdrant://{node.address}")
        engine = name.replace("://postgres@", f"://{role}@")
        return library(folder, engine=engine, **settings)

    with opened("docs_owner") as lib:
        assert lib.index().index.embedded == 4
    write(folder, {"lion.md": "# Lion\n\nA lion has a mane.\n"})
    with opened("ann", queue=queue) as lib:
        report = lib.index()
        assert (report.index.pending, report.notices) == (1, ())
        (folder / "auth.md").unlink()
        assert len(lib.index().removed) == 1
    messages: list[str] = []
    with opened("embedder", queue=queue) as lib:
        EmbeddingWorker(lib, messages.append).run(drain=True)
        assert lib.status()["pending"] == 0
    assert not [message for message in messages if "may not" in message]
    with opened("ben") as lib:
        answer = lib.search("lion mane", mode="keyword")
        assert paths(answer)[0] == "lion.md"
