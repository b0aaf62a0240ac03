"""`marklight serve` as a process: start, status, stop, detached and idle daemons."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from marklight.surfaces.cli import run
from marklight.surfaces.daemon import process_settings, state_files
from marklight.surfaces.daemon.lifecycle import state_file
from tests.surfaces.daemon.serving import PROGRAM, command, loaded, of, serving, settled
from tests.waiting import PATIENCE_SECONDS, until


def test_serve_prints_its_urls_and_answers_there(folder: Path) -> None:
    with serving(folder) as process:
        assert process.stdout
        printed = [process.stdout.readline().decode().strip() for _ in range(3)]
        address = of(folder).address
        assert printed == [f"serving {folder.resolve()}", f"page  {address}", f"MCP   {address}mcp"]
        with urllib.request.urlopen(f"{address}api/search?q=roll+back") as response:
            assert json.load(response)["results"][0]["path"] == "guide/deploy.md"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_in_order(folder: Path, number: signal.Signals) -> None:
    with serving(folder) as process:
        settled(folder)
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr
        assert process.stderr.read() == b""
        assert list(state_files()) == []


def test_the_daemon_stops_when_its_parent_closes_the_pipe(folder: Path) -> None:
    with serving(folder) as process:
        of(folder)
        assert process.stdin
        process.stdin.close()
        process.stdin = None
        assert process.wait(PATIENCE_SECONDS) == 0
        assert list(state_files()) == []


def test_stop_ends_a_daemon_with_other_settings(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folder) as process:
        state = of(folder)
        monkeypatch.setenv("MARKLIGHT_SEARCH_FUSE", "reciprocal")
        assert run(["serve", "--stop"]) == 0
        assert (
            capsys.readouterr().out
            == f"Stopped the daemon at {state.address} (process {state.pid})\n"
        )
        assert process.wait(PATIENCE_SECONDS) == 0
    assert run(["serve", "--stop"]) == 1
    assert run(["serve", "--stop", "--all"]) == 1


def test_status_and_stop_accept_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folder) as process:
        state = of(folder)
        monkeypatch.chdir(folder.parent)
        assert run(["serve", "--status", folder.name]) == 0
        assert state.address in capsys.readouterr().out
        assert run(["serve", folder.name, "other"]) == 2
        assert run(["serve", "--stop", folder.name]) == 0
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_second_daemon_reports_the_url_of_the_first(folder: Path) -> None:
    with serving(folder):
        state = of(folder)
        second = command("serve")
        assert second.returncode == 0
        assert state.address in second.stderr
        insisting = command("serve", "--port", "0")
        assert insisting.returncode == 2
        assert f"at {state.address} (process {state.pid})" in insisting.stderr
        assert len(list(state_files())) == 1


def test_a_configured_port_in_use_is_an_error(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = command("serve", "--port", port)
        assert refused.returncode == 2
        assert port in refused.stderr
        assert "Traceback" not in refused.stderr
        refused = command("serve", MARKLIGHT_SERVE_PORT=port)
        assert refused.returncode == 2


def test_a_public_address_requires_a_token(folder: Path) -> None:
    refused = command("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "token" in refused.stderr
    assert list(state_files()) == []


@pytest.mark.parametrize(
    "given",
    [
        ("--host", "0.0.0.0"),
        ("--host", "127.0.0.1.9"),
        ("--host", "", "--token", "t"),
        ("--host", "192.0.2.1", "--token", "t"),
        ("--set", "serve.port=many"),
    ],
)
def test_an_invalid_address_is_rejected_before_a_server_is_imported(
    folder: Path, given: tuple[str, ...]
) -> None:
    refused = command("serve", "--port", "0", *given)
    assert refused.returncode == 2
    assert not loaded(refused) & {"asyncio", "starlette", "uvicorn", "mcp"}


def test_a_detached_daemon_runs_until_it_is_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        started = command("serve", "--detach", "--port", "0", "--token", "a-secret-word")
        assert started.returncode == 0, started.stderr
        state = settled(folder)
        assert state.address in started.stdout
        assert "a-secret-word" not in _arguments(state.pid)
        assert os.getsid(state.pid) == state.pid
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{state.address}api/status")
        again = command("serve", "--detach")
        assert again.returncode == 0
        assert state.address in again.stdout
        assert "already running" in again.stderr
        for_programs = json.loads(command("serve", "--detach", "--json").stdout)
        assert for_programs["address"] == state.address
        assert for_programs["library"] == str(folder.resolve())
        assert run(["search", "roll back"]) == 0
    finally:
        capsys.readouterr()
        assert run(["serve", "--stop"]) == 0
    until(lambda: not _lives(state.pid))


def test_the_error_of_a_detached_daemon_is_printed(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = command("serve", "--detach", "--port", port)
        assert refused.returncode == 2
        assert f"Cannot listen on 127.0.0.1:{port}" in refused.stderr


def test_of_two_daemons_started_at_once_one_stays(folder: Path) -> None:
    idle = ("--leave-idle", "--set", "serve.idle_minutes=0.02", "--set", "serve.port=0")
    both = [
        subprocess.Popen([*PROGRAM, "serve", *idle], stdin=subprocess.DEVNULL) for _ in range(2)
    ]
    codes = [process.wait(PATIENCE_SECONDS) for process in both]
    # One says that the other is there, and that leaves when nobody asks.
    assert codes == [0, 0]
    assert list(state_files()) == []


def test_a_lost_state_file_is_written_again(folder: Path) -> None:
    with serving(folder):
        state = of(folder)
        for file, _ in state_files():
            file.unlink()
        assert of(folder) == state


def _arguments(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text() if Path("/proc").is_dir() else ""


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_state_file_that_cannot_be_written_is_an_error_and_leaves_nothing(folder: Path) -> None:
    file = state_file(folder.resolve(), process_settings())
    file.mkdir()
    done = command("serve", "--port", "0")
    assert done.returncode == 3
    assert file.name in done.stderr
    assert "fault" not in done.stderr
    assert {each.name for each in file.parent.iterdir()} <= {file.name, f"{file.stem}.lock"}
