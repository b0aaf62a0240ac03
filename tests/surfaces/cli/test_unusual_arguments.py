"""Unusual arguments and environments: each gets an answer or a one-line error, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import UsageError
from marklight.surfaces.cli import run
from tests.making import library, write

PAGES = {"a.md": "# A\n\nbanana text\n", "sub/b.md": "# B\n\nbanana too\n"}
PROGRAM = [sys.executable, "-c", "from marklight.surfaces.cli import main; main()"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(write(tmp_path / "docs", PAGES))
    return tmp_path / "docs"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["search", "banana", "--tag", "\udcff"], 2),
        (["search", "banana", "--where", "a=\udcff"], 2),
        (["search", "banana", "--path", "*a" * 25], 2),
        (["search", "banana", "--collection", "nope"], 2),
        (["search", "ban\udcffana", "--mode", "keyword"], 1),
        (["search", "banana", "--set", "engine=foo"], 2),
        (["search", "banana", "--set", "engine=file:."], 2),
        (["search", "banana", "--set", "engine=file:~nobody-has-this-name/x"], 2),
        (["search", "banana", "--set", "index.search_seconds=inf"], 2),
        (["search", "banana", "--set", "index.max_bytes=-1"], 2),
        (["search", "banana", "--set", "search.per_document.max_passages=0"], 2),
        (["search", "banana", "--set", "search.semantic_weight=inf"], 2),
        (["search", "banana", "--set", "model.threads=-3"], 2),
        (["get", "a\udcff.md"], 1),
        (["get", "x" * 5000], 1),
        (["get", "a.md:" + "9" * 5000], 1),
        (["outline", "x" * 5000], 1),
    ],
)
def test_unusual_arguments_get_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    assert run(arguments) == code
    err = capsys.readouterr().err
    assert "fault in Marklight" not in err
    lines = [line for line in err.splitlines() if not line.startswith("note: No document contains")]
    assert sum(not line.endswith("…") for line in lines) == 1


def test_an_invalid_pyproject_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {"pyproject.toml": "tool = 3\n"})
    assert run(["search", "banana"]) == 2
    assert "must be a table" in capsys.readouterr().err


def test_a_deleted_current_folder_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run(["search", "banana"]) == 2
    assert "no longer exists" in capsys.readouterr().err


def test_values_may_be_quoted_or_empty(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "banana", "--set", 'model.name="fake"', "--set", "search.skip="]) == 0


def test_a_passage_cannot_control_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "e \x1b[2J (1).md"
    write(folder, {evil: "# Evil \x1b]0;title\x07\n\npapaya \x1b[2J text\n"})
    for arguments in (
        ["search", "papaya"],
        ["search", "papaya", "--format", "md"],
        ["get", evil],
        ["outline", evil],
    ):
        assert run(arguments) == 0
        assert "\x1b" not in capsys.readouterr().out


def test_a_markdown_link_works_for_any_file_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"größe (1) #2.md": "# Kiwi\n\npapaya text\n"})
    assert run(["search", "papaya", "--format", "md"]) == 0
    assert "](größe%20%281%29%20%232.md#kiwi)" in capsys.readouterr().out


def test_a_whole_document_ends_with_its_last_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["index"])
    capsys.readouterr()
    run(["get", "a.md", "--json"])
    assert json.loads(capsys.readouterr().out)["lines"] == [1, 3]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_one_line(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "search", "banana"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr


def test_a_closed_pipe_is_not_an_error(folder: Path) -> None:
    process = subprocess.Popen([*PROGRAM, "search", "banana"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 0


def test_any_character_can_be_printed_to_any_pipe(folder: Path) -> None:
    write(folder, {"c.md": "# 文\n\nbanana 日本語 🎉\n"})
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}
    done = subprocess.run(
        [*PROGRAM, "search", "日本語"], env=environ, capture_output=True, check=True
    )
    assert "日本語" in done.stdout.decode()


def test_a_library_can_be_opened_from_settings(folder: Path) -> None:
    with marklight.open({"model": {"name": "fake"}}) as lib:
        assert lib.search("banana").hits


@pytest.mark.parametrize(
    "options",
    [
        {"path": None},
        {"path": Path("a.md")},
        {"path": ["a.md", Path("sub")]},
        {"after": date(2020, 1, 1)},
    ],
)
def test_python_callers_may_pass_python_types(folder: Path, options: dict[str, Any]) -> None:
    with library(folder) as lib:
        assert lib.search("banana", **options).hits


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (None, {}),
        ("banana", {"limit": "5"}),
        ("banana", {"path": [5]}),
        ("banana", {"settings": {"model": {"name": "fake"}}}),
        ("banana", {"settings": {"engine": "file:x"}}),
    ],
)
def test_python_callers_get_marklight_errors(folder: Path, text: Any, options: Any) -> None:
    with library(folder) as lib, pytest.raises(UsageError):
        lib.search(text, **options)


def test_get_reports_a_missing_refresh_and_never_returns_a_deleted_file(
    folder: Path, tmp_path: Path
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as one, library(folder, engine=place) as other:
        one.index()
        with one.engine.writing(0):
            write(folder, {"a.md": "# A\n\nchanged\n"})
            (folder / "sub" / "b.md").unlink()
            assert any("Another process" in notice for notice in other.get("a.md").notices)
            with pytest.raises(marklight.NotFound, match="no longer"):
                other.get("sub/b.md")


def test_nothing_leaves_the_machine(tmp_path: Path) -> None:
    """onnxruntime sends telemetry and stores a device id unless it is disabled."""
    code = (
        "from marklight import models; models.load().embed_query('hello');"
        "import os; assert os.environ['ORT_DISABLE_TELEMETRY'] == '1'"
    )
    environ = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    environ |= {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home" / ".cache")}
    (tmp_path / "home").mkdir()
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    assert not [path for path in (tmp_path / "home").rglob("*") if "icrosoft" in path.name]
