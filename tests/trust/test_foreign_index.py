"""An index that came with a clone, an archive or a sync is neither written nor read."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making import library, write
from tests.trust.hostile_folder import (
    INSIDE,
    journal_that_deletes,
    link_to,
    list_for_deletion,
    make_index,
    marklight,
    recursive_view,
    trigger,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs symbolic links and modes")
COMMANDS = (
    ("search", "lantern"),
    ("index",),
    ("index", "--rebuild"),
    ("status",),
    ("doctor",),
    ("get", "guide.md"),
    ("outline", "guide.md"),
)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "clone"
    make_index(folder)
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


def run_all(folder: Path) -> None:
    for command in COMMANDS:
        done = marklight(folder, *command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_a_foreign_index_is_left_alone_and_named(clone: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(clone / ".marklight" / "library.db")
    connection.execute("UPDATE chunks SET text = 'The lantern is never lit.'")
    connection.commit()
    connection.close()
    before = tree(clone)
    done = marklight(clone, "search", "lantern", "--json")
    answer = json.loads(done.stdout)
    assert "lit at dusk" in answer["results"][0]["content"]
    (notice,) = [each for each in answer["notices"] if "not made by you" in each]
    assert str(clone / ".marklight") in notice
    assert str(tmp_path / "data" / "libraries") in notice
    run_all(clone)
    assert tree(clone) == before


@pytest.mark.parametrize("place", INSIDE)
def test_a_symbolic_link_in_a_foreign_index_is_not_followed(
    clone: Path, victim: Path, place: str
) -> None:
    link_to(clone / ".marklight" / place, victim)
    run_all(clone)
    assert victim.read_text() == "mine\n"
    assert sorted(os.listdir(victim.parent)) == [".bashrc"]


def test_an_index_folder_that_is_a_link_or_a_file_is_not_used(clone: Path, victim: Path) -> None:
    link_to(clone / ".marklight", victim.parent)
    run_all(clone)
    assert sorted(os.listdir(victim.parent)) == [".bashrc"]
    (clone / ".marklight").unlink()
    (clone / ".marklight").write_text("a file")
    run_all(clone)


def test_files_listed_for_deletion_are_not_deleted(clone: Path, victim: Path) -> None:
    list_for_deletion(clone / ".marklight" / "words", victim)
    run_all(clone)
    assert victim.exists()


@pytest.mark.parametrize("harm", [recursive_view, trigger])
def test_code_in_a_foreign_database_never_runs(clone: Path, harm: object) -> None:
    harm(clone / ".marklight" / "library.db")  # type: ignore[operator]
    run_all(clone)


def test_a_foreign_index_above_does_not_include_the_folder(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = write(clone / "mine", {"secret.md": "# Secret\n\nA lantern of my own.\n"})
    done = marklight(below, "search", "lantern", "--json")
    assert [each["path"] for each in json.loads(done.stdout)["results"]] == ["secret.md"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to chown")
def test_a_folder_of_another_user_is_not_written(clone: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", {"a.md": "# A\n\nA lantern.\n"})
    os.chown(folder, 12345, 12345)
    answer = json.loads(marklight(folder, "search", "lantern", "--json").stdout)
    assert any("belongs to another user" in each for each in answer["notices"])
    assert sorted(os.listdir(folder)) == ["a.md"]
    folder.chmod(0o777)
    os.chown(folder, os.geteuid(), os.getegid())
    answer = json.loads(marklight(folder, "search", "lantern", "--json").stdout)
    assert any("can be written by everybody" in each for each in answer["notices"])
    assert sorted(os.listdir(folder)) == ["a.md"]


# What an update by git brings into an index that is ours: it overwrites ignored files.


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "own", {"guide.md": "# Guide\n\nThe lantern is lit at dusk.\n"})
    with library(folder) as lib:
        lib.index()
    return folder


@pytest.mark.parametrize("place", INSIDE)
def test_a_symbolic_link_in_our_index_is_not_followed(own: Path, victim: Path, place: str) -> None:
    link_to(own / ".marklight" / place, victim)
    for _ in range(2):
        done = marklight(own, "search", "lantern", "--json")
        assert victim.read_text() == "mine\n", place
        answer = json.loads(done.stdout)
        assert answer["results"][0]["path"] == "guide.md", done.stderr
        write(own, {"more.md": "# More\n\nSomething else.\n"})
        done = marklight(own, "index")
        assert done.returncode == 0, done.stderr
    assert victim.read_text() == "mine\n"
    assert sorted(os.listdir(victim.parent)) == [".bashrc"]
    assert marklight(own, "doctor").returncode == 0


@pytest.mark.parametrize("place", INSIDE)
def test_a_dangling_link_in_our_index_creates_no_file(own: Path, place: str) -> None:
    missing = own.parent / "missing"
    link_to(own / ".marklight" / place, missing)
    write(own, {"more.md": "# More\n\nSomething else.\n"})
    assert marklight(own, "index").returncode == 0
    assert not os.path.lexists(missing)


def test_a_fifo_in_our_index_does_not_hang(own: Path) -> None:
    for place in ("library.db-wal", "lock", "refresh.json", "words/marklight.json", "owner"):
        path = own / ".marklight" / place
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        done = marklight(own, "search", "lantern", "--json")
        assert "lit at dusk" in done.stdout, (place, done.stderr)


def test_our_list_of_files_is_rewritten_before_anything_is_deleted(own: Path, victim: Path) -> None:
    list_for_deletion(own / ".marklight" / "words", victim)
    for number in range(3):
        write(own, {f"more{number}.md": f"# More {number}\n\nSomething else.\n"})
        assert marklight(own, "index").returncode == 0
    assert victim.exists()


def test_a_journal_that_names_a_file_for_deletion_is_ignored(own: Path, victim: Path) -> None:
    for name in ("library.db", "lock"):
        journal_that_deletes(own / ".marklight" / name, victim)
    run_all(own)
    assert victim.exists()


@pytest.mark.parametrize("harm", [recursive_view, trigger])
def test_a_changed_schema_in_our_index_is_not_executed(own: Path, harm: object) -> None:
    harm(own / ".marklight" / "library.db")  # type: ignore[operator]
    answer = json.loads(marklight(own, "search", "lantern", "--json").stdout)
    assert "lit at dusk" in answer["results"][0]["content"]
    assert any("other tables" in each for each in answer["notices"])
    run_all(own)


@pytest.fixture
def open_umask(own: Path) -> Iterator[Path]:
    before = os.umask(0)
    yield own
    os.umask(before)


def test_all_files_of_an_index_are_for_this_user_alone(open_umask: Path) -> None:
    own = open_umask
    write(own, {"more.md": "# More\n\nSomething else.\n"})
    for command in (("index",), ("index", "--rebuild"), ("doctor",), ("search", "lantern")):
        assert marklight(own, *command).returncode == 0
    for path in (own / ".marklight", *(own / ".marklight").rglob("*")):
        assert not path.stat().st_mode & 0o077, path
    for path in (own.parent / "data").rglob("*"):
        assert not path.stat().st_mode & 0o077, path
