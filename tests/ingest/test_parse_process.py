"""Parsing ahead in a second process: the same index as without it, also if the process fails or the run is interrupted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from marklight.ingest import parse_process, pipeline
from tests.ingest.test_boilerplate import FOOTER, stored
from tests.making import library, write

STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the process for any text, and remember it."""
    STARTED.clear()
    popen = subprocess.Popen

    def start(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        STARTED.append(popen(*args, **kwargs))
        return STARTED[-1]

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(pipeline, "MIN_PARSED_AHEAD_BYTES", 0)
    monkeypatch.setattr(subprocess, "Popen", start)


def vault(folder: Path) -> Path:
    """Write notes that need several batches, some with boilerplate, and a file that is refused."""
    footers = [FOOTER, "", "Contact us by mail.\n"]
    notes = {
        f"{number // 20}/{number}.md": f"# Note {number}\n\nAbout [[{number + 1}]] and fig {number}."
        f"\n\n{footers[number % 3].format(name=number)}"
        for number in range(120)
    }
    write(folder, notes)
    (folder / "binary.md").write_bytes(b"\0\0")
    return folder


def indexed(folder: Path) -> tuple[Any, ...]:
    with library(folder) as lib:
        report = lib.index()
        status = lib.status()
        return stored(lib), report.added, status["failed"]


def test_an_index_is_the_same_with_and_without_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_ahead = indexed(vault(tmp_path / "a"))
    assert STARTED[0].poll() is not None, "the process ends with the run"
    monkeypatch.setattr(pipeline, "MIN_PARSED_AHEAD_BYTES", 10**9)
    assert indexed(vault(tmp_path / "b")) == parsed_ahead
    assert len(STARTED) == 1


def test_a_process_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = indexed(vault(tmp_path / "a"))
    receive = parse_process.ParseProcess.receive

    def killed(process: parse_process.ParseProcess) -> Any:
        STARTED[-1].kill()
        STARTED[-1].wait()
        return receive(process)

    monkeypatch.setattr(parse_process.ParseProcess, "receive", killed)
    assert indexed(vault(tmp_path / "b")) == expected


def test_an_interrupted_run_ends_the_process(tmp_path: Path) -> None:
    def interrupt(phase: str, done: int, total: int) -> None:
        if done > 100:
            raise KeyboardInterrupt

    with library(vault(tmp_path)) as lib, pytest.raises(KeyboardInterrupt):
        lib.index(progress=interrupt)
    assert STARTED[0].poll() is not None
    with library(tmp_path) as lib:
        lib.index()
        assert lib.status()["documents"] == 120


def test_the_process_ends_with_its_input() -> None:
    process = parse_process.ParseProcess()
    process.send(None)
    assert process._process
    assert process._process.stdin
    process._process.stdin.close()
    assert process._process.wait(30) == 0
    process.close()
