"""Fixtures for tests of the PostgreSQL engine: the server of this process, and a session on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.engines.server.postgres.session import PostgresSession
from tests.servers.postgres import PostgresServer, shared_server


@pytest.fixture(scope="package")
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture(scope="module")
def session(server: PostgresServer) -> Iterator[PostgresSession]:
    """A session without a library: for expressions and temporary tables."""
    connections = Connections(ServerAddress(server.address(), "nowhere"))
    with connections.connection() as connection:
        yield PostgresSession(connections, connection)
    connections.close()
