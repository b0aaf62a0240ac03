"""Commands return the same with and without a daemon; what happens when it changes or ends."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight.surfaces.cli import run
from marklight.surfaces.daemon import state_files
from marklight.surfaces.daemon.client import Connection
from tests.making import write
from tests.surfaces.daemon.serving import (
    command,
    loaded,
    of,
    serving,
    settled,
    without_times,
)
from tests.waiting import until

CALLS = [
    ["search", "when do tokens expire"],
    ["search", "when do tokens expire", "--json", "--explain"],
    ["search", "roll back", "--format", "jsonl", "-n", "2"],
    ["search", "roll back", "--format", "md"],
    ["search", "roll back", "--format", "files"],
    ["search", "roll back", "--explain"],
    ["search", "beans", "guide"],
    ["search", "beans tag:kitchen -without \"the beans\"", "--json", "--after", "2020"],
    ["search", "tokens", "--where", "a=b", "--path", "guide/**", "--exclude", "*.txt", "--json"],
    ["search", "tokens", "--set", "search.fuse=reciprocal", "--json", "--explain"],
    ["search", "tokens", "--set", "search.fuse=nonsense"],
    ["search", "tokens", "--set", "search.recency.strength=much"],
    ["search", "tokens", "--set", "search.recensy.strength=1"],
    ["search", "zzzzqqqq", "--mode", "keyword"],
    ["search", "zzzzqqqq", "--mode", "keyword", "--json"],
    ["search", ""],
    ["search", "x", "-n", "0"],
    ["search", "x", "--collection", "nobody"],
    ["search", "x", "--after", "someday"],
    ["search", "x", "--where", "nothing"],
    ["search", "x", "nowhere"],
    ["search", "x", "--context", "2", "--parents", "--max-tokens", "20", "--no-refresh", "--json"],
    ["search", "x\udcff", "--json"],
    ["get", "guide/auth.md#token-refresh"],
    ["get", "guide/auth.md:1-3", "--json"],
    ["get", "espresso.md", "--level", "document"],
    ["get", "nobody.md"],
    ["get", "espresso.md", "--level", "nonsense"],
    ["outline", "guide/auth.md"],
    ["outline", "guide/auth.md", "--json"],
    ["links"],
    ["links", "guide/auth.md", "--json"],
    ["links", "guide/deploy.md"],
    ["related", "guide/auth.md"],
    ["related", "guide/auth.md", "--json"],
    ["related", "nobody.md", "-n", "0"],
    ["commits", "tokens"],
    ["index", "--json"],
    ["index", "--rebuild", "--json"],
    ["ignored", "espresso.md"],
]  # fmt: skip


@pytest.fixture
def daemon(folder: Path) -> Iterator[Path]:
    with serving(folder):
        settled(folder)
        yield folder


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def timeless(out: str) -> object:
    """Return the output without durations."""
    try:
        return without_times(json.loads(out))
    except ValueError:
        # The last column of the table of stages.
        return re.sub(r"(?m) +(?:\d+\.\d\d|ms)$", "", out)


def test_every_command_prints_the_same_with_and_without_a_daemon(
    daemon: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in CALLS:
        code, out, err = run_command(capsys, *arguments)
        monkeypatch.setenv("MARKLIGHT_DAEMON", "off")
        own_code, own_out, own_err = run_command(capsys, *arguments)
        monkeypatch.delenv("MARKLIGHT_DAEMON")
        assert (code, timeless(out)) == (own_code, timeless(own_out)), arguments
        assert err == own_err, arguments


def test_status_shows_the_daemon(daemon: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run_command(capsys, "status", "--json")
    attached, state = json.loads(out), of(daemon)
    assert attached.pop("daemon")["address"] == state.address
    code, out, _ = run_command(capsys, "serve", "--status", "--json")
    assert code == 0
    assert json.loads(out)["pid"] == state.pid


def test_an_attached_command_imports_no_library_and_no_model(daemon: Path) -> None:
    for arguments in (
        ["search", "roll back", "--json"],
        ["get", "espresso.md"],
        ["outline", "espresso.md"],
        ["links"],
        ["related", "guide/auth.md"],
        ["status"],
        ["index"],
    ):
        done = command(*arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout, arguments
        assert loaded(done) == set(), arguments
    assert "marklight.library" in loaded(command("--no-daemon", "search", "roll back"))


def test_queries_from_a_pipe_use_the_daemon(
    daemon: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    def session() -> tuple[int, str, str]:
        lines = b"roll back\nzzzqqq\n"
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines), "utf-8"))
        return run_command(capsys, "query")

    attached = session()
    monkeypatch.setenv("MARKLIGHT_DAEMON", "off")
    assert attached == session()
    assert "undo command" in attached[1]


def test_a_command_with_other_settings_does_not_use_the_daemon(
    daemon: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("search", "roll back", "--set", "chunk.target_tokens=100")
    assert "marklight.library" in loaded(done), done.stderr
    done = command("search", "roll back", MARKLIGHT_SEARCH_FUSE="reciprocal")
    assert "marklight.library" in loaded(done)
    assert done.returncode == 0
    # How it is served decides nothing about the answer.
    assert loaded(command("search", "roll back", MARKLIGHT_SERVE_PORT="0")) == set()


def test_changed_settings_apply_from_the_next_call(
    daemon: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (daemon / "marklight.toml").write_text('[collections]\nbook = "guide"\n')
    _, out, _ = run_command(capsys, "status", "--json")
    assert list(json.loads(out)["collections"]) == ["book"]

    def found() -> bool:
        _, out, _ = run_command(capsys, "search", "roll back", "--format", "files")
        return out.startswith("guide/deploy.md\n")

    until(found)
    done = command("status", "--json")
    assert loaded(done) == set()
    (daemon / "marklight.toml").write_text("[collections\n")
    code, _, err = run_command(capsys, "search", "roll back")
    assert code == 2
    assert "not valid TOML" in err
    (daemon / "marklight.toml").unlink()
    until(
        lambda: run_command(capsys, "search", "beans", "--format", "files")[1].startswith(
            "espresso"
        )
    )
    assert loaded(command("search", "beans")) == set()


def test_changed_settings_apply_to_http_clients_too(daemon: Path) -> None:
    address = of(daemon).address

    def collections() -> list[str]:
        with urllib.request.urlopen(f"{address}api/status") as response:
            return list(json.load(response)["collections"])

    (daemon / "marklight.toml").write_text("[collections\n")
    assert collections() == ["default"]
    (daemon / "marklight.toml").write_text('[collections]\nbook = "guide"\n')
    until(lambda: collections() == ["book"])


def test_trust_and_its_revocation_apply_from_the_next_call(
    daemon: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(daemon.parent / "more", {"zebra.md": "# Zebra\n\nA zebra has stripes.\n"})
    write(daemon, {"marklight.toml": "[collections]\nall = '.'\nmore = '../more'\n"})

    def collections() -> list[str]:
        done = command("status", "--json")
        assert loaded(done) == set(), "by the daemon"
        return list(json.loads(done.stdout)["collections"])

    def notices() -> list[str]:
        address = f"{of(daemon).address}api/search?q=beans"
        with urllib.request.urlopen(address) as response:
            return [one for one in json.load(response)["notices"] if "collections.more" in one]

    assert collections() == ["all"]
    until(notices)
    _, _, err = run_command(capsys, "settings", "--trust")
    assert "A daemon is running" in err
    assert collections() == ["all", "more"]
    until(lambda: not notices())
    run_command(capsys, "settings", "--revoke")
    assert collections() == ["all"]
    until(notices)


def test_edits_are_found_through_the_daemon(
    daemon: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (daemon / "new.md").write_text("# New\n\nA quokka sits in the garden.\n")

    def found() -> bool:
        return "quokka sits" in run_command(capsys, "search", "quokka", "--mode", "keyword")[1]

    until(found)


def test_a_killed_daemon_is_not_needed(daemon: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = of(daemon)
    before = run_command(capsys, "search", "roll back")
    os.kill(state.pid, signal.SIGKILL)
    assert run_command(capsys, "search", "roll back") == before
    left = [file.name for file in Path(os.environ["MARKLIGHT_STATE_DIR"]).glob("*.json")]
    assert left == []
    code, _, err = run_command(capsys, "serve", "--stop")
    assert code == 1
    assert "No daemon is running" in err


def test_a_hanging_daemon_is_reported_and_not_waited_for(
    daemon: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = of(daemon)
    monkeypatch.setattr("marklight.surfaces.daemon.client.HANDSHAKE_SECONDS", 0.5)
    os.kill(state.pid, signal.SIGSTOP)
    try:
        code, out, err = run_command(capsys, "search", "roll back")
        assert code == 0
        assert "undo command" in out
        assert f"(process {state.pid}) does not answer" in err
        for query in (["serve", "--stop"], ["serve", "--status"], ["serve", "--port", "0"]):
            code, _, err = run_command(capsys, *query)
            assert code == 3, query
            assert f"(process {state.pid}) does not answer. `kill -9 {state.pid}`" in err
    finally:
        os.kill(state.pid, signal.SIGCONT)
    until(lambda: "does not answer" not in run_command(capsys, "search", "roll back")[2])


def test_a_session_continues_when_the_daemon_is_killed(
    daemon: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from marklight.surfaces.daemon import open_remote

    notes: list[str] = []
    remote = open_remote(daemon, [], notes.append)
    assert remote
    with remote:
        first = remote.search("roll back").hits
        os.kill(of(daemon).pid, signal.SIGKILL)
        again = remote.search("roll back").hits
        assert [hit.chunk.id for hit in again] == [hit.chunk.id for hit in first]
    assert notes == ["The daemon ended. This command works without it"]


def test_a_search_starts_a_daemon_if_serve_start_is_set(folder: Path) -> None:
    wanted = {
        "MARKLIGHT_SERVE_START": "true",
        "MARKLIGHT_SERVE_PORT": "0",
        "MARKLIGHT_SERVE_IDLE_MINUTES": "0.05",
    }
    first = command("search", "roll back", **wanted)
    assert first.returncode == 0
    assert "marklight.library" in loaded(first)
    # Nobody leaves whom somebody is connected to, however long the next command takes to begin.
    line = Connection(of(folder))
    line.negotiate((), "call")
    settled(folder)
    second = command("search", "roll back", **wanted)
    line.close()
    assert loaded(second) == set()
    assert second.stdout == first.stdout
    until(lambda: not list(state_files()))
