"""The commands index, status, ignored, settings and doctor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.making import index_of, write
from tests.surfaces.command_line import PAGES, run_cli, run_json


def test_index_json_has_the_documented_keys(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"bad.md": b"\x00"})
    report = run_json(capsys, "index", "--json")
    assert set(report) == {
        *("added", "changed", "moved", "removed", "skipped", "remarks"),
        *("documents", "chunks", "embedded", "pending", "folder", "notices", "took_ms"),
    }
    assert report["folder"] == str(folder)
    assert sorted(report["added"]) == sorted(PAGES)
    assert [one["path"] for one in report["skipped"]] == ["bad.md"]
    assert (report["documents"], report["pending"]) == (3, 0)
    assert report["embedded"] == report["chunks"]
    _, out, _ = run_cli(capsys, "index")
    assert out.startswith("nothing changed")


def test_status_shows_counts_and_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(capsys, "index")
    found = run_json(capsys, "status", "--json")
    assert {
        "documents", "chunks", "embedded", "pending", "failed", "generation", "model", "engine",
        "sizes", "collections",
    } <= set(found)  # fmt: skip
    assert found["collections"]["default"]["documents"] == 3
    code, out, _ = run_cli(capsys, "status", ".")
    assert code == 0
    assert "Documents" in out


def test_ignored_shows_the_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {".gitignore": "guide/\n"})
    found = run_json(capsys, "ignored", "guide/auth.md", "--json")
    assert found["ignored"]
    assert ".gitignore" in found["reason"]
    assert not run_json(capsys, "ignored", "espresso.md", "--json")["ignored"]


def test_ignored_looks_in_the_library_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli(capsys, "index")
    write(folder, {"a.pdf": "x"})
    monkeypatch.chdir(folder.parent)
    assert "a.pdf: " in (out := run_cli(capsys, "ignored", f"{folder.name}/a.pdf")[1])
    assert "index of its own" not in out


def test_ignored_shows_why_a_file_was_skipped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"picture.md": b"\x89PNG\x00"})
    assert not run_json(capsys, "ignored", "picture.md", "--json")["ignored"]  # not read yet
    run_cli(capsys, "index")
    assert (
        "picture.md: it was refused: contains NUL bytes"
        in run_cli(capsys, "ignored", "picture.md")[1]
    )


def test_ignored_accepts_a_path_below_the_library(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {".gitignore": "guide/\n"})
    write(folder.parent, {"espresso.md": "in no library"})
    monkeypatch.chdir(folder.parent)
    for name, reason in {
        "guide/auth.md": "ignored by .gitignore:1: guide/",
        "espresso.md": "",
        str(folder.parent / "espresso.md"): "it is in no collection",
    }.items():
        assert run_json(capsys, "ignored", name, "--in", "docs", "--json")["reason"] == reason


def test_settings_show_value_and_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {"marklight.toml": "[chunk]\nmax_chars = 900\n"})
    found = run_json(capsys, "settings", "--json")
    assert found["chunk.max_chars"]["value"] == 900
    assert found["chunk.max_chars"]["source"].endswith("marklight.toml")
    assert found["model.name"]["source"] == "the variable MARKLIGHT_MODEL_NAME"


def test_settings_mask_the_token(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--json",)):
        _, out, _ = run_cli(capsys, "settings", "--set", "serve.token=hush", *more)
        assert "serve.token" in out
        assert "hush" not in out


def test_doctor_reports_all_parts_ok(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    findings = run_json(capsys, "doctor", "--json")
    assert all(finding["ok"] for finding in findings)
    assert {"SQLite", "tantivy", "model", "library"} <= {finding["part"] for finding in findings}


def test_doctor_reports_a_damaged_database_on_one_line_with_the_command_that_helps(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "index")
    database = index_of(folder) / "library.db"
    pages = bytearray(database.read_bytes())
    pages[8192:49152] = b"?" * (49152 - 8192)
    database.write_bytes(pages)
    code, out, _ = run_cli(capsys, "doctor")
    (finding,) = [line for line in out.splitlines() if line.startswith("BAD")]
    assert code == 3
    assert "\\n" not in finding
    assert finding.endswith(f"away and run `marklight index {folder}`")


def test_a_search_without_refresh_does_not_call_a_folder_empty(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "search", "tokens", "--no-refresh")
    assert (code, out) == (1, "")
    assert f"note: {folder} is not indexed yet: run `marklight index {folder}`\n" in err


def test_nothing_is_written_into_the_folder_unless_the_user_wants_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert run_cli(capsys, "index")[0] == 0
    assert sorted(folder.rglob("*")) == before
    assert run_json(capsys, "status", "--json")["location"] == str(index_of(folder))
    assert run_cli(capsys, "index", "--set", "index.place=folder")[0] == 0
    assert (folder / ".marklight" / ".gitignore").read_text() == "*\n"


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to give a folder away"
)
def test_a_folder_of_another_user_is_indexed_like_any_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(folder, 12345, 12345)
    folder.chmod(0o555)
    code, _, err = run_cli(capsys, "search", "grind the beans")
    assert code == 0
    assert "note" not in err


def test_an_edited_file_is_counted_as_embedded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "3 added" in run_cli(capsys, "index")[1]
    write(folder, {"espresso.md": "# Espresso\n\nGrind the beans very finely.\n"})
    assert run_cli(capsys, "index")[1].startswith("1 changed, 1 passage embedded\n")
    (folder / "espresso.md").rename(folder / "coffee.md")
    assert run_cli(capsys, "index")[1].startswith("1 moved\n")


def test_ignored_reports_files_outside_missing_and_below_links(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"marklight.toml": '[collections]\nguide = "guide"\n'})
    real = write(tmp_path / "real", {"r.md": "# R\n"})
    (folder / "guide" / "linked").symlink_to(real)
    (folder / "guide" / "twice").symlink_to(real)
    assert "it is in no collection" in run_cli(capsys, "ignored", "espresso.md")[1]
    code, _, err = run_cli(capsys, "ignored", "guide/auht.md")
    assert code == 1
    assert "No such file: guide/auht.md. Did you mean guide/auth.md?" in err
    assert "linked/ is a symbolic link to" in run_cli(capsys, "ignored", "guide/linked/r.md")[1]
    follow = ("--set", "files.follow_outside=true")
    assert "not ignored" in run_cli(capsys, "ignored", "guide/linked/r.md", *follow)[1]
    assert (
        "it is the same file as linked/r.md, which is indexed"
        in run_cli(capsys, "ignored", "guide/twice/r.md", *follow)[1]
    )


def test_a_file_that_two_links_reach_is_indexed_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = write(tmp_path / "real", {"r.md": "# R\n", "sub/s.md": "# S\n"})
    (folder / "again.md").symlink_to(real / "r.md")
    (folder / "linked").symlink_to(real)
    (folder / "part").symlink_to(real / "sub")
    report = run_json(capsys, "index", "--json", "--set", "files.follow_outside=true")
    assert [path for path in report["added"] if path.endswith(("again.md", "r.md", "s.md"))] == [
        "again.md",
        "linked/sub/s.md",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems decode names as UTF-8")
def test_names_of_files_do_not_depend_on_the_locale(folder: Path) -> None:
    write(folder, {"n😀.md": "# Emoji\n"})
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    program = [sys.executable, "-c", "from marklight.surfaces.cli import main; main()", "index"]
    for environment in ({}, ascii_only, {}):
        done = subprocess.run(
            program, env={**os.environ, **environment}, capture_output=True, text=True
        )
        assert "removed" not in done.stdout
        assert "4 documents" in done.stdout, done.stderr
    code = "import marklight; marklight.open('.').index()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **ascii_only},
        capture_output=True,
        text=True,
    )
    assert "Set the environment variable PYTHONUTF8=1" in done.stderr
