"""Connections: bounded, reused, replaced when they break; errors name the cause and never a password."""

from __future__ import annotations

import socket
import time

import pytest

from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.engines.server.postgres.session import PostgresSession
from marklight.errors import Busy, ConnectionLost, StoreError
from tests.servers.postgres import PASSWORD, PostgresServer, new_server


def connecting(dsn: str) -> str:
    """Return the message of the error that connecting raises, within a second."""
    connections = Connections(ServerAddress(dsn, "marklight"))
    started = time.monotonic()
    with pytest.raises(StoreError) as raised, connections.connection():
        pass
    connections.close()
    assert time.monotonic() - started < 1.0
    return str(raised.value)


def test_a_wrong_password_is_reported_at_once_and_not_repeated(server: PostgresServer) -> None:
    message = connecting(server.tcp_address(password="not the password"))
    assert "refuses the login" in message
    assert "Check user and password" in message
    assert "not the password" not in message
    assert "not%20the" not in message


def test_a_missing_database_is_reported_with_its_name(server: PostgresServer) -> None:
    message = connecting(server.tcp_address("nothing_here"))
    assert 'database "nothing_here" does not exist' in message
    assert PASSWORD not in message


def test_a_server_that_does_not_run_is_reported_with_its_address() -> None:
    message = connecting("postgresql://me:secret@127.0.0.1:1/db")
    assert message.startswith("Cannot connect to postgresql://127.0.0.1:1/db?library=marklight")
    assert "Connection refused" in message
    assert "secret" not in message


def test_a_host_that_does_not_exist_is_reported() -> None:
    assert "Cannot connect" in connecting("postgresql://me:secret@host.invalid/db")


def test_a_server_that_does_not_answer_is_reported_after_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/db"
        connections = Connections(ServerAddress(dsn, "x"), wait_seconds=0.5)
        started = time.monotonic()
        with pytest.raises(StoreError, match=r"does not answer \(waited 0.5 s\)") as raised:
            connections.borrow()
        assert time.monotonic() - started < 2.0
        assert "secret" not in str(raised.value)
    connections.close()


def test_more_callers_than_connections_wait_for_each_other(server: PostgresServer) -> None:
    connections = Connections(ServerAddress(server.address(), "x"), max_size=2, wait_seconds=0.2)
    with (
        connections.connection(),
        connections.connection(),
        pytest.raises(Busy, match="All 2 connections"),
        connections.connection(),
    ):
        pass
    with connections.connection() as connection:  # both were given back
        assert connection.execute("SELECT 1").fetchone() == (1,)
    connections.close()


def test_an_open_transaction_is_rolled_back_when_a_connection_is_given_back(
    server: PostgresServer,
) -> None:
    connections = Connections(ServerAddress(server.address(), "x"), max_size=1)
    with pytest.raises(StoreError), connections.connection() as connection:
        connection.execute("BEGIN; SELECT no_such_function()")
    with connections.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    connections.close()


def test_a_pool_recovers_after_the_server_was_restarted() -> None:
    with new_server() as own:
        connections = Connections(ServerAddress(own.address(), "x"), max_size=2)
        with connections.connection() as connection:
            connection.execute("SELECT 1")
        own.kill()
        with pytest.raises(ConnectionLost), connections.connection() as connection:
            connection.execute("SELECT 1")
        with pytest.raises(StoreError, match="Cannot connect"), connections.connection():
            pass
        own.start()
        with connections.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        connections.close()


def test_rows_can_be_read_in_portions_while_others_are_read(server: PostgresServer) -> None:
    connections = Connections(ServerAddress(server.address(), "x"))
    with connections.connection() as connection:
        session = PostgresSession(connections, connection)
        with session.transaction():
            rows = session.each("SELECT n FROM generate_series(1, 2500) n")
            seen = [next(rows)[0]]
            assert session.value("SELECT 7") == 7
            seen += [n for (n,) in rows]
        assert seen == list(range(1, 2501))
    connections.close()
