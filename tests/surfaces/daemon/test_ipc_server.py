"""The IPC server: authentication, limits, and other programs on its port."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread, Timer

import pytest

from marklight.private_files import lock_file, state_folder
from marklight.surfaces.cli import run
from marklight.surfaces.daemon import (
    State,
    client,
    make_state_folder,
    process_settings,
    write_state,
)
from marklight.surfaces.daemon.client import Connection
from marklight.surfaces.daemon.process import MAX_CLIENTS, MAX_REJECTED
from tests.surfaces.daemon.serving import of, serving
from tests.waiting import PATIENCE_SECONDS, until


@contextmanager
def many_clients(daemon: State, count: int) -> Iterator[None]:
    """Connect this many clients."""
    with ExitStack() as lines:
        for _ in range(count):
            line = until(lambda: admitted(daemon))
            lines.callback(line.close)
            line.negotiate((), "call")
        yield


def admitted(daemon: State) -> Connection | None:
    """Connect; None while the daemon still counts clients that have just disconnected."""
    connection = Connection(daemon)
    if not connection.is_rejected:
        return connection
    connection.close()
    return None


@pytest.fixture
def daemon(folder: Path) -> Iterator[State]:
    with serving(folder):
        yield of(folder)


def answer_to(port: int, sent: bytes) -> bytes:
    """All that comes back until the other side hangs up."""
    with socket.create_connection(("127.0.0.1", port), 30) as line:
        line.sendall(sent)
        received = b""
        with suppress(ConnectionResetError):  # hung up on amid what we sent
            while part := line.recv(65_536):
                received += part
    return received


def test_only_the_user_can_read_the_state_files(daemon: State) -> None:
    folder = state_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert len(daemon.secret) > 30
    assert daemon.proof != daemon.secret


def test_a_client_without_the_secret_gets_no_answer(daemon: State) -> None:
    wrong = {"secret": daemon.secret[:-1]}
    for sent in (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n" + json.dumps({"secret": daemon.secret}).encode(),
        json.dumps(wrong).encode() + b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"secret": null}\n',
        b'{"secret": "\\udcff"}\n',
        b"\xff\xfe\n",
        b"[" * 10_000 + b"\n",
        b"x" * 200_000,
        b"",  # nothing at all, until it is let go
    ):
        assert answer_to(daemon.port, sent) == b"", sent[:40]
    hello = json.dumps({"secret": daemon.secret}).encode() + b"\n{}\n"
    assert json.loads(answer_to(daemon.port, hello).splitlines()[0])["proof"] == daemon.proof


def test_an_invalid_session_does_not_disturb_the_daemon(daemon: State, folder: Path) -> None:
    hello = json.dumps({"secret": daemon.secret}).encode() + b"\n"
    settle = json.dumps({"settings": process_settings()}).encode() + b"\n"
    for sent in (b"nonsense\n", b"{}\n", settle + b"[]\n", settle + b"{\n"):
        answer_to(daemon.port, hello + sent)
    reply = answer_to(
        daemon.port, hello + settle + b'{"operation": "close"}\n{"id": 2}\nx\n'
    ).splitlines()
    assert json.loads(reply[2])["error"]["type"] == "KeyError"
    query = b'{"id": 7, "operation": "settings", "arguments": {}}\nx\n'
    reply = answer_to(daemon.port, hello + settle + query).splitlines()
    assert json.loads(reply[2])["error"]["type"] == "NotFound"
    assert of(folder) == daemon


@contextmanager
def other_program(sent: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Another program on a port: sends the same to every client and records what it receives."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                with line:
                    line.settimeout(PATIENCE_SECONDS)
                    received.append(line.recv(65_536))
                    line.sendall(sent)
                    while sent and (part := line.recv(65_536)):
                        received.append(part)

        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1], received
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_SECONDS)


def write_state_file(folder: Path, port: int, **others: str) -> Path:
    from marklight import __version__

    file = make_state_folder() / "a.json"
    values = {"secret": "s", "proof": "p", "version": __version__, **others}
    write_state(file, State(str(folder.resolve()), os.getpid(), port, **values))
    return file


def test_a_full_daemon_rejects_clients_with_a_note_and_can_be_stopped(
    daemon: State, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = f"note: The daemon (process {daemon.pid}) already has its maximum number of clients. This command works without it.\n"
    with many_clients(daemon, MAX_CLIENTS):
        assert run(["search", "roll back"]) == 0
        out, err = capsys.readouterr()
        assert "guide/deploy.md" in out
        assert err == full
        crowded = f"The daemon (process {daemon.pid}) closes connections at once, probably because it has too many clients"

        def crowded_out(*arguments: str) -> str:
            """Return the error output while silent connections use up even the rejected ones."""
            with ExitStack() as silent:
                for _ in range(MAX_REJECTED):
                    silent.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
                run(arguments)
            return capsys.readouterr().err

        assert crowded_out("serve", "--stop").startswith(f"marklight: {crowded}. Try again")
        # Clients that get no answer do not conclude that the daemon has ended.
        until(
            lambda: (
                crowded_out("search", "roll back")
                == f"note: {crowded}. This command works without it.\n"
            )
        )
        assert of(folder) == daemon
        until(lambda: run(["serve", "--status"]) == 0)
    capsys.readouterr()
    until(lambda: run(["search", "roll back"]) == 0 and not capsys.readouterr().err)
    with many_clients(daemon, MAX_CLIENTS):
        assert run(["serve", "--stop"]) == 0


@pytest.mark.parametrize(
    "sent",
    [b"", b"\n", b"[]\n", b'{"proof": "x"}\n', b"HTTP/1.1 400\r\n", b"[" * 60_000 + b"\n"],
    ids=range(6),
)
def test_another_program_on_the_port_never_receives_the_query(
    folder: Path, capsys: pytest.CaptureFixture[str], sent: bytes
) -> None:
    with other_program(sent) as (port, received):
        file = write_state_file(folder, port)
        assert run(["search", "a very private question", "--mode", "keyword"]) == 1
    assert received
    assert not any(b"private" in each or b"MARKLIGHT" in each for each in received)
    assert not file.exists()


def test_a_silent_program_on_the_port_is_recognised_by_the_free_lock(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HANDSHAKE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = write_state_file(folder, silent.getsockname()[1])
        assert run(["search", "roll back"]) == 0
        # The process ID may belong to another process by now, so the user must not be told to kill it.
        assert f"process {os.getpid()}" not in capsys.readouterr().err
        assert not file.exists()


def test_a_daemon_that_is_ending_is_not_reported_as_unresponsive(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with other_program(b"") as (port, _):
        file = write_state_file(folder, port)
        lock = lock_file(file.with_suffix(".lock"), 0)
        # As when it was killed: the port was closed, the lock is not yet.
        ending = Timer(0.2, lock.close)
        ending.start()
        assert run(["search", "roll back"]) == 0
        ending.join()
    assert capsys.readouterr().err == ""
    assert not file.exists()


def test_a_slow_handshake_times_out(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HANDSHAKE_SECONDS", 0.5)
    received: list[bytes] = []

    def drip(listening: socket.socket) -> None:
        line, _ = listening.accept()
        with line, suppress(OSError):
            for each in b'{"proof": "p"}\n':
                line.sendall(bytes([each]))
                time.sleep(0.1)
            line.settimeout(PATIENCE_SECONDS)
            while part := line.recv(65_536):
                received.append(part)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=drip, args=[listening])
        thread.start()
        write_state_file(folder, listening.getsockname()[1])
        assert run(["search", "roll back"]) == 0
        thread.join()
    assert b"settings" not in b"".join(received)


def test_a_daemon_of_another_version_is_reported_and_not_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with other_program(b'{"proof": "p"}\n') as (port, received):
        file = write_state_file(folder, port, version="0.0.1")
        assert run(["search", "roll back"]) == 0
    assert "runs Marklight 0.0.1" in capsys.readouterr().err
    assert len(received) == 1
    assert file.exists()


@pytest.mark.parametrize(
    "held",
    [b"", b"{", b"[]", b"{}", b'{"folder": 1, "pid": 1, "port": 1}', b'{"unknown": 1}', b"\xff"],
)
def test_an_incomplete_state_file_is_ignored(
    folder: Path, capsys: pytest.CaptureFixture[str], held: bytes
) -> None:
    (make_state_folder() / "a.json").write_bytes(held)
    assert run(["search", "roll back"]) == 0
    assert capsys.readouterr().err == ""
