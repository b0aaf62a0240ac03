"""The command clean, in a user's folders of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.making import index_of, library, write, written_by_another
from tests.surfaces.command_line import PAGES, run_cli, run_json
from tests.surfaces.terminal import Terminal


@pytest.fixture(autouse=True)
def user_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("CACHE", "STATE"):
        monkeypatch.setenv(f"MARKLIGHT_{kind}_DIR", str(tmp_path / kind.lower()))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_index_of_a_library_is_removed_after_asking(folder: Path) -> None:
    with Terminal(["index"], {}) as terminal:
        assert terminal.end() == 0
    for answer, left in (("n", True), ("y", False)):
        with Terminal(["clean"], {}, size=(24, 200)) as terminal:
            text = terminal.until("Remove? [y/N]: ")
            assert f"To be removed: index {index_of(folder)} (" in text
            terminal.send(f"{answer}\n")
            assert terminal.end() == (2 if left else 0)
        assert index_of(folder).exists() is left
    assert sorted(os.listdir(folder)) == ["espresso.md", "guide"]


def test_a_script_has_to_say_yes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(capsys, "index")
    code, _, err = run_cli(capsys, "clean")
    assert code == 2
    assert "Add --yes" in err
    assert index_of(folder).exists()
    assert run_json(capsys, "clean", "--yes", "--json")[0]["path"] == str(index_of(folder))
    code, _, err = run_cli(capsys, "clean", "--yes")
    assert code == 1
    assert "has no index on this machine" in err


def test_files_of_the_user_beside_an_index_are_kept(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "place", {"mine.txt": "keep this"})
    engine = ("--set", f"engine=file:{place}")
    assert run_cli(capsys, "index", *engine)[0] == 0
    assert run_cli(capsys, "clean", "--yes", *engine)[0] == 0
    assert os.listdir(place) == ["mine.txt"]


def test_an_index_of_somebody_else_is_not_removed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "place", {"library.db": "of somebody else"})
    code, _, _ = run_cli(capsys, "clean", "--yes", "--set", f"engine=file:{place}")
    assert code != 0
    assert (place / "library.db").exists()


def test_all_data_is_removed_but_documents_and_settings(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "other", PAGES)
    run_cli(capsys, "index", str(folder))
    run_cli(capsys, "index", str(other), "--set", "index.place=folder")
    write(tmp_path, {"cache/models/x.onnx": "model", "config/marklight/config.toml": ""})
    code, out, err = run_cli(capsys, "clean", "--all", "--yes")
    assert code == 0, err
    for gone in (other / ".marklight", tmp_path / "data", tmp_path / "cache"):
        assert not gone.exists()
        assert str(gone) in out
    assert (other / "espresso.md").exists()
    assert (tmp_path / "config" / "marklight" / "config.toml").exists()
    assert "pip uninstall marklight" in err


def test_doctor_names_the_places_of_all_data(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "index")
    write(tmp_path, {"cache/models/x.onnx": "model"})
    _, out, _ = run_cli(capsys, "doctor")
    for place in (index_of(folder), tmp_path / "data", tmp_path / "cache"):
        assert f" in {place} (" in out


def test_the_indexes_of_folders_that_are_gone_are_named_and_removed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "other", PAGES)
    run_cli(capsys, "index", str(folder), str(other))
    index = index_of(other)
    shutil.rmtree(other)
    _, out, _ = run_cli(capsys, "status")
    assert f"index of {other}: no longer there; `marklight clean --orphans` removes it" in out
    (orphan,) = run_json(capsys, "status", "--json")["orphans"]
    assert orphan == {"folder": str(other), "location": str(index)}
    assert run_cli(capsys, "clean", "--orphans", "--yes")[0] == 0
    assert not index.exists()
    assert index_of(folder).exists()
    assert "orphans" not in run_json(capsys, "status", "--json")
    assert run_cli(capsys, "clean", "--orphans", "--yes")[0] == 1


@pytest.mark.parametrize("options", [(), ("--all",)])
def test_nothing_is_removed_while_another_process_writes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    other = write(tmp_path / "other", {"a.md": "# A\n\nA wombat.\n"})
    assert run_cli(capsys, "index")[0] == 0
    assert run_cli(capsys, "index", str(other))[0] == 0
    with library(folder) as lib, written_by_another(lib):
        code, _, err = run_cli(capsys, "clean", "--yes", *options)
    assert code == 3
    assert f"Nothing was removed: another process is writing to {index_of(folder)}" in err
    assert (index_of(folder) / "library.db").exists()
    assert (index_of(other) / "library.db").exists()
    assert run_cli(capsys, "clean", "--yes", *options)[0] == 0
    assert not index_of(folder).exists()
    assert index_of(other).exists() is not bool(options)
