"""The command status, as people read it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from marklight.library.configuration import Index
from marklight.library.progress import FILE, ProgressMeter, published, published_progress
from marklight.surfaces.cli.status_command import size_text
from tests.making import index_of, write
from tests.surfaces.command_line import run_cli, run_json


def test_status_is_labelled_and_has_no_keys(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"bad.md": b"\x00"})
    run_cli(capsys, "index")
    _, out, _ = run_cli(capsys, "status")
    rows = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["Library", str(folder)] in rows
    assert ["State", "complete"] in rows
    assert ["Documents", "3 (1 could not be read)"] in rows
    assert any(row[0] == "Passages" and row[1].endswith("all embedded") for row in rows)
    assert "could not be read: bad.md: contains NUL bytes" in out
    assert "unused_vectors" not in out
    assert "generation" not in out


def test_status_shows_what_another_process_indexes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "index")
    with published(index_of(folder), lambda *_: None) as progress:
        progress("Embedding passages", 63, 100)
        file = index_of(folder) / FILE
        values = json.loads(file.read_text())
        file.write_text(json.dumps(values | {"seconds_left": 118.0}))
        _, out, _ = run_cli(capsys, "status")
        assert "indexing now, 63 %, about 2 min left (embedding passages)" in out
        assert run_json(capsys, "status", "--json")["indexing"] == {
            "phase": "Embedding passages", "done": 63, "total": 100, "seconds_left": 118.0,
        }  # fmt: skip
    assert "State      complete" in run_cli(capsys, "status")[1]


def test_a_progress_that_a_killed_process_left_is_ignored(tmp_path: Path) -> None:
    with published(tmp_path, lambda *_: None) as progress:
        progress("Reading text", 1, 2)
        assert published_progress(tmp_path) is not None
        os.utime(tmp_path / FILE, (0, 0))
        assert published_progress(tmp_path) is None
    (tmp_path / FILE).write_text("[]")
    assert published_progress(tmp_path) is None


def test_the_time_left_follows_from_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 10.0])
    monkeypatch.setattr("marklight.library.progress.time.monotonic", lambda: next(times))
    meter = ProgressMeter()
    assert meter("Reading text", 20, 100).seconds_left is None
    assert meter("Reading text", 60, 100).seconds_left == 10.0  # 40 in 10 s, 40 left


def test_sizes_are_readable() -> None:
    assert [size_text(size) for size in (0, 812_000, 12_340_000, 4_000_000_000)] == [
        "0 kB", "812 kB", "12.3 MB", "4.0 GB",
    ]  # fmt: skip


def test_status_says_how_many_passages_are_embedded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "first_search_seconds", 0.0)
    run_cli(capsys, "search", "tokens")
    _, out, _ = run_cli(capsys, "status")
    assert "3, 0 embedded, 3 to do (0 %)" in out
    assert f"not complete: `marklight index {folder}` embeds the rest" in out
    _, out, _ = run_cli(capsys, "status", "--set", "model.name=none")
    assert "3, none embedded: keyword search only" in out
