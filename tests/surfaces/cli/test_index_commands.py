"""What the command line tells of a library: index, status, ignored, settings and doctor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.saying import PAGES, said, told


def test_index_reports_in_the_contracts_words(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"bad.md": b"\x00"})
    report = told(capsys, "index", "--json")
    assert set(report) == {
        *("added", "changed", "moved", "removed", "skipped", "remarks"),
        *("documents", "chunks", "embedded", "pending", "folder", "notices", "took_ms"),
    }
    assert report["folder"] == str(folder)
    assert sorted(report["added"]) == sorted(PAGES)
    assert [one["path"] for one in report["skipped"]] == ["bad.md"]
    assert (report["documents"], report["pending"]) == (3, 0)
    assert report["embedded"] == report["chunks"]
    _, out, _ = said(capsys, "index")
    assert out.startswith("nothing changed")


def test_status_tells_what_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "index")
    found = told(capsys, "status", "--json")
    assert {
        "documents", "chunks", "embedded", "pending", "failed", "generation", "model", "engine",
        "sizes", "collections",
    } <= set(found)  # fmt: skip
    assert found["collections"]["default"]["documents"] == 3
    code, out, _ = said(capsys, "status", ".")
    assert code == 0
    assert "documents" in out


def test_ignored_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {".gitignore": "guide/\n"})
    found = told(capsys, "ignored", "guide/auth.md", "--json")
    assert found["ignored"]
    assert ".gitignore" in found["reason"]
    assert not told(capsys, "ignored", "espresso.md", "--json")["ignored"]


def test_ignored_says_why_a_file_was_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"picture.md": b"\x89PNG\x00"})
    assert not told(capsys, "ignored", "picture.md", "--json")["ignored"]  # nobody tried it yet
    said(capsys, "index")
    assert (
        "picture.md: it was refused: contains NUL bytes" in said(capsys, "ignored", "picture.md")[1]
    )


def test_ignored_takes_a_path_below_the_library_as_other_commands_do(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {".gitignore": "guide/\n"})
    write(folder.parent, {"espresso.md": "in no library"})
    monkeypatch.chdir(folder.parent)
    for name, reason in {
        "guide/auth.md": "ignored by .gitignore:1: guide/",
        "espresso.md": "",
        "nowhere.md": "no such file",
        str(folder.parent / "espresso.md"): "it is in no collection",
    }.items():
        assert told(capsys, "ignored", name, "--in", "docs", "--json")["reason"] == reason


def test_settings_show_value_and_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {"marklight.toml": "[chunk]\nmax_chars = 900\n"})
    found = told(capsys, "settings", "--json")
    assert found["chunk.max_chars"]["value"] == 900
    assert found["chunk.max_chars"]["source"].endswith("marklight.toml")
    assert found["model.name"]["source"] == "the variable MARKLIGHT_MODEL_NAME"


def test_a_token_is_not_among_the_settings_that_are_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ((), ("--json",)):
        _, out, _ = said(capsys, "settings", "--set", "serve.token=hush", *more)
        assert "serve.token" in out
        assert "hush" not in out


def test_doctor_finds_all_parts_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    findings = told(capsys, "doctor", "--json")
    assert all(finding["ok"] for finding in findings)
    assert {"SQLite", "tantivy", "model", "library"} <= {finding["part"] for finding in findings}


def test_a_library_makes_git_ignore_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "index")
    assert (folder / ".marklight" / ".gitignore").read_text().strip() == "*"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no read-only folders of this kind")
def test_a_folder_that_cannot_be_written_keeps_its_index_elsewhere_and_says_so(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As root every folder can be written, so the question itself is answered here.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    code, _out, err = said(capsys, "search", "grind the beans")
    assert code == 0
    assert "is not writable" in err
    assert str(tmp_path / "data") in err
    assert not (folder / ".marklight").exists()
