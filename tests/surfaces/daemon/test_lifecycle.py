"""`marklight serve` as a process: how it begins, what it tells, and when it ends."""

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

from marklight.surfaces.cli.app import run
from marklight.surfaces.daemon.discovery import process_settings, state_files
from marklight.surfaces.daemon.lifecycle import state_file
from tests.surfaces.daemon.serving import PROGRAM, command, loaded, of, serving, settled
from tests.waiting import PATIENCE_SECONDS, until


def test_it_tells_where_it_serves_and_answers_there(folder: Path) -> None:
    with serving(folder) as process:
        assert process.stdout
        said = [process.stdout.readline().decode().strip() for _ in range(3)]
        address = of(folder).address
        assert said == [f"serving {folder.resolve()}", f"page  {address}", f"MCP   {address}mcp"]
        with urllib.request.urlopen(f"{address}api/search?q=roll+back") as response:
            assert json.load(response)["results"][0]["path"] == "guide/deploy.md"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(folder: Path, number: signal.Signals) -> None:
    with serving(folder) as process:
        settled(folder)
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr
        assert process.stderr.read() == b""
        assert list(state_files()) == []


def test_it_ends_when_the_pipe_from_its_parent_is_closed(folder: Path) -> None:
    with serving(folder) as process:
        of(folder)
        assert process.stdin
        process.stdin.close()
        process.stdin = None
        assert process.wait(PATIENCE_SECONDS) == 0
        assert list(state_files()) == []


def test_it_is_ended_by_stop_whoever_asks(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folder) as process:
        told = of(folder)
        monkeypatch.setenv("MARKLIGHT_SEARCH_FUSE", "reciprocal")
        assert run(["stop"]) == 0
        assert capsys.readouterr().out == f"stopped {told.address} (process {told.pid})\n"
        assert process.wait(PATIENCE_SECONDS) == 0
    assert run(["serve", "stop"]) == 1
    assert run(["stop", "--all"]) == 1


def test_status_and_stop_take_the_folder_as_other_commands_do(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folder) as process:
        told = of(folder)
        monkeypatch.chdir(folder.parent)
        assert run(["serve", "status", folder.name]) == 0
        assert told.address in capsys.readouterr().out
        assert run(["serve", folder.name, "other"]) == 2
        assert run(["serve", "stop", folder.name]) == 0
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_second_one_says_where_the_first_is(folder: Path) -> None:
    with serving(folder):
        told = of(folder)
        second = command("serve")
        assert second.returncode == 0
        assert told.address in second.stderr
        insisting = command("serve", "--port", "0")
        assert insisting.returncode == 2
        assert f"at {told.address} (process {told.pid})" in insisting.stderr
        assert len(list(state_files())) == 1


def test_a_port_that_is_taken_is_told_and_another_taken_if_nobody_insists(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = command("serve", "--port", port)
        assert refused.returncode == 2
        assert port in refused.stderr
        assert "Traceback" not in refused.stderr
        refused = command("serve", MARKLIGHT_SERVE_PORT=port)
        assert refused.returncode == 2


def test_no_other_machine_gets_in_without_a_token(folder: Path) -> None:
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
def test_where_nothing_can_be_served_is_refused_before_a_server_is_loaded(
    folder: Path, given: tuple[str, ...]
) -> None:
    refused = command("serve", "--port", "0", *given)
    assert refused.returncode == 2
    assert not loaded(refused) & {"asyncio", "starlette", "uvicorn", "mcp"}


def test_a_detached_one_goes_on_until_it_is_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        started = command("serve", "--detach", "--port", "0", "--token", "a-secret-word")
        assert started.returncode == 0, started.stderr
        told = settled(folder)
        assert told.address in started.stdout
        assert "a-secret-word" not in _arguments(told.pid)
        assert os.getsid(told.pid) == told.pid
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{told.address}api/status")
        again = command("serve", "--detach")
        assert again.returncode == 0
        assert told.address in again.stdout
        assert "already running" in again.stderr
        for_programs = json.loads(command("serve", "--detach", "--json").stdout)
        assert for_programs["address"] == told.address
        assert for_programs["library"] == str(folder.resolve())
        assert run(["search", "roll back"]) == 0
    finally:
        capsys.readouterr()
        assert run(["stop"]) == 0
    until(lambda: not _lives(told.pid))


def test_why_a_detached_one_could_not_begin_is_told(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = command("serve", "--detach", "--port", port)
        assert refused.returncode == 2
        assert f"Cannot listen on 127.0.0.1:{port}" in refused.stderr


def test_of_two_that_are_started_at_once_one_stays(folder: Path) -> None:
    idle = ("--leave-idle", "--set", "serve.idle_minutes=0.02", "--set", "serve.port=0")
    both = [
        subprocess.Popen([*PROGRAM, "serve", *idle], stdin=subprocess.DEVNULL) for _ in range(2)
    ]
    codes = [process.wait(PATIENCE_SECONDS) for process in both]
    # One says that the other is there, and that leaves when nobody asks.
    assert codes == [0, 0]
    assert list(state_files()) == []


def test_a_state_file_that_was_lost_is_written_again(folder: Path) -> None:
    with serving(folder):
        told = of(folder)
        for file, _ in state_files():
            file.unlink()
        assert of(folder) == told


def _arguments(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text() if Path("/proc").is_dir() else ""


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_state_that_cannot_be_written_is_told_and_leaves_nothing(folder: Path) -> None:
    file = state_file(folder.resolve(), process_settings())
    file.mkdir()
    done = command("serve", "--port", "0")
    assert done.returncode == 3
    assert file.name in done.stderr
    assert "fault" not in done.stderr
    assert {each.name for each in file.parent.iterdir()} <= {file.name, f"{file.stem}.lock"}
