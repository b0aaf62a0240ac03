"""Indexes that were moved, copied, restored or mixed are rebuilt from the documents; valid vectors are reused."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import marklight
from marklight import ownership
from marklight.engines.embedded import create
from marklight.ownership import Provenance
from tests.making import library, write

PAGES = {
    f"{name}.md": f"# {name.title()}\n\nAll about the {name} and its habits.\n"
    for name in ("zebra", "heron", "otter", "lynx")
}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = write(tmp_path / "docs", PAGES)
    with library(folder) as lib:
        lib.index()
    return folder


def first(lib: marklight.Library, query: str) -> str:
    hits = lib.search(query).hits
    return hits[0].chunk.path if hits else ""


def test_a_moved_folder_keeps_its_vectors_and_nothing_else(docs: Path) -> None:
    moved = docs.rename(docs.with_name("moved"))
    store = sqlite3.connect(moved / ".marklight" / "library.db")
    store.execute("UPDATE chunks SET text = 'changed by somebody else'")
    store.commit()
    store.close()
    with library(moved) as lib:
        found = lib.search("zebra habits", limit=9)
        assert "changed" not in "".join(hit.chunk.text for hit in found.hits)
        (notice,) = [each for each in found.notices if "moved or copied here" in each]
        assert "vectors are reused" in notice
        assert found.index.pending == 0
    assert ownership.origin(moved / ".marklight") is Provenance.OWN
    with library(moved) as lib:
        assert not [each for each in lib.search("zebra").notices if "moved" in each]


def test_a_copy_gets_its_own_id_and_the_original_is_unchanged(docs: Path) -> None:
    copy = Path(shutil.copytree(docs, docs.with_name("copy")))
    with library(copy) as lib:
        assert first(lib, "otter") == "otter.md"
    ids = {ownership.owner_id(each / ".marklight") for each in (docs, copy)}
    assert len(ids) == 2
    for each in (docs, copy):
        assert ownership.origin(each / ".marklight") is Provenance.OWN
        with library(each) as lib:
            assert lib.engine.check() == []


def test_a_damaged_vector_is_not_adopted(docs: Path) -> None:
    moved = docs.rename(docs.with_name("moved"))
    store = sqlite3.connect(moved / ".marklight" / "library.db")
    store.execute("UPDATE vectors SET vector = zeroblob(length(vector)) WHERE file_row = 1")
    store.execute("UPDATE vectors SET vector = x'00' WHERE file_row = 2")
    store.commit()
    store.close()
    with library(moved) as lib:
        report = lib.index()
        assert report.index.pending == 0
        assert any("2 of its vectors" in notice for notice in report.notices)
        assert lib.engine.check() == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.skipif(os.name == "nt", reason="needs a signal that cannot be caught")
def test_a_kill_during_adoption_loses_nothing(docs: Path, when: str) -> None:
    moved = docs.rename(docs.with_name("moved"))
    program = (
        "import os, signal, sys\n"
        "from marklight import ownership\n"
        "from tests.making import library\n"
        "mark = ownership.mark\n"
        "def die(*given):\n"
        f"    if {when == 'after'}: mark(*given)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "ownership.mark = die\n"
        "library(sys.argv[1]).index()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, moved], cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert ownership.origin(moved / ".marklight") in (Provenance.MOVED, Provenance.RESTORED)
    with library(moved) as lib:
        assert first(lib, "otter") == "otter.md"
        assert lib.engine.check() == []
        assert not list((moved / ".marklight").glob("*.new*"))


def test_mixed_up_history_indexes_are_detected(docs: Path) -> None:
    """One index is copied, each copy goes its own way, then the database of one replaces the other's."""
    copy = Path(shutil.copytree(docs, docs.with_name("copy")))
    for folder, name in ((docs, "giraffe"), (copy, "copper")):
        write(folder, {f"{name}.md": f"# {name.title()}\n\nAll about the {name}.\n"})
        with library(folder) as lib:
            lib.index()
    for each in copy.glob(".marklight/library.db*"):
        each.unlink()
    for each in docs.glob(".marklight/library.db*"):
        shutil.copy(each, copy / ".marklight")
    expected = {"zebra": "zebra.md", "copper": "copper.md", "otter": "otter.md"}
    for _ in range(2):
        with library(copy) as lib:
            assert {query: first(lib, query) for query in expected} == expected
            assert first(lib, "giraffe") == ""
            assert lib.engine.check() == []


@pytest.mark.parametrize("part", ["library.db", "words", "vectors"])
def test_a_diverged_part_of_a_history_is_not_used(docs: Path, part: str) -> None:
    """The same index at one point, then two ways to go on: by a backup that was put back in place."""
    index = docs / ".marklight"
    backup = Path(shutil.copytree(index, docs.with_name("backup")))
    write(docs, {"giraffe.md": "# Giraffe\n\nAll about the giraffe.\n"})
    with library(docs) as lib:
        lib.index()
    other_way = Path(shutil.copytree(index, docs.with_name("other-way")))
    (docs / "giraffe.md").unlink()
    for each in backup.rglob("*"):  # in place: inodes stay
        if each.is_file():
            (index / each.relative_to(backup)).write_bytes(each.read_bytes())
    write(docs, {"copper.md": "# Copper\n\nAll about the copper.\n"})
    with library(docs) as lib:
        lib.index()
    for each in [other_way / part, *(other_way / part).rglob("*")]:
        if each.is_file():
            target = index / each.relative_to(other_way)
            target.write_bytes(each.read_bytes())
    for _ in range(2):
        with library(docs) as lib:
            expected = {"zebra": "zebra.md", "copper": "copper.md", "giraffe": ""}
            assert {query: first(lib, query) for query in expected} == expected
            assert lib.engine.check() == [] or _ == 0


def test_a_large_old_database_does_not_delay_the_user(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "_COPY_SECONDS", 0.0)
    monkeypatch.setattr("marklight.engines.embedded.session._CLOCK_STEPS", 1)
    moved = docs.rename(docs.with_name("moved"))
    with library(moved) as lib:
        report = lib.index()
        assert report.index.pending == 0
        (notice,) = [each for each in report.notices if "moved or copied" in each]
        assert "vectors" not in notice


def test_the_history_index_is_adopted_separately(tmp_path: Path) -> None:
    repository = write(tmp_path / "repository", PAGES)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "Add the otter"],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)
    with library(repository) as lib:
        assert lib.commits("otter").hits
    moved = repository.rename(tmp_path / "moved")
    with library(moved) as lib:
        found = lib.commits("otter")
        assert found.hits
        assert any("moved or copied here" in each for each in found.notices)
