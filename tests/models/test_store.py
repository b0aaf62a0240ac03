from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError, UsageError
from marklight.models import load
from marklight.models.record import DEFAULT
from marklight.models.store import import_folder, list_models, stored_folder, verify
from tests.models import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.write_folder(tmp_path / "mine", tiny.weights())


def change_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_the_list_begins_with_the_default_and_says_how_to_get_the_rest(tmp_path: Path) -> None:
    rows = list_models(tmp_path)
    assert [(row.name, row.usable) for row in rows] == [
        (DEFAULT, True),
        ("BAAI/bge-small-en-v1.5", False),
        ("all-MiniLM-L6-v2", True),
    ]
    assert rows[0].default
    assert rows[1].state == "marklight models pull BAAI/bge-small-en-v1.5"


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
def test_one_changed_byte_is_found_before_use(folder: Path, tmp_path: Path, name: str) -> None:
    import_folder(folder, "m", tmp_path)
    stored = stored_folder("m", tmp_path)
    assert stored is not None
    change_a_byte(stored / name)
    assert [name in problem for problem in verify("m", tmp_path)] == [True]
    with pytest.raises(ModelError, match=r"has changed.*again"):
        load("m", cache_dir=tmp_path).embed_query("cat")


def test_importing_again_replaces(folder: Path, tmp_path: Path) -> None:
    first = import_folder(folder, "m", tmp_path)
    other = tiny.write_folder(tmp_path / "other", tiny.weights(seed=1))
    second = import_folder(other, "m", tmp_path)
    assert first.fingerprint != second.fingerprint
    assert load("m", cache_dir=tmp_path).fingerprint == second.fingerprint


def test_a_damaged_manifest_is_told(folder: Path, tmp_path: Path) -> None:
    import_folder(folder, "m", tmp_path)
    stored = stored_folder("m", tmp_path)
    assert stored is not None
    (stored / "marklight-manifest.json").write_text("{")
    with pytest.raises(ModelError, match="Pull or import it again"):
        load("m", cache_dir=tmp_path)
    assert [row.state for row in list_models(tmp_path) if row.name == "m"] == [
        "damaged: pull or import it again"
    ]


def test_bad_names_and_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        import_folder(tmp_path / "nowhere", None, tmp_path)
    with pytest.raises(UsageError, match="cannot be named"):
        import_folder(folder, "../up", tmp_path)
    with pytest.raises(UsageError, match="comes with a package"):
        import_folder(folder, DEFAULT, tmp_path)
    with pytest.raises(ModelError, match="no model named"):
        verify("nowhere", tmp_path)


def test_the_bundled_models_are_verified() -> None:
    assert verify(DEFAULT) == []
    assert verify("all-MiniLM-L6-v2") == []
