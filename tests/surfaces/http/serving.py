"""A real HTTP server for tests: a small library behind a socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http import Address, listen, port_of
from marklight.surfaces.http.server import make_app, serve_http
from tests.making import library, write
from tests.waiting import until

PAGES = {
    "auth.md": "---\ntitle: Authentication\ntags: [security]\nstatus: draft\n---\n\nTokens expire after an hour.\n\n"
    "## Refresh\n\nA refresh token gives a new access token without asking the user again.\n",
    "deploy/rollback.md": "# Rolling back\n\nUse the undo command to return to an earlier revision.\n",
    "deploy/scale.md": "# Scaling\n\nMore replicas carry more load. See [[rollback]] and [[auth]].\n",
    "notes.txt": "Plain notes about the espresso machine in the kitchen.\n",
}
SECRET = "the crown jewels"


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    host: LibraryHost
    port: int
    leave: Callable[[], None] = field(repr=False)

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def request(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        given = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, body, given)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, names, answer.read())
        finally:
            connection.close()

    def get(self, target: str, **headers: str) -> Response:
        return self.request("GET", target, headers=headers)

    def post(self, target: str, body: Any, **headers: str) -> Response:
        return self.request("POST", target, body, headers)

    @contextmanager
    def raw(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as made:
            yield made

    def exchange(self, request: bytes) -> bytes:
        """Send bytes; return everything received until the server closes the connection."""
        with self.raw() as made:
            with suppress(ConnectionError):  # the server may close before everything is sent
                made.sendall(request)
            return everything(made)


def everything(made: socket.socket) -> bytes:
    parts = []
    try:
        while part := made.recv(65_536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def _settled(host: LibraryHost) -> bool:
    """Return true once everything is indexed and files are watched."""
    following = host.watcher
    return not following.progress and (following.watching or bool(following.to_dict()["problem"]))


@contextmanager
def serving(
    folder: Path,
    address: Mapping[str, Any] | None = None,
    make: Callable[[LibraryHost, Address], Any] = make_app,
    port: int = 0,
    indexed: bool = True,
    **settings: Any,
) -> Iterator[Served]:
    """Index and serve a folder, by default at a free port."""
    if not folder.exists():
        write(folder, PAGES)
    lib = library(folder, **settings)
    if indexed:
        lib.index()
    host = LibraryHost(lib)
    options = {"host": "127.0.0.1", **(address or {})}
    listening = listen(options["host"], port)
    port = port_of(listening)
    app = make(host, Address(port=port, **options))
    ready, over, loops = Event(), Event(), list[asyncio.AbstractEventLoop]()
    tasks: list[asyncio.Task[None]] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with host.open():
            timeout = lib.serve.timeout_seconds
            tasks.append(asyncio.create_task(serve_http(app, listening, timeout, ready.set)))
            await asyncio.wait(tasks)

    def work() -> None:
        try:
            asyncio.run(run())
        finally:
            over.set()
            ready.set()

    thread = Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    assert not over.is_set()

    def leave() -> None:
        if not over.is_set():
            loops[0].call_soon_threadsafe(tasks[0].cancel)
        thread.join(60)
        assert not thread.is_alive()

    served = Served(host, port, leave)
    try:
        until(lambda: _settled(host))
        yield served
    finally:
        leave()
