"""Several worker processes behind one address: real processes, real sockets, crashes and signals."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from marklight.errors import StoreError, UsageError
from marklight.surfaces.cli.app import run
from marklight.surfaces.daemon import supervisor as supervisor_module
from marklight.surfaces.daemon.supervisor import Supervisor
from marklight.surfaces.daemon.worker_channel import SharedLoads
from marklight.surfaces.http.address import listen
from tests.surfaces.daemon.serving import PROGRAM, settled, without_times
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
STREAMS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-06-18",
}


class Workers:
    """`marklight serve --workers 2` as a process with two children."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", str(folder), "--port", "0", "--workers", "2", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.port = int(settled(folder).address.rstrip("/").rpartition(":")[2])
        assert self.process.stdout
        assert self.process.stdout.readline()  # printed once all processes answer

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split() if _is_running(int(pid))]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    @contextmanager
    def connections(self, count: int) -> Iterator[list[http.client.HTTPConnection]]:
        """Yield open connections, spread over the processes."""
        made = [self.connect() for _ in range(count)]
        try:
            for connection in made:
                _call(connection, "GET", "/health")
            yield made
        finally:
            for connection in made:
                connection.close()

    def get(self, target: str, **headers: str) -> Any:
        connection = self.connect()
        try:
            return _call(connection, "GET", target, headers=headers)
        finally:
            connection.close()


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_for_end(pid: int) -> None:
    until(lambda: not _is_running(pid))


def _call(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> Any:
    connection.request(method, target, json.dumps(body) if body else None, headers or {})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, (response.status, content)
    return json.loads(content)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Workers]:
    workers = Workers(folder, *arguments)
    try:
        yield workers
    finally:
        if workers.process.poll() is None:
            workers.process.terminate()
        workers.process.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """One server for tests that leave it as it is."""
    from tests.making import library, write
    from tests.surfaces.daemon.conftest import PAGES

    place = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARKLIGHT_MODEL_NAME", "fake")
        patch.setenv("MARKLIGHT_DATA_DIR", str(place / "data"))
        patch.setenv("MARKLIGHT_STATE_DIR", str(place / "state"))
        folder = write(place / "docs", PAGES)
        with library(folder) as made:
            made.index()
        with serving(folder) as workers:
            yield workers


def open_session(connection: http.client.HTTPConnection) -> str:
    """Open an MCP session; the connection stays open."""
    connection.request("POST", "/mcp", json.dumps(INITIALIZE), STREAMS)
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return str(response.getheader("mcp-session-id"))


def use_session(workers: Workers, id: str, method: str = "POST") -> tuple[int, bytes]:
    """Send a request of a session over a connection of its own."""
    connection = workers.connect()
    body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    try:
        connection.request(
            method,
            "/mcp",
            body if method == "POST" else None,
            {**STREAMS, "Mcp-Session-Id": id},
        )
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_connections_are_spread_over_the_processes(shared: Workers) -> None:
    with shared.connections(6) as held:
        owners = [open_session(connection).partition(".")[0] for connection in held]
    assert sorted(owners) == ["0"] * 3 + ["1"] * 3


def test_every_process_returns_the_same_answers(shared: Workers) -> None:
    with shared.connections(2) as held:
        for target in ("/api/search?q=token+refresh", "/api/status", "/health", "/api/tags"):
            first, second = (without_times(_call(each, "GET", target)) for each in held)
            assert {**first, "sizes": None} == {**second, "sizes": None}
        assert all(_call(each, "GET", "/api/status")["following"]["watching"] for each in held)


def test_a_streamed_search_arrives_from_every_process(shared: Workers) -> None:
    with shared.connections(2) as held:
        for connection in held:
            connection.request("GET", "/api/search/stream?q=token")
            events = connection.getresponse().read().decode()
            assert events.count("event: results") == 2
            assert events.count("event: done") == 1


def test_an_mcp_session_is_served_whatever_process_accepts_the_connection(shared: Workers) -> None:
    with shared.connections(2) as held:
        ids = [open_session(connection) for connection in held]
        assert {id.partition(".")[0] for id in ids} == {"0", "1"}
        for id in ids:
            for _ in range(6):
                status, content = use_session(shared, id)
                assert status == 200
                assert b"query_documents" in content
            assert use_session(shared, id, "DELETE")[0] == 200
            for _ in range(4):
                assert use_session(shared, id)[0] == 404


@pytest.mark.parametrize("id", ["7.abc", "1.unknown", "x.y", "0.", "nothing", "-1.a", "١.a"])
def test_an_unknown_session_is_not_found(shared: Workers, id: str) -> None:
    for _ in range(4):
        connection = shared.connect()
        connection.putrequest("POST", "/mcp")
        body = b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}'
        for name, value in {**STREAMS, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.putheader("Mcp-Session-Id", id.encode())
        connection.endheaders(body)
        assert connection.getresponse().status == 404
        connection.close()


def test_mcp_clients_are_notified_of_changes_from_every_process(shared: Workers) -> None:
    """Four clients on two processes, of which only one watches the files."""
    heard: list[int] = []
    path = shared.folder / "lemonade.md"

    async def follow(number: int, ready: list[int]) -> None:
        async def on_message(message: Any) -> None:
            if "list_changed" in str(getattr(message, "method", "")):
                heard.append(number)

        address = f"http://127.0.0.1:{shared.port}/mcp"
        async with Client(address, mode="legacy", message_handler=on_message) as client:
            await client.list_tools()
            ready.append(number)
            with anyio.fail_after(PATIENCE_SECONDS):
                while number not in heard:
                    await anyio.sleep(0.05)

    async def all_of_them() -> None:
        ready: list[int] = []
        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(follow, number, ready)
            while len(ready) < 4:
                await anyio.sleep(0.05)
            await anyio.sleep(0.5)  # the streams for notifications are open
            path.write_text("# Lemonade\n\nSqueeze four lemons.\n")

    anyio.run(all_of_them)
    assert set(heard) == {0, 1, 2, 3}
    path.unlink()


def test_a_new_document_is_found_by_the_next_search_of_every_process(shared: Workers) -> None:
    with shared.connections(2) as held:
        for number in range(10):
            path = shared.folder / f"new-{number}.md"
            path.write_text(f"# Visit\n\nThe visitor zyxw{number}vut arrives.\n")
            target = f"/api/search?q=zyxw{number}vut"
            while not (found := _call(held[number % 2], "GET", target))["results"]:
                # On a busy machine another process may hold the writer lock for longer than a search waits.
                assert any("index" in notice for notice in found["notices"]), found
            assert found["results"][0]["path"] == path.name
            path.unlink()


def test_a_crashed_process_is_started_again_while_others_answer(folder: Path) -> None:
    with serving(folder) as workers:
        started = time.monotonic()
        for number in (1, 0, 0):  # the second one, then the one that watches the files
            before = workers.children()
            os.kill(before[number], signal.SIGKILL)
            _wait_for_end(before[number])
            for _ in range(5):
                assert workers.get("/api/search?q=token")["results"]
            until(lambda: len(workers.children()) == 2)
            until(lambda: settled(folder) and workers.get("/api/status")["following"]["watching"])
        assert (
            time.monotonic() - started >= 0.5 + 0.5 + 1.0
        )  # the second crash of a process pauses longer
        (folder / "later.md").write_text("# Later\n\nAdded after the zebra crash.\n")
        until(lambda: workers.get("/api/search?q=zebra&refresh=false")["results"])
        workers.process.terminate()
        _, printed = workers.process.communicate(timeout=PATIENCE_SECONDS)
    assert (
        printed.decode().count("ended unexpectedly (signal 9). The process is started again") == 3
    )


def test_the_server_comes_back_after_all_processes_crashed_at_once(folder: Path) -> None:
    with serving(folder) as workers:
        before = workers.children()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        for pid in before:
            _wait_for_end(pid)
        until(lambda: len(workers.children()) == 2)
        assert workers.get("/api/search?q=token")["results"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_processes_in_order(folder: Path, number: int) -> None:
    with serving(folder) as workers:
        children = workers.children()
        workers.process.send_signal(number)
        assert workers.process.wait(PATIENCE_SECONDS) == 0
        assert not any(_is_running(pid) for pid in children)
    assert run(["serve", "status", str(folder)]) == 1


def test_stop_ends_all_processes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(folder) as workers:
        children = workers.children()
        assert run(["stop", str(folder)]) == 0
        assert f"process {workers.process.pid}" in capsys.readouterr().out
        assert workers.process.wait(PATIENCE_SECONDS) == 0
        assert not any(_is_running(pid) for pid in children)


def test_processes_do_not_outlive_a_killed_supervisor(folder: Path) -> None:
    with serving(folder) as workers:
        children = workers.children()
        workers.process.kill()
        until(lambda: not any(_is_running(pid) for pid in children))


def test_a_login_is_valid_in_every_process_and_a_forged_forwarding_header_in_none(
    folder: Path,
) -> None:
    with serving(folder, "--token", "s3cret") as workers:
        with workers.connections(4) as held:
            held[0].request("GET", "/?token=s3cret")
            response = held[0].getresponse()
            cookie = str(response.getheader("set-cookie")).partition(";")[0]
            response.read()
            for connection in held:
                assert _call(connection, "GET", "/api/tags", headers={"Cookie": cookie})
                forged = {"X-Marklight-Forwarded": "guess"}
                connection.request("GET", "/api/tags", headers=forged)
                response = connection.getresponse()
                assert response.status == 401
                response.read()
        arguments = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in workers.children()]
        assert not any(b"s3cret" in each for each in arguments)


def test_one_message_if_a_process_cannot_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = (sys.executable, "-c", "import sys; sys.exit(7)")
    monkeypatch.setattr(supervisor_module, "PROGRAM", failing)
    printed: list[str] = []
    listener = listen("127.0.0.1", 0)
    supervisor = Supervisor(2, folder, {}, (), listener, folder / "state", printed.append)
    with listener, pytest.raises(StoreError, match=r"ended unexpectedly \(exit code 7\)"):
        supervisor.run(lambda state: printed.append("ready"))
    assert printed == []
    assert all(worker.process is None for worker in supervisor.workers)


def test_the_error_of_a_process_is_the_error_of_the_command(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The settings become invalid between the check of the supervisor and the start of its workers."""
    listener = listen("127.0.0.1", 0)
    options = {"host": "192.0.2.1"}
    supervisor = Supervisor(2, folder, options, (), listener, folder / "state", print)
    with listener, pytest.raises(UsageError, match="a token is required"):
        supervisor.run(print)
    assert capfd.readouterr() == ("", "")


def test_the_least_busy_running_process_accepts_first() -> None:
    loads = SharedLoads.create(3)
    one, two = SharedLoads(loads.file, 3, 0), SharedLoads(loads.file, 3, 1)
    one.report(4)
    assert not one.is_busier()
    two.report(3)
    assert one.is_busier()
    assert not two.is_busier()
    assert [loads.is_running(worker) for worker in range(3)] == [True, True, False]
