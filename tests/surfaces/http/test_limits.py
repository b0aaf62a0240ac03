"""Slow clients, many clients, and an end that waits for neither."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from marklight.errors import UsageError
from marklight.surfaces.http import accepting
from marklight.surfaces.http.address import listen, port_of
from tests.making import write
from tests.surfaces.http.serving import PAGES, Served, everything, serving
from tests.surfaces.http.test_stream import Slow
from tests.waiting import until

HASTY = {"timeout_seconds": 1.0}
"""How long a client may take in these tests."""
CONNECTIONS = Path("/proc/net/tcp")


def dripped(served: Served, *parts: bytes) -> bytes:
    """What is said to somebody who sends a sign now and then, until the server has enough."""
    with served.raw() as made:
        try:
            for part in parts:
                made.sendall(part)
            end = time.monotonic() + 30
            made.settimeout(0.05)
            while time.monotonic() < end:
                try:
                    if not (said := made.recv(65_536)):
                        return b""
                    made.settimeout(30)
                    return said + everything(made)
                except TimeoutError:
                    made.sendall(b"a")
        except ConnectionError:
            return b""
        raise AssertionError("the server waits for ever")


def test_headers_that_drip_are_not_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path / "docs", serve=HASTY) as served:
        said = dripped(served, b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert said.startswith(b"HTTP/1.1 400")
        assert b"did not come in time" in said
        assert served.get("/health").status == 200


def test_a_body_that_drips_is_not_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path / "docs", serve=HASTY) as served:
        head = (
            f"POST /api/search HTTP/1.1\r\nHost: {served.name}\r\n"
            "Content-Type: application/json\r\nContent-Length: 90000\r\n\r\n"
        )
        said = dripped(served, head.encode(), b"{")
        assert said.startswith(b"HTTP/1.1 400")
        assert b"did not come in time" in said


def test_the_second_request_of_a_connection_may_not_drip_either(tmp_path: Path) -> None:
    with serving(tmp_path / "docs", serve=HASTY) as served:
        first = f"GET /health HTTP/1.1\r\nHost: {served.name}\r\n\r\n".encode()
        said = dripped(served, first, b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert said.startswith(b"HTTP/1.1 200")
        assert said.count(b"HTTP/1.1 ") == 2
        assert b"did not come in time" in said


@pytest.mark.parametrize("first", [b"", b"GET /health HTTP/1.1\r\nHost: HOST\r\n\r\n"])
def test_a_connection_that_asks_nothing_is_closed_without_a_word(
    tmp_path: Path, first: bytes
) -> None:
    with serving(tmp_path / "docs", serve=HASTY) as served, served.raw() as made:
        made.sendall(first.replace(b"HOST", served.name.encode()))
        assert everything(made).count(b"HTTP/1.1 ") == bool(first)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A document that does not fit into what systems keep between a server and its client."""
    text = "```\n" + f"{'x' * 1000}\n" * 8000 + "```\n"
    folder = write(tmp_path_factory.mktemp("large") / "docs", {"big.md": text})
    with serving(folder, serve=HASTY) as served:
        yield served


@pytest.mark.skipif(not CONNECTIONS.exists(), reason="no list of connections here")
def test_who_asks_and_does_not_read_is_cut_off(large: Served) -> None:
    with large.raw() as made:
        host = f"Host: {large.name}\r\n\r\n"
        made.sendall(f"GET /api/documents/big.md HTTP/1.1\r\n{host}".encode())
        assert made.recv(20).startswith(b"HTTP/1.1 200")
        # In the end the server has nobody to talk to.
        until(lambda: not is_open(large))
    assert large.get("/health").status == 200


def test_who_reads_slowly_is_waited_for(large: Served) -> None:
    with large.raw() as made:
        host = f"Host: {large.name}\r\nConnection: close\r\n\r\n"
        made.sendall(f"GET /api/documents/big.md HTTP/1.1\r\n{host}".encode())
        size = 0
        while part := made.recv(200_000):
            size += len(part)
            time.sleep(0.03)  # forty times at least, which is longer than anybody may be idle
        assert size > 8_000_000


def is_open(served: Served) -> bool:
    """Whether the system knows of a connection on the server's side."""
    local, established = f"0100007F:{served.port:04X}", "01"
    rows = [row.split() for row in CONNECTIONS.read_text().splitlines()[1:]]
    return any(row[1] == local and row[3] == established for row in rows)


def test_one_question_too_many_is_told_to_come_again(tmp_path: Path) -> None:
    few = {"searches": 1, "wait_seconds": 0.05}
    with serving(write(tmp_path / "docs", PAGES), serve=few) as served:
        slow, lib = Slow(), served.host.library
        plain = lib.pipeline
        lib.pipeline = replace(plain, rewrite={"slow": slow, **plain.rewrite})
        with served.raw() as made:
            made.sendall(f"GET /api/search?q=a HTTP/1.1\r\nHost: {served.name}\r\n\r\n".encode())
            assert slow.entered.wait(60)
            told = served.get("/api/search?q=b")
            assert told.status == 503
            assert int(told.headers["retry-after"]) >= 1
            assert told.json()["error"]["type"] == "Overloaded"
            assert served.get("/health").status == 200, "health waits for nobody"
            slow.release.set()
            assert made.recv(100).startswith(b"HTTP/1.1 200")
        assert served.get("/api/search?q=b").status == 200


def test_connections_beyond_the_limit_are_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MOST_SERVED", 3)
    monkeypatch.setattr(accepting, "MOST_REFUSED", 2)
    asked = b"GET /health HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
    with serving(tmp_path / "docs") as served, ExitStack() as held:
        for _ in range(3):
            held.enter_context(served.raw()).sendall(b"G")
        until(lambda: served.said(asked).startswith(b"HTTP/1.1 503"))
        said = served.said(asked.replace(b"HOST", served.name.encode()))
        assert b"retry-after: 1" in said
        assert b"x-content-type-options: nosniff" in said
        assert b'"Overloaded"' in said
        held.close()
        until(lambda: served.said(asked.replace(b"HOST", served.name.encode()))[9:12] == b"200")


def test_a_body_too_large_can_be_sent_whole_and_the_reason_read(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served:
        told = served.post("/api/search", b'{"query": "' + b"a" * 4_000_000 + b'"}')
        assert told.status == 413
        assert told.headers["connection"] == "close"


def test_who_asks_first_whether_to_send_a_large_body_is_told_before(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served, served.raw() as made:
        made.sendall(
            f"POST /api/search HTTP/1.1\r\nHost: {served.name}\r\nExpect: 100-continue\r\n"
            "Content-Type: application/json\r\nContent-Length: 5000000\r\n\r\n".encode()
        )
        assert everything(made).startswith(b"HTTP/1.1 413")


def test_questions_one_after_the_other_in_one_connection_are_answered_in_order(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "docs") as served:
        host = f"HTTP/1.1\r\nHost: {served.name}\r\n".encode()
        said = served.said(
            b"GET /api/search?q=token " + host + b"\r\n"
            b"GET /nowhere " + host + b"\r\n"
            b"GET /health " + host + b"Connection: close\r\n\r\n"
        )
        assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_open_streams_do_not_keep_the_server_from_its_end(tmp_path: Path) -> None:
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


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(UsageError, match="--port"):
        listen("127.0.0.1", port_of(taken))


def test_what_is_no_address_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="Invalid address"):
        listen("no.such.host.invalid", 0)


def test_the_parts_of_an_answer_do_not_wait_for_each_other() -> None:
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
