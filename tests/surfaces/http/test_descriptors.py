"""A server with few file descriptors stays calm while too many connect, and answers afterwards."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from marklight.surfaces.http import accepting
from marklight.surfaces.http.accepting import Room, room
from tests.making import write
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

DESCRIPTORS, CLIENTS = 64, 200
WATCHED_SECONDS = 3.0


class Server:
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
        told = b""
        while not told.endswith(b"}\n"):
            line = self.process.stdout.readline()
            assert line, log.read_text()
            told += line
        self.state: dict[str, Any] = json.loads(told)
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
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "none")
    for name in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"MARKLIGHT_{name}_DIR", str(tmp_path / name))
    made = Server(write(tmp_path / "notes", {"a.md": "# A\n\nAn otter.\n"}), tmp_path / "log")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("port", ["http", "ipc"])
def test_many_half_open_requests_cost_no_log_and_no_time(server: Server, port: str) -> None:
    until(lambda: server.search() == 1)
    number = server.ports[port]
    with ExitStack() as held:
        for _ in range(CLIENTS):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", number))
            with suppress(OSError):
                client.send(b"GET / HTTP/1.1")
        before = server.cpu_seconds()
        time.sleep(WATCHED_SECONDS)
        assert server.cpu_seconds() - before < WATCHED_SECONDS / 2
        assert server.process.poll() is None
        if port == "http":
            assert server.descriptors() < DESCRIPTORS
    until(lambda: server.search() == 1)
    assert server.log.stat().st_size < 10_000


@pytest.mark.parametrize(
    "free, wanted",
    [(None, Room(500, 100)), (10_000, Room(500, 100)), (60, Room(50, 10)), (-5, Room(3, 1))],
)
def test_connections_are_as_many_as_there_are_descriptors_for(
    free: int | None, wanted: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "_free_files", lambda: free)
    assert room() == wanted
