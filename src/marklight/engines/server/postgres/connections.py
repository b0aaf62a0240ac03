"""Connections to one PostgreSQL server: a bounded pool that is opened on first use, its type adapters, and its errors as our own.

Any Python string can be stored: NUL and lone surrogates, which PostgreSQL text cannot contain, are escaped. The escapes keep
equality, prefixes and code point order, so comparisons in SQL give the same result as in Python. NUL becomes U+0001 U+0001, and a
lone surrogate U+E000 with a character from U+0100 on; the two escape characters themselves are doubled or followed by a greater
one. Other texts are stored unchanged.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket
from threading import Lock, Thread
from typing import Any, NamedTuple

import psycopg
from psycopg import Connection, RawCursor, errors
from psycopg.abc import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper, NumericBinaryLoader
from psycopg.types.string import StrDumper, TextBinaryLoader, TextLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from marklight.engines.server.postgres.vector_index import Packed, PackedDumper
from marklight.errors import Busy, ConnectionLost, ReadOnly, StoreError

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
_LOW, _HIGH = "\x01", "\ue000"
_SURROGATE = 0xD800
_UNSAFE = re.compile("[\x00\x01\ud800-\udfff\ue000]")
_ESCAPED = re.compile("\x01.|\ue000.", re.DOTALL)
_FULL = (errors.DiskFull, errors.OutOfMemory, errors.InsufficientResources)
_LOGIN = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
_LOGIN_MESSAGES = ("password authentication failed", "no password supplied", "pg_hba.conf")
"""Texts by which a failed login is recognised: libpq reports no code for an error during connecting."""
_ATTEMPT = re.compile(r'connection to server (?:at|on socket) "([^"]*)"[^\n]*? failed: ([^\n]*)')
"""One host in a message of libpq about a failed connection, and the reason."""
_UNCHANGED = "The index is unchanged since the last commit"


class MissingLibrary(StoreError):
    """The library does not exist: no writer has created it yet."""


def explain(error: psycopg.Error, where: str) -> StoreError:
    """Return the error to raise in place of one of PostgreSQL; `where` is the address without the password."""
    reason = first_line(error)
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return MissingLibrary(f"{where} has no index yet ({reason})", "Run `marklight index`")
    if isinstance(error, errors.QueryCanceled):
        return StoreError(
            f"A statement on {where} took too long and was cancelled: {reason}",
            "Try again when the server is less busy",
        )
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
        return Busy(f"{where} is busy: {reason}", "Try again in a moment")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(
            f"The role of this connection may not do this in {where}: {reason}",
            "Ask an administrator of the database for the missing right",
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ReadOnly(
            f"{where} does not accept changes: the server is a replica or read-only",
            "Use the address of the primary server to update the index",
        )
    if isinstance(error, _FULL):
        return StoreError(
            f"The server of {where} has no space or memory left: {reason}",
            f"{_UNCHANGED}. Free some space on the server and run `marklight index`",
        )
    if is_lost(error):
        return ConnectionLost(
            f"The connection to {where} was lost: {reason}",
            f"{_UNCHANGED}. Try again; if it fails again, check that the server is running",
        )
    return StoreError(f"{where} reports an error: {reason}", "Check the log of the server")


def explain_connecting(error: psycopg.Error, where: str) -> StoreError:
    """Return the error to raise if no connection could be opened."""
    reason = first_line(error)
    if isinstance(error, _LOGIN) or any(text in str(error) for text in _LOGIN_MESSAGES):
        return StoreError(
            f"{where} refuses the login: {reason}",
            "Check user and password: in the address, in PGPASSWORD, or in ~/.pgpass",
        )
    if isinstance(error, errors.InvalidCatalogName) or (
        "database" in str(error) and "does not exist" in str(error)
    ):
        return StoreError(
            f"Cannot open {where}: {reason}",
            "Ask an administrator to create the database: CREATE DATABASE name",
        )
    if isinstance(error, errors.TooManyConnections) or "too many clients" in str(error):
        return Busy(
            f"The server of {where} has no free connection: {reason}",
            "Try again in a moment, or raise max_connections on the server",
        )
    if "session is read-only" in str(error):
        return StoreError(
            f"None of the servers of {where} accepts changes: the primary does not answer",
            "Check that one of the servers is a primary",
        )
    return StoreError(
        f"Cannot connect to {where}: {reason}",
        "Check that the server is running and that the address is right",
    )


def is_lost(error: BaseException) -> bool:
    """Return true if the error ended the connection, or the server is shutting down."""
    return isinstance(
        error,
        errors.AdminShutdown
        | errors.CrashShutdown
        | errors.CannotConnectNow
        | errors.IdleInTransactionSessionTimeout,
    ) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


def first_line(error: psycopg.Error) -> str:
    """Return the message of the server without its details; for a failed connection, the reason for each host."""
    if error.diag.message_primary:
        return error.diag.message_primary.splitlines()[0]
    text = str(error).removeprefix("consuming input failed: ") or type(error).__name__
    if attempts := list(dict.fromkeys(_ATTEMPT.findall(text))):
        reasons = [str(reason).removeprefix("FATAL:").strip() for _, reason in attempts]
        if len(attempts) == 1:
            return reasons[0]
        return "; ".join(
            f"{host}: {reason}" for (host, _), reason in zip(attempts, reasons, strict=True)
        )
    # libpq adds questions such as "Is the server running on that host?".
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not line.endswith("?")), lines[0]).rstrip(".")


def encode(text: str) -> str:
    """Return a text that PostgreSQL can store."""
    return _UNSAFE.sub(_escape, text)


def decode(text: str) -> str:
    """Return the text that was encoded."""
    return _ESCAPED.sub(_unescape, text)


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    if sign <= _LOW:
        return _LOW + chr(ord(sign) + 1)
    return _HIGH + (_HIGH if sign == _HIGH else chr(ord(sign) - _SURROGATE + 0x100))


def _unescape(match: re.Match[str]) -> str:
    first, second = match[0][0], match[0][1]
    if first == _LOW:
        return chr(ord(second) - 1)
    return _HIGH if second == _HIGH else chr(ord(second) - 0x100 + _SURROGATE)


class EscapingDumper(StrDumper):
    """Sends strings as text; escapes where needed."""

    def dump(self, obj: str) -> Buffer | None:
        if "\x00" in obj or _UNSAFE.search(obj):
            obj = encode(obj)
        return super().dump(obj)


class UnescapingLoader(TextLoader):
    """Reads text in text format."""

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return decode(text) if _LOW in text or _HIGH in text else text


class UnescapingBinaryLoader(TextBinaryLoader):
    """Reads text in binary format, which is the same."""

    load = UnescapingLoader.load


class ServerAddress(NamedTuple):
    """Connection string of libpq and name of the library, which is a schema of that database."""

    dsn: str
    library: str
    shown: str = ""
    """The address without password, for messages; that of the only host if it is empty."""

    @property
    def host(self) -> str:
        """Return the name and the port of the only host."""
        parts = conninfo_to_dict(self.dsn)
        name = parts.get("host") or parts.get("hostaddr") or "localhost"
        return f"{name}:{parts.get('port') or 5432}"

    def __str__(self) -> str:
        """Return the address without password."""
        if self.shown:
            return self.shown
        database = conninfo_to_dict(self.dsn).get("dbname", "")
        return f"postgresql://{self.host}/{database}?library={self.library}"

    def __repr__(self) -> str:
        return str(self)


class Connections:
    """A pool of connections to one server, all with the schema of one library in their search path."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        max_size: int = MAX_CONNECTIONS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.address = address
        self.max_size = max_size
        self.wait_seconds = wait_seconds
        self._lock = Lock()
        self._pool: ConnectionPool[AnyConnection] | None = None
        self._borrowed: set[AnyConnection] = set()
        self._failure: psycopg.Error | None = None
        self._has_lost = False
        """True if a connection was lost since the idle ones were checked: a server that restarts ends all of them."""

    @contextmanager
    def connection(self) -> Iterator[AnyConnection]:
        """Borrow a connection in autocommit mode; errors of the server are raised as `StoreError`.

        An open transaction is rolled back at the end, and a broken connection is replaced.
        """
        connection = self.borrow()
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
                    raise explain_connecting(failure, str(self.address)) from None
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
        explained = explain(error, str(self.address))
        self._has_lost |= isinstance(explained, ConnectionLost)
        return explained

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


class PlainNumberLoader(NumericBinaryLoader):
    """Reads numeric values, such as the sum of bigints, as int or float; sessions read all rows in binary format."""

    def load(self, data: Any) -> Any:
        number = super().load(data)
        return int(number) if number == number.to_integral_value() else float(number)
