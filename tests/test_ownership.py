"""Ownership of indexes: which ones count as made by this user in this place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from marklight import ownership
from marklight.ownership import Provenance


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index as this user makes one."""
    folder = tmp_path / "docs" / ".marklight"
    folder.mkdir(parents=True)
    id = ownership.claim(folder)
    (folder / "library.db").write_bytes(b"rows")
    ownership.record(folder, id)
    return folder


def test_a_new_index_is_ours(index: Path) -> None:
    assert ownership.origin(index) is Provenance.OWN
    assert ownership.is_id(ownership.owner_id(index))


@pytest.mark.parametrize(
    "name", ["library.db", "words", "lock", "owner", "refresh.json", "history"]
)
def test_a_folder_with_parts_of_an_index_and_no_record_is_foreign(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "other" / name).mkdir(parents=True)
    assert ownership.origin(tmp_path / "other") is Provenance.FOREIGN


def test_a_folder_without_parts_of_an_index_is_none(tmp_path: Path) -> None:
    assert ownership.origin(tmp_path / "missing") is Provenance.NONE
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert ownership.origin(tmp_path / "other") is Provenance.NONE


def test_an_index_whose_record_is_gone_is_foreign(index: Path, data: Path) -> None:
    shutil.rmtree(data)
    assert ownership.origin(index) is Provenance.FOREIGN


@pytest.mark.parametrize("id", ["", "0" * 31, "../../etc/passwd", "A" * 32, "0" * 33, "x\n"])
def test_a_marker_without_a_valid_id_counts_as_none(index: Path, id: str) -> None:
    (index / "owner").write_text(id)
    assert ownership.owner_id(index) == ""
    assert ownership.origin(index) is Provenance.FOREIGN


def test_copies_and_moved_indexes_are_recognised(index: Path) -> None:
    copy = index.parent.with_name("copy") / ".marklight"
    shutil.copytree(index, copy)
    assert ownership.origin(copy) is Provenance.MOVED
    assert ownership.origin(index) is Provenance.OWN
    moved = index.parent.rename(index.parent.with_name("moved")) / ".marklight"
    assert ownership.origin(moved) is Provenance.MOVED


def test_a_restored_index_and_a_restored_database_are_recognised(
    index: Path, tmp_path: Path
) -> None:
    shutil.copytree(index, tmp_path / "backup")
    kept = index.rename(index.with_name("kept"))  # so that its inode is not used again
    shutil.copytree(tmp_path / "backup", index)
    assert ownership.origin(index) is Provenance.RESTORED
    shutil.rmtree(index)
    kept.rename(index)
    assert ownership.origin(index) is Provenance.OWN
    (index / "library.db").rename(tmp_path / "kept")
    shutil.copy(tmp_path / "kept", index / "library.db")
    assert ownership.origin(index) is Provenance.RESTORED


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")
def test_a_database_that_is_a_link_is_not_ours_whatever_its_inode(
    index: Path, tmp_path: Path
) -> None:
    (index / "library.db").unlink()
    (index / "library.db").symlink_to(tmp_path / "other")
    assert ownership.origin(index) is Provenance.RESTORED


def test_the_device_number_is_not_compared(index: Path, data: Path) -> None:
    record = data / "indexes" / f"{ownership.owner_id(index)}.json"
    values = json.loads(record.read_text())
    record.write_text(json.dumps({**values, "device": values["device"] + 1}))
    assert ownership.origin(index) is Provenance.OWN
    record.write_text(json.dumps({**values, "inode": values["inode"] + 1}))
    assert ownership.origin(index) is Provenance.RESTORED


def test_a_second_claim_keeps_the_id_of_the_first(index: Path, data: Path) -> None:
    before = ownership.owner_id(index)
    assert ownership.claim(index) == before
    assert [each.stem for each in (data / "indexes").iterdir()] == [before]


def test_all_existing_indexes_are_listed(index: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    ownership.claim(other)
    assert set(ownership.recorded_folders()) == {index, other}
    shutil.rmtree(other)
    assert list(ownership.recorded_folders()) == [index]
