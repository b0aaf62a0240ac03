"""Worker processes of `serve --workers N`: real processes, crashes and signals."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from marklight.errors import NotFound, StoreError
from marklight.surfaces import host as operations
from marklight.surfaces.cli import run
from marklight.surfaces.host import LibraryArguments, WatcherState, WorkerPool
from tests.surfaces.daemon.serving import PROGRAM, settled
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
WATCHING = WatcherState(None, True, "", "", True, "")


class Server:
    """`marklight serve --workers 2` as a process with its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", str(folder), "--port", "0", "--workers", "2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.port = int(settled(folder).address.rstrip("/").rpartition(":")[2])
        self.url = f"http://127.0.0.1:{self.port}"

    def workers(self) -> list[int]:
        """Return the worker processes; another child of the daemon cleans up semaphores."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split() if b"--multiprocessing-fork" in _command(pid)]

    def get(self, target: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content
            return json.loads(content)
        finally:
            connection.close()


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z"]


def _is_running(pid: int) -> bool:
    return _stat(pid)[0] != "Z"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.terminate()
        server.process.communicate(timeout=PATIENCE_SECONDS)


def test_both_processes_answer_and_a_new_document_is_found_at_once(folder: Path) -> None:
    with serving(folder) as server, ThreadPoolExecutor(8) as threads:
        workers = server.workers()
        assert len(workers) == 2
        before = [sum(map(int, _stat(pid)[11:13])) for pid in workers]

        def both_have_worked() -> bool:
            answers = list(threads.map(server.get, ["/api/search?q=token+refresh"] * 40))
            assert {answer["results"][0]["path"] for answer in answers} == {"guide/auth.md"}
            after = [sum(map(int, _stat(pid)[11:13])) for pid in workers]
            return all(now > then for now, then in zip(after, before, strict=True))

        until(both_have_worked)
        assert server.get("/api/status")["following"]["watching"]
        for number in range(3):
            path = folder / f"new-{number}.md"
            path.write_text(f"# Visit\n\nThe visitor zyxw{number}vut arrives.\n")
            while not (found := server.get(f"/api/search?q=zyxw{number}vut"))["results"]:
                # On a busy machine the watcher may hold the writer lock for longer than a search waits.
                assert any("index" in notice for notice in found["notices"]), found
            assert found["results"][0]["path"] == path.name


def test_mcp_clients_are_notified_of_what_a_search_in_a_worker_has_indexed(folder: Path) -> None:
    """Protocol versions with sessions: a session is in the daemon, whatever process answers."""

    async def follow(url: str) -> None:
        notified = anyio.Event()

        async def on_message(message: Any) -> None:
            if "list_changed" in str(getattr(message, "method", "")):
                notified.set()

        async with Client(f"{url}/mcp", mode="legacy", message_handler=on_message) as client:
            await client.list_tools()
            await anyio.sleep(0.5)  # the stream for notifications is open
            (folder / "lemonade.md").write_text("# Lemonade\n\nSqueeze four lemons.\n")
            with anyio.fail_after(PATIENCE_SECONDS):
                found = ""
                while "lemonade.md" not in found:
                    result = await client.call_tool("query_documents", {"query": "lemonade"})
                    found = str(result.content)
                await notified.wait()

    with serving(folder) as server:
        anyio.run(follow, server.url)


def test_crashed_processes_are_replaced_and_changed_settings_reach_them(folder: Path) -> None:
    with serving(folder) as server:
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
        for _ in range(3):
            assert server.get("/api/search?q=token")["results"]
        assert all(map(_is_running, server.workers()))
        (folder / "marklight.toml").write_text('[files]\nexclude = ["espresso.md"]\n')
        until(lambda: not server.get("/api/search?q=espresso+beans&mode=keyword")["results"])


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "SIGKILL", "stop"])
def test_no_process_outlives_the_daemon(folder: Path, end: str) -> None:
    with serving(folder) as server:
        workers = server.workers()
        if end == "stop":
            assert run(["serve", "--stop", str(folder)]) == 0
        else:
            server.process.send_signal(getattr(signal, end))
        code = server.process.wait(PATIENCE_SECONDS)
        assert code == (-signal.SIGKILL if end == "SIGKILL" else 0)
        until(lambda: not any(map(_is_running, workers)))
        assert run(["serve", "--status", str(folder)]) == 1


def wait_until_cancelled(library: Any, started: str, stopped: str, **hooks: Any) -> None:
    Path(started).touch()
    try:
        while True:
            hooks["check_cancelled"]()
            time.sleep(0.01)
    finally:
        Path(stopped).touch()


def crash(library: Any, **hooks: Any) -> None:
    os._exit(7)


def test_a_pool_cancels_calls_and_returns_errors(folder: Path, tmp_path: Path) -> None:
    started, stopped = tmp_path / "started", tmp_path / "stopped"

    async def use(pool: WorkerPool) -> None:
        await pool.start()
        work = partial(wait_until_cancelled, started=str(started), stopped=str(stopped))
        with anyio.move_on_after(PATIENCE_SECONDS):
            call = asyncio.create_task(pool.run(work, WATCHING))
            while not started.exists():
                await anyio.sleep(0.01)
            call.cancel()
            while not stopped.exists():
                await anyio.sleep(0.01)
        assert stopped.exists()
        with pytest.raises(StoreError, match="end unexpectedly"):
            await pool.run(crash, WATCHING)
        get = partial(operations.call, name="get", arguments={"ref": "missing.md"})
        with pytest.raises(NotFound, match=r"missing\.md") as caught:
            await pool.run(get, WATCHING)
        assert caught.value.hint
        outcome = await pool.run(partial(operations.call, name="tags", arguments={}), WATCHING)
        assert list(outcome.value["tags"]) == ["kitchen"]

    pool = WorkerPool(2, LibraryArguments(folder, {}, ()))
    try:
        asyncio.run(use(pool))
    finally:
        pool.close()
