"""Connections to one PostgreSQL server: a bounded pool that is opened on first use and reports why connecting failed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket
from threading import Lock, Thread
from typing import Any, NamedTuple

import psycopg
from psycopg import Connection, RawCursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper, NumericBinaryLoader, NumericLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from marklight.engines.server.postgres import server_errors
from marklight.engines.server.postgres.text_codec import (
    EscapingDumper,
    UnescapingBinaryLoader,
    UnescapingLoader,
)
from marklight.engines.server.postgres.vector_table import Packed, PackedDumper
from marklight.errors import Busy, ConnectionLost, StoreError

MAX_CONNECTIONS = 12
"""Most open connections of one engine: eight searches at once use up to two each, where that many are free."""
MAX_IDLE_SECONDS = 60.0
"""Seconds after which an unused connection is closed, which frees its memory on the server."""
MAX_LIFETIME_SECONDS = 1800.0
"""Age at which a connection is replaced: a backend never returns the memory of its caches."""
WAIT_SECONDS = 10.0
"""Seconds that a caller waits for a free connection."""
CONNECT_SECONDS = 10
"""Seconds for one attempt to connect, unless the address has its own `connect_timeout`."""
_KEEPALIVE: Mapping[str, int] = {
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""A server that the network no longer reaches is noticed within 40 seconds, and not after two hours as by default."""
_CLOSE_SECONDS = 1.0
"""Seconds to wait for a connection that is being opened when the pool is closed."""
_PROBE_SECONDS = 0.05
"""Interval at which a waiting caller looks for an error of connecting, which the pool does not report."""

# Failures are raised as our own errors; without a handler, Python would print the warnings of psycopg too.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

AnyConnection = Connection[tuple[Any, ...]]


class ServerAddress(NamedTuple):
    """Connection string of libpq and name of the library, which is a schema of that database."""

    dsn: str
    library: str
    shown: str = ""
    """The address without password, for messages; taken from the connection string if it is empty."""

    def __str__(self) -> str:
        """Return the address without password."""
        if self.shown:
            return self.shown
        parts = conninfo_to_dict(self.dsn)
        hosts = str(parts.get("host") or parts.get("hostaddr") or "localhost").split(",")
        ports = str(parts.get("port") or "5432").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        names = ",".join(
            host if host.startswith("/") or port == "5432" else f"{host}:{port}"
            for host, port in zip(hosts, ports, strict=False)
        )
        return f"postgresql://{names}/{parts.get('dbname', '')}?library={self.library}"

    def __repr__(self) -> str:
        return str(self)


class Connections:
    """A pool of connections to one server, all with the schema of one library in their search path."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        read_only: bool = False,
        max_size: int = MAX_CONNECTIONS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.address = address
        self.read_only = read_only
        self.max_size = max_size
        self.wait_seconds = wait_seconds
        self._lock = Lock()
        self._pool: ConnectionPool[AnyConnection] | None = None
        self._borrowed: set[AnyConnection] = set()
        self._failure: psycopg.Error | None = None
        self._has_lost = False
        """True if a connection was lost since the idle ones were checked: a server that restarts ends all of them."""

    @contextmanager
    def connection(self, wait_seconds: float | None = None) -> Iterator[AnyConnection]:
        """Borrow a connection in autocommit mode; errors of the server are raised as `StoreError`.

        An open transaction is rolled back at the end, and a broken connection is replaced.
        """
        connection = self.borrow(wait_seconds)
        try:
            yield connection
        except psycopg.Error as error:
            raise self.explain(error) from error
        finally:
            self.give_back(connection)

    def borrow(self, wait_seconds: float | None = None) -> AnyConnection:
        """Take a connection out of the pool; every one must be given back."""
        pool = self._open()
        wait = self.wait_seconds if wait_seconds is None else wait_seconds
        deadline = time.monotonic() + wait
        self._failure = None
        if self._has_lost:
            self._has_lost = False
            pool.check()
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            try:
                connection = pool.getconn(timeout=max(0.001, min(remaining, _PROBE_SECONDS)))
                self._borrowed.add(connection)
                return connection
            except PoolTimeout:
                if (failure := self._failure) is not None:
                    raise server_errors.explain_connecting(failure, str(self.address)) from None
                if remaining == 0.0 and len(self._borrowed) < self.max_size:
                    raise StoreError(
                        f"{self.address} does not answer (waited {wait:g} s)",
                        "Check that the server is running and that no firewall is in between",
                    ) from None
                if remaining == 0.0:
                    raise Busy(
                        f"All {self.max_size} connections to {self.address} are in use"
                        f" (waited {wait:g} s)",
                        "Try again in a moment, or send fewer searches at once",
                    ) from None

    def give_back(self, connection: AnyConnection) -> None:
        """Return a connection; the pool rolls back its transaction, or closes it if it is broken."""
        self._borrowed.discard(connection)
        pool = self._pool
        if pool is None or pool.closed:
            connection.close()
        else:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    connection.rollback()
            try:
                pool.putconn(connection)
            except ValueError:  # it is of the pool before `abort`
                connection.close()

    def explain(self, error: psycopg.Error) -> StoreError:
        """Return the error to raise in place of one of PostgreSQL."""
        explained = server_errors.explain(error, str(self.address))
        self._has_lost |= isinstance(explained, ConnectionLost)
        return explained

    @property
    def statistics(self) -> dict[str, int]:
        """Return the figures of the pool: connections open, idle, waited for, failed."""
        return self._pool.get_stats() if self._pool else {}

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(_CLOSE_SECONDS)

    def abort(self) -> None:
        """End all connections, also those that wait for an answer of a server that does not respond; return at once."""
        with self._lock:
            pool, self._pool = self._pool, None
        for connection in tuple(self._borrowed):
            # libpq then reads the end of the stream, and the thread that waits gets an error.
            with (
                suppress(OSError, psycopg.Error),
                socket(fileno=os.dup(connection.fileno())) as shared,
            ):
                shared.shutdown(SHUT_RDWR)
        if pool is not None:
            Thread(target=pool.close, name="marklight-abort", daemon=True).start()

    def _open(self) -> ConnectionPool[AnyConnection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._conninfo(),
                    connection_class=self._connection_class(),
                    kwargs={"autocommit": True, "cursor_factory": RawCursor},
                    min_size=0,
                    max_size=self.max_size,
                    configure=self.configure,
                    max_idle=MAX_IDLE_SECONDS,
                    max_lifetime=MAX_LIFETIME_SECONDS,
                    reconnect_timeout=0.0,  # a failure is reported at once, and the next caller tries again
                    num_workers=1,
                    open=True,
                    name=f"marklight-{self.address.library}",
                )
            return self._pool

    def _conninfo(self) -> str:
        given = conninfo_to_dict(self.address.dsn)
        defaults: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            **_KEEPALIVE,
            "application_name": "marklight",
            "client_encoding": "UTF8",
        }
        return make_conninfo(**{**defaults, **given})

    def _connection_class(self) -> type[AnyConnection]:
        """Return a class of connections that records why connecting failed."""
        connections = self

        class ReportingConnection(Connection[tuple[Any, ...]]):
            @classmethod
            def connect(cls, *args: Any, **kwargs: Any) -> Any:
                try:
                    return super().connect(*args, **kwargs)
                except psycopg.Error as error:
                    connections._failure = error
                    raise

        return ReportingConnection

    def configure(self, connection: AnyConnection) -> None:
        """Set the search path: the library, then the schema of pgvector; and the type adapters.

        Without pgvector, that is the schema in which the first writer installs it, while this connection stays open.
        """
        connection.execute(
            "SELECT set_config('search_path', quote_ident($1) || coalesce((SELECT ', ' ||"
            " quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
            " WHERE e.extname = 'vector'), ', public'), false), set_config('jit', 'off', false)",
            [self.address.library],
        )
        adapters = connection.adapters
        adapters.register_dumper(str, EscapingDumper)
        # Both formats: the text format alone is chosen for some lists, and would take the type of their first number.
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_dumper(int, Int8BinaryDumper)
        adapters.register_dumper(Packed, PackedDumper)
        for type_name in ("text", "varchar", "name"):
            adapters.register_loader(type_name, UnescapingLoader)
            adapters.register_loader(type_name, UnescapingBinaryLoader)
        adapters.register_loader("numeric", PlainNumberLoader)
        adapters.register_loader("numeric", PlainNumberBinaryLoader)


def _plain_number(number: Any) -> Any:
    return int(number) if number == number.to_integral_value() else float(number)


class PlainNumberLoader(NumericLoader):
    """Reads numeric values, such as the sum of bigints, as int or float."""

    def load(self, data: Any) -> Any:
        return _plain_number(super().load(data))


class PlainNumberBinaryLoader(NumericBinaryLoader):
    """Reads numeric values in binary format as int or float."""

    def load(self, data: Any) -> Any:
        return _plain_number(super().load(data))
