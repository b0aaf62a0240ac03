"""An index that came with a folder: never looked at by default, and refused where the user keeps indexes in folders."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

import marklight
from marklight.errors import StoreError, UsageError
from marklight.library.maintenance import examine, library_data
from tests.making import index_of, library, write
from tests.trust.hostile_folder import (
    INSIDE,
    journal_that_deletes,
    link_to,
    list_for_deletion,
    make_index,
    place_in,
    recursive_view,
    trigger,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs symbolic links and modes")
SETTINGS = ("model.name=fake",)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def in_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_INDEX_PLACE", "folder")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    make_index(tmp_path / "clone")
    return tmp_path / "clone"


@pytest.fixture
def own(tmp_path: Path, in_folder: None) -> Path:
    """A folder with an index in it that this user made; an update by git overwrites ignored files."""
    folder = write(tmp_path / "own", {"guide.md": "# Guide\n\nThe lantern is lit at dusk.\n"})
    with library(folder) as lib:
        lib.index()
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user that nothing may touch."""
    file = tmp_path / "home" / ".bashrc"
    file.parent.mkdir()
    file.write_text("mine\n")
    return file


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a folder: kind, and content or target."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            os.readlink(path).encode()
            if path.is_symlink()
            else b""
            if path.is_dir()
            else path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
    }


def use(folder: Path) -> marklight.Answer:
    """Search a library, and do everything else that reads or writes its index."""
    with library(folder) as lib:
        answer = lib.search("lantern")
        lib.index()
        lib.index(rebuild=True)
        lib.status(), lib.get("guide.md"), lib.outline("guide.md")
    assert [found.ok for found in examine(folder, SETTINGS) if found.part == "library"] == [True]
    return answer


def test_an_index_in_a_folder_is_not_looked_at(clone: Path) -> None:
    connection = sqlite3.connect(clone / ".marklight" / "library.db")
    connection.execute("UPDATE chunks SET text = 'The lantern is never lit.'")
    connection.commit()
    connection.close()
    write(clone, {".marklight/lantern.md": "# Lantern\n\nA lantern.\n"})
    before = tree(clone)
    answer = use(clone)
    assert answer.hits[0].chunk.path == "guide.md"
    assert {hit.chunk.path for hit in answer.hits} <= {"guide.md", "notes/tide.md"}
    assert "lit at dusk" in answer.hits[0].chunk.text
    assert not answer.notices
    assert tree(clone) == before


def test_an_index_in_a_folder_above_does_not_make_a_library(clone: Path) -> None:
    below = write(clone / "mine", {"secret.md": "# Secret\n\nA lantern of my own.\n"})
    with library(below) as lib:
        assert lib.place.folder == below


def test_the_settings_file_of_a_folder_cannot_put_the_index_into_it(clone: Path) -> None:
    write(clone, {"marklight.toml": '[index]\nplace = "folder"\n'})
    with library(clone) as lib:
        assert lib.address.folder == index_of(clone)
        assert "index.place" in lib.notices()[0]


def _copied(folder: Path) -> Path:
    return Path(shutil.copytree(folder, folder.with_name("copy"), symlinks=True))


def _restored(folder: Path) -> Path:
    _copied(folder / ".marklight")
    (folder / ".marklight").rename(folder.parent / "kept")  # so that its inode is not used again
    (folder / "copy").rename(folder / ".marklight")
    return folder


@pytest.mark.parametrize("change", ["cloned", "copied", "restored", "link", "file"])
def test_an_index_that_this_user_did_not_make_there_is_refused(
    clone: Path, own: Path, victim: Path, change: str
) -> None:
    folder = clone
    if change == "copied":
        folder = _copied(own)
    elif change == "restored":
        folder = _restored(own)
    elif change == "link":
        link_to(clone / ".marklight", victim.parent)
    elif change == "file":
        shutil.rmtree(clone / ".marklight")
        (clone / ".marklight").write_text("a file")
    before = tree(folder)
    with library(folder) as lib:
        for operation in (lambda: lib.search("lantern"), lib.index, lib.status):
            with pytest.raises(StoreError, match="was not created by you on this machine"):
                operation()
        with pytest.raises(UsageError, match="was not made by you on this machine"):
            library_data(lib)
    assert any(not found.ok for found in examine(folder, SETTINGS))
    assert tree(folder) == before
    assert os.listdir(victim.parent) == [".bashrc"]


def test_a_moved_folder_keeps_the_index_in_it(own: Path) -> None:
    moved = own.rename(own.with_name("moved"))
    with library(moved) as lib:
        assert lib.address.folder == moved / ".marklight"
        assert not lib.index().added


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("place", INSIDE)
def test_a_symbolic_link_in_our_index_is_not_followed(
    own: Path, victim: Path, place: str, exists: bool
) -> None:
    target = victim if exists else victim.parent / "missing"
    link_to(place_in(own / ".marklight", place), target)
    if place in ("library.db", "history"):
        with pytest.raises(StoreError, match="was not created by you"):
            use(own)
    else:
        assert use(own).hits[0].chunk.path == "guide.md"
    assert victim.read_text() == "mine\n"
    assert os.listdir(victim.parent) == [".bashrc"]


def test_a_fifo_in_our_index_does_not_hang(own: Path) -> None:
    for place in ("library.db-wal", "lock", "scan.record", "lexical/*/marklight.json"):
        path = place_in(own / ".marklight", place)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        assert "lit at dusk" in use(own).hits[0].chunk.text, place


def test_files_that_a_list_or_a_journal_names_are_not_deleted(own: Path, victim: Path) -> None:
    list_for_deletion(own / ".marklight", victim)
    for number in range(3):
        write(own, {f"more{number}.md": f"# More {number}\n\nSomething else.\n"})
        use(own)
    for name in ("library.db", "lock"):
        journal_that_deletes(own / ".marklight" / name, victim)
    use(own)
    assert victim.exists()


@pytest.mark.parametrize("harm", [recursive_view, trigger])
def test_a_changed_schema_in_our_index_is_not_executed(own: Path, harm: object) -> None:
    harm(own / ".marklight" / "library.db")  # type: ignore[operator]
    answer = use(own)
    assert "lit at dusk" in answer.hits[0].chunk.text
    assert any("other tables" in notice for notice in answer.notices)


@pytest.mark.parametrize("place", ["data", "folder"])
def test_all_files_of_an_index_are_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("MARKLIGHT_INDEX_PLACE", place)
    folder = write(tmp_path / "docs", {"guide.md": "# Guide\n\nThe lantern is lit at dusk.\n"})
    before = os.umask(0)
    try:
        use(folder)
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path not in (folder, folder / "guide.md")]
    assert made
    for path in made:
        assert not path.stat().st_mode & 0o077, path
