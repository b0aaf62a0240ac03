"""Slow clients, many clients, few file descriptors, and a shutdown that waits for none of them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import urlopen

import pytest

from marklight.errors import UsageError
from marklight.library.configuration import Serve
from marklight.surfaces.http import listen, port_of
from marklight.surfaces.http import server as server_module
from tests.making import write
from tests.surfaces.http.serving import PAGES, Served, everything, serving
from tests.surfaces.http.test_execution import Slow
from tests.waiting import until

HASTY = mock.patch.object(Serve, "timeout_seconds", 1.0)
"""Read and write timeout in these tests."""
CONNECTIONS = Path("/proc/net/tcp")
DESCRIPTORS, CLIENTS = 64, 200
WATCHED_SECONDS = 3.0


def send_slowly(served: Served, *parts: bytes) -> bytes:
    """Send the parts, then one byte at intervals; return everything the server sends."""
    with served.raw() as made:
        try:
            for part in parts:
                made.sendall(part)
            end = time.monotonic() + 30
            made.settimeout(0.05)
            while time.monotonic() < end:
                try:
                    if not (received := made.recv(65_536)):
                        return b""
                    made.settimeout(30)
                    return received + everything(made)
                except TimeoutError:
                    made.sendall(b"a")
        except ConnectionError:
            return b""
        raise AssertionError("the server does not time out")


def test_slow_request_headers_time_out(tmp_path: Path) -> None:
    with HASTY, serving(tmp_path / "docs") as served:
        received = send_slowly(served, b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert received.startswith(b"HTTP/1.1 400")
        assert b"was not received in time" in received
        assert served.get("/health").status == 200


def test_a_slow_request_body_times_out(tmp_path: Path) -> None:
    with HASTY, serving(tmp_path / "docs") as served:
        head = (
            f"POST /api/search HTTP/1.1\r\nHost: {served.name}\r\n"
            "Content-Type: application/json\r\nContent-Length: 90000\r\n\r\n"
        )
        received = send_slowly(served, head.encode(), b"{")
        assert received.startswith(b"HTTP/1.1 400")
        assert b"was not received in time" in received


def test_a_body_of_very_many_chunks_is_rejected_before_all_of_it_is_parsed(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served, served.raw() as made:
        head = (
            f"POST /api/search HTTP/1.1\r\nHost: {served.name}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        ).encode()
        body = b'{"query": "backups"}'
        with suppress(ConnectionError):  # the rest of what we send is not read
            made.sendall(head + b"1\r\na\r\n" * 200_000 + b"0\r\n\r\n")
        assert served.get("/health").status == 200
        received = everything(made)
        assert received.startswith(b"HTTP/1.1 400")
        assert b"too many chunks: at most 4,096" in received

        with served.raw() as other:  # as many as a serializer sends that writes token by token
            chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body.ljust(4096))
            other.sendall(head + chunks + b"0\r\n\r\n")
            assert other.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_slow_second_request_on_a_connection_times_out(tmp_path: Path) -> None:
    with HASTY, serving(tmp_path / "docs") as served:
        first = f"GET /health HTTP/1.1\r\nHost: {served.name}\r\n\r\n".encode()
        received = send_slowly(served, first, b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert received.startswith(b"HTTP/1.1 200")
        assert received.count(b"HTTP/1.1 ") == 2
        assert b"was not received in time" in received


@pytest.mark.parametrize("first", [b"", b"GET /health HTTP/1.1\r\nHost: HOST\r\n\r\n"])
def test_an_idle_connection_is_closed_without_a_response(tmp_path: Path, first: bytes) -> None:
    with HASTY, serving(tmp_path / "docs") as served, served.raw() as made:
        made.sendall(first.replace(b"HOST", served.name.encode()))
        assert everything(made).count(b"HTTP/1.1 ") == bool(first)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A document larger than the socket buffers."""
    text = "```\n" + f"{'x' * 1000}\n" * 8000 + "```\n"
    folder = write(tmp_path_factory.mktemp("large") / "docs", {"big.md": text})
    with HASTY, serving(folder) as served:
        yield served


@pytest.mark.skipif(not CONNECTIONS.exists(), reason="needs /proc/net/tcp")
def test_a_client_that_does_not_read_is_disconnected(large: Served) -> None:
    with large.raw() as made:
        host = f"Host: {large.name}\r\n\r\n"
        made.sendall(f"GET /api/documents/big.md HTTP/1.1\r\n{host}".encode())
        assert made.recv(20).startswith(b"HTTP/1.1 200")
        # The server closes the connection.
        until(lambda: not is_open(large))
    assert large.get("/health").status == 200


def test_a_slow_reader_gets_the_whole_response(large: Served) -> None:
    with large.raw() as made:
        host = f"Host: {large.name}\r\nConnection: close\r\n\r\n"
        made.sendall(f"GET /api/documents/big.md HTTP/1.1\r\n{host}".encode())
        size = 0
        while part := made.recv(200_000):
            size += len(part)
            time.sleep(0.03)  # at least forty times, longer than the timeout
        assert size > 8_000_000


def is_open(served: Served) -> bool:
    """Return whether the server has an established connection."""
    local, established = f"0100007F:{served.port:04X}", "01"
    rows = [row.split() for row in CONNECTIONS.read_text().splitlines()[1:]]
    return any(row[1] == local and row[3] == established for row in rows)


def test_a_search_beyond_the_concurrency_limit_gets_503(tmp_path: Path) -> None:
    few = mock.patch.multiple(Serve, searches=1, wait_seconds=0.05)
    with few, serving(write(tmp_path / "docs", PAGES)) as served:
        slow, lib = Slow(), served.host.library
        plain = lib.pipeline
        lib.pipeline = replace(plain, rewrite={"slow": slow, **plain.rewrite})
        with served.raw() as made:
            made.sendall(f"GET /api/search?q=a HTTP/1.1\r\nHost: {served.name}\r\n\r\n".encode())
            assert slow.entered.wait(60)
            response = served.get("/api/search?q=b")
            assert response.status == 503
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["type"] == "Overloaded"
            assert served.get("/health").status == 200, "health does not wait"
            slow.release.set()
            assert made.recv(100).startswith(b"HTTP/1.1 200")
        assert served.get("/api/search?q=b").status == 200


def test_connections_beyond_the_limit_wait_until_an_idle_one_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 3)
    with serving(tmp_path / "docs") as served, ExitStack() as held:
        for _ in range(3):
            held.enter_context(served.raw()).sendall(b"G")
        assert served.get("/health").status == 200


def test_a_client_can_read_the_error_after_sending_a_body_that_is_too_large(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served:
        response = served.post("/api/search", b'{"query": "' + b"a" * 4_000_000 + b'"}')
        assert response.status == 413
        assert response.headers["connection"] == "close"


def test_expect_100_continue_with_a_large_body_gets_413_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served, served.raw() as made:
        made.sendall(
            f"POST /api/search HTTP/1.1\r\nHost: {served.name}\r\nExpect: 100-continue\r\n"
            "Content-Type: application/json\r\nContent-Length: 5000000\r\n\r\n".encode()
        )
        assert everything(made).startswith(b"HTTP/1.1 413")


def test_pipelined_requests_are_answered_in_order(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "docs") as served:
        host = f"HTTP/1.1\r\nHost: {served.name}\r\n".encode()
        received = served.exchange(
            b"GET /api/search?q=token " + host + b"\r\n"
            b"GET /nowhere " + host + b"\r\n"
            b"GET /health " + host + b"Connection: close\r\n\r\n"
        )
        assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_open_streams_do_not_delay_shutdown(tmp_path: Path) -> None:
    with serving(write(tmp_path / "docs", PAGES)) as served, ExitStack() as held:
        slow, lib = Slow(), served.host.library
        lib.pipeline = replace(lib.pipeline, rewrite={"slow": slow, **lib.pipeline.rewrite})
        made = held.enter_context(served.raw())
        made.sendall(f"GET /api/search/stream?q=a HTTP/1.1\r\nHost: {served.name}\r\n\r\n".encode())
        assert slow.entered.wait(60)
        idle = held.enter_context(served.raw())
        slow.release.set()
        served.leave()
        assert everything(idle) == b""


def test_a_port_in_use_is_a_clear_error() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(UsageError, match="--port"):
        listen("127.0.0.1", port_of(taken))


def test_an_invalid_address_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="Invalid address"):
        listen("no.such.host.invalid", 0)


def test_accepted_connections_have_tcp_nodelay() -> None:
    found: list[int] = []

    async def main() -> None:
        heard = asyncio.Event()

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made = writer.get_extra_info("socket")
            found.append(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            heard.set()
            writer.close()

        listening = listen("127.0.0.1", 0)
        async with await asyncio.start_server(answer, sock=listening):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(listening))
            await heard.wait()
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())
    assert found
    assert all(found)


class LimitedServer:
    """`marklight serve` as a process of its own, with few file descriptors."""

    def __init__(self, folder: Path, log: Path) -> None:
        import resource

        self.log = log
        limit = (DESCRIPTORS, DESCRIPTORS)
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "marklight", "serve", "--port", "0", "--json", str(folder)],
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
            )
        assert self.process.stdout
        response = b""
        while not response.endswith(b"}\n"):
            line = self.process.stdout.readline()
            assert line, log.read_text()
            response += line
        self.state: dict[str, Any] = json.loads(response)
        self.address = self.state["address"]

    @property
    def ports(self) -> dict[str, int]:
        inode = {
            target[8:-1]
            for each in os.listdir(f"/proc/{self.process.pid}/fd")
            if (target := _target(f"/proc/{self.process.pid}/fd/{each}")).startswith("socket:")
        }
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {
            int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inode
        }
        http = int(self.address.rstrip("/").rpartition(":")[2])
        (ipc,) = listening - {http}
        return {"http": http, "ipc": ipc}

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def search(self) -> int:
        try:
            with urlopen(f"{self.address}api/search?q=otter", timeout=60) as answer:
                return len(json.load(answer)["results"])
        except OSError:
            return 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        if self.process.stdout:
            self.process.stdout.close()


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitedServer]:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "none")
    for name in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"MARKLIGHT_{name}_DIR", str(tmp_path / name))
    made = LimitedServer(
        write(tmp_path / "notes", {"a.md": "# A\n\nAn otter.\n"}), tmp_path / "log"
    )
    try:
        yield made
    finally:
        made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("port", ["http", "ipc"])
def test_many_half_open_requests_cause_no_log_flood_and_no_cpu_load(
    limited: LimitedServer, port: str
) -> None:
    until(lambda: limited.search() == 1)
    number = limited.ports[port]
    with ExitStack() as held:
        for _ in range(CLIENTS):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", number))
            with suppress(OSError):
                client.send(b"GET / HTTP/1.1")
        before = limited.cpu_seconds()
        time.sleep(WATCHED_SECONDS)
        assert limited.cpu_seconds() - before < WATCHED_SECONDS / 2
        assert limited.process.poll() is None
        if port == "http":
            assert limited.descriptors() < DESCRIPTORS
    until(lambda: limited.search() == 1)
    assert limited.log.stat().st_size < 10_000


@pytest.mark.parametrize(
    "limit, wanted",
    [
        (None, 500),
        (10_000, 500),
        (100, 100 - 32 - 20),
        (30, 4),
    ],
)
def test_the_connection_limit_follows_from_the_file_descriptor_limit(
    limit: int | None, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "resource_limit", lambda _: limit)
    monkeypatch.setattr("os.listdir", lambda _: ["open"] * 20)
    assert server_module.max_connections() == wanted
