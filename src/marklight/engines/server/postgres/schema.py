"""Create and migrate the schema of a library: one transaction per migration, under a lock that excludes all writers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors, sql

from marklight.errors import Busy, StoreError

if TYPE_CHECKING:
    from marklight.engines.server.postgres.connections import AnyConnection, Connections

READ_STATE = (
    "SELECT (SELECT max(version) FROM migrations), generation, library, documents, chunks,"
    " chunks - boilerplate_chunks, unused_vectors FROM state"
)
"""Version of the schema, generation, id of the library, and counters of documents, passages, passages to embed and unused vectors."""
_LOCK_SECONDS = 60.0


def _create_tables() -> str:
    from marklight.engines.server.postgres import tables, vector_table
    from marklight.engines.server.postgres.lexical import index as lexical_index
    from marklight.engines.server.qdrant import tables as qdrant_tables

    modules = (tables, lexical_index, vector_table, qdrant_tables)
    return ";\n".join(module.TABLES for module in modules)


MIGRATIONS: Sequence[Callable[[], str]] = (_create_tables,)
"""Statements of each version, from 1; a released one is never changed."""


def current_version() -> int:
    """Return the version of the schema that this program reads and writes."""
    return len(MIGRATIONS)


def lock_key(*parts: str) -> int:
    """Return the key of an advisory lock: 64 bits of a digest."""
    digest = blake2b(
        "\0".join(("marklight", *parts)).encode("utf-8", "surrogatepass"), digest_size=8
    )
    return int.from_bytes(digest.digest(), "big", signed=True)


def writer_key(library: str) -> int:
    """Return the key of the lock that writers share, and that cleaning, checking and migrating take alone."""
    return lock_key(library, "writers")


def check_version(version: int | None, where: str) -> None:
    """Raise StoreError unless this program can read the schema."""
    if version is not None and version > current_version():
        raise StoreError(
            f"{where} was created by a newer version of Marklight"
            f" (schema {version}; this version supports {current_version()})",
            "Upgrade with `pip install --upgrade marklight`",
        )
    if version is not None and version < current_version():
        raise StoreError(
            f"{where} has the schema of an older version of Marklight"
            f" (schema {version}; this version needs {current_version()})",
            "Run `marklight index` with a role that owns the schema, which migrates it",
        )


def read_version(connection: AnyConnection) -> int | None:
    """Return the version of the schema of the search path; None if there is none."""
    try:
        with connection.transaction():
            row = connection.execute("SELECT max(version) FROM migrations").fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return None
    return row[0] if row else None


def check_usage(connections: Connections, connection: AnyConnection) -> None:
    """Raise StoreError if the library exists but this role may not use it: to such a role it looks missing."""
    library = connections.address.library
    row = connection.execute(
        "SELECT current_user FROM pg_namespace"
        " WHERE nspname = $1 AND NOT has_schema_privilege(oid, 'USAGE')",
        [library],
    ).fetchone()
    if row is not None:
        raise StoreError(
            f"The role {row[0]} may not use the library {library} in {connections.address}",
            f'Ask an administrator to run in this database: GRANT USAGE ON SCHEMA "{library}" TO "{row[0]}"',
        )


def prepare(connections: Connections, connection: AnyConnection) -> None:
    """Create the schema of a library or migrate it to the current version; does nothing if it has that version."""
    where, library = str(connections.address), connections.address.library
    version = read_version(connection)
    if version is not None and version >= current_version():
        check_version(version, where)
        return
    try:
        if version is None:
            check_usage(connections, connection)
            _create_schema(connections, connection, library)
        for number in range(1, current_version() + 1):
            with connection.transaction():
                _lock(connection, library)
                # Another process may have done it while this one waited.
                version = read_version(connection) or 0
                check_newest(version, where)
                if version < number:
                    _migrate(connection, number)
    except errors.InsufficientPrivilege as error:
        raise _missing_rights(error, library, where, version, connection.info.user) from error
    except errors.LockNotAvailable as error:
        raise Busy(
            f"{where} has to be migrated to a new schema, but other processes are writing to it",
            "Wait until they have finished, and try again",
        ) from error


def check_newest(version: int, where: str) -> None:
    """Raise StoreError if the schema is newer than this program."""
    if version > current_version():
        check_version(version, where)


def _lock(connection: AnyConnection, library: str) -> None:
    connection.execute("SELECT set_config('lock_timeout', $1, true)", [f"{_LOCK_SECONDS:g}s"])
    connection.execute("SELECT pg_advisory_xact_lock($1)", [writer_key(library)])


def _create_schema(connections: Connections, connection: AnyConnection, library: str) -> None:
    """Create the extension and the schema unless they exist, in a way that other processes may do the same."""
    where = str(connections.address)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1)", [lock_key("create")])
        if not _exists(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
            _create_extension(connection, where)
        _check_extension(connection, where)
        if not _exists(connection, "SELECT 1 FROM pg_namespace WHERE nspname = $1", library):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(library)))
    connections.configure(connection)


def _exists(connection: AnyConnection, query: str, *values: str) -> bool:
    return connection.execute(query.encode(), values).fetchone() is not None


def _create_extension(connection: AnyConnection, where: str) -> None:
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION vector SCHEMA public")
    except errors.InsufficientPrivilege as error:
        raise StoreError(
            f"{where} needs the extension pgvector, which this role may not create",
            "Ask an administrator to run in this database: CREATE EXTENSION vector",
        ) from error
    except (errors.FeatureNotSupported, errors.UndefinedFile) as error:
        raise StoreError(
            f"{where} needs the extension pgvector, which is not installed on the server",
            "Ask an administrator to install pgvector 0.8 or newer on the server"
            " and to run in this database: CREATE EXTENSION vector",
        ) from error


def _check_extension(connection: AnyConnection, where: str) -> None:
    """Raise StoreError if pgvector is too old: filtered searches need its iterative scans."""
    row = connection.execute(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    found = str(row[0]) if row else ""
    numbers = [int(part) if part.isdigit() else 0 for part in found.split(".")]
    if numbers < [0, 8]:
        raise StoreError(
            f"{where} needs pgvector 0.8 or newer; the database has {found}",
            "Ask an administrator to run in this database: ALTER EXTENSION vector UPDATE",
        )


def _migrate(connection: AnyConnection, number: int) -> None:
    """Run the statements of one version and record it."""
    if number == 1:
        connection.execute(
            "CREATE TABLE migrations (version bigint PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
    connection.execute(MIGRATIONS[number - 1]().encode(), prepare=False)
    if number == 1:
        connection.execute(
            "INSERT INTO state (id, library) VALUES (1, $1)", [secrets.token_hex(16)]
        )
    connection.execute("INSERT INTO migrations (version) VALUES ($1)", [number])


def _missing_rights(
    error: psycopg.Error, library: str, where: str, version: int | None, role: str
) -> StoreError:
    if version:
        return StoreError(
            f"{where} has schema {version} and needs {current_version()}, but this role may not migrate it"
            f" ({error.diag.message_primary})",
            f"Run `marklight index` with the role that owns the schema {library}",
        )
    return StoreError(
        f"{where} does not exist yet, and this role may not create it ({error.diag.message_primary})",
        f'Ask an administrator to run in this database: CREATE SCHEMA "{library}" AUTHORIZATION "{role}"',
    )
