"""The place of an index: found by the folder's path, kept when the folder moves, never in the folder itself."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from marklight.errors import SettingsError, StoreError
from marklight.models.fake import FakeEmbedder
from marklight.place import STORE, index_folder, locate, orphaned_records
from tests.making import index_of, library, write

if TYPE_CHECKING:
    from marklight.model import Matrix

PAGES = {
    f"{name}.md": f"# {name.title()}\n\nAll about the {name} and its habits.\n"
    for name in ("zebra", "heron", "below/otter")
}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = write(tmp_path / "docs", PAGES)
    with library(folder) as lib:
        lib.index()
    return folder


@pytest.fixture
def embedded_texts(docs: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the model adds every passage that it embeds after the first run."""
    texts: list[str] = []
    embed = FakeEmbedder.embed_passages

    def record(self: FakeEmbedder, given: Sequence[str]) -> Matrix:
        texts.extend(text for text in given if "habits." in text)
        return embed(self, given)

    monkeypatch.setattr(FakeEmbedder, "embed_passages", record)
    return texts


def test_the_name_of_an_index_begins_with_that_of_its_folder(docs: Path, data: Path) -> None:
    index = index_of(docs)
    assert index.parent == data / "libraries"
    assert index.name.startswith("docs-")
    assert json.loads((index / "library.json").read_text())["path"] == str(docs)
    strange = index_folder(Path("/x/\udcff a:b" + "c" * 300))
    assert strange.name.isascii()
    assert len(strange.name) < 60
    assert index_folder(Path("/")) != index_folder(Path("/root"))


def test_reading_a_folder_without_an_index_records_nothing(tmp_path: Path, data: Path) -> None:
    with library(write(tmp_path / "other", PAGES)) as lib:
        lib.status()
        lib.search("zebra", refresh=False)
    assert not data.exists()


def test_a_moved_folder_keeps_its_index(docs: Path, embedded_texts: list[str]) -> None:
    before = index_of(docs)
    moved = docs.rename(docs.with_name("moved"))
    assert locate(moved / "below").folder == moved
    with library(moved) as lib:
        report = lib.index()
        assert (report.added, report.changed, report.notices) == ((), (), ())
        assert lib.search("zebra").hits[0].chunk.path == "zebra.md"
    assert not embedded_texts
    assert (before.exists(), index_of(moved).is_dir(), orphaned_records()) == (False, True, [])


def test_a_killed_move_is_completed(docs: Path, embedded_texts: list[str]) -> None:
    before = index_of(docs)
    moved = docs.rename(docs.with_name("moved"))
    before.rename(index_of(moved))
    with library(moved) as lib:
        assert not lib.index().added
    assert not orphaned_records()


def test_no_text_of_a_folder_that_is_gone_is_embedded_again(
    docs: Path, embedded_texts: list[str]
) -> None:
    copy = Path(shutil.copytree(docs, docs.with_name("copy")))
    shutil.rmtree(docs)
    write(copy, {"new.md": "# New\n\nIts own habits.\n"})
    with library(copy) as lib:
        report = lib.index()
        assert (len(report.added), report.index.pending) == (4, 0)
        assert lib.search("zebra habits").hits[0].chunk.path == "zebra.md"
        assert lib.engine.check() == []
    assert [text for text in embedded_texts if "Its own" not in text] == []
    assert [record.path for _, record in orphaned_records()] == [str(docs)]


def test_a_damaged_vector_is_not_taken_over(docs: Path, embedded_texts: list[str]) -> None:
    store = sqlite3.connect(index_of(docs) / STORE)
    store.execute("UPDATE vectors SET checksum = checksum + 1 WHERE file_row = 1")
    store.commit()
    store.close()
    copy = Path(shutil.copytree(docs, docs.with_name("copy")))
    shutil.rmtree(docs)
    with library(copy) as lib:
        assert lib.index().index.pending == 0
    assert len(embedded_texts) == 1


def test_a_copy_of_a_folder_has_its_own_index(docs: Path) -> None:
    copy = Path(shutil.copytree(docs, docs.with_name("copy")))
    (copy / "zebra.md").unlink()
    with library(copy) as lib:
        assert len(lib.index().added) == 2
    with library(docs) as lib:
        assert lib.search("zebra").hits[0].chunk.path == "zebra.md"


def test_a_folder_with_two_paths_has_one_index(docs: Path) -> None:
    index = index_of(docs)
    other_path = index.rename(index.with_name("other-0123456789abcdef"))
    record = json.loads((other_path / "library.json").read_text())
    record["path"] = f"{docs}/../docs"  # as a mount of the same folder in another place
    (other_path / "library.json").write_text(json.dumps(record))
    with library(docs) as lib:
        assert lib.address.folder == other_path
        assert not lib.index().added


def test_a_new_folder_with_the_inode_of_a_deleted_one_does_not_get_its_index(docs: Path) -> None:
    moved = docs.rename(docs.with_name("moved"))
    for file in moved.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    write(moved, {"other.md": "# Other\n"})
    with library(moved) as lib:
        assert lib.address.folder == index_of(moved)
        assert lib.status()["documents"] == 0


def test_the_place_is_a_setting_of_the_user(docs: Path) -> None:
    with library(docs, index={"place": "folder"}) as lib:
        assert not lib.index().index.pending
        assert lib.status()["location"] == str(docs / ".marklight")
    assert (docs / ".marklight" / ".gitignore").read_text() == "*\n"
    with pytest.raises(SettingsError, match=r"index\.place must be data or folder"):
        library(docs, index={"place": "elsewhere"})


def test_two_processes_create_the_same_index(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    program = "import sys; from tests.making import library; library(sys.argv[1]).index()"
    command = [sys.executable, "-c", program, str(folder)]

    def run(place: str) -> int:
        return subprocess.run(
            command, env={**os.environ, "MARKLIGHT_INDEX_PLACE": place}
        ).returncode

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(run, ["data", "data", "folder", "folder"])) == [0, 0, 0, 0]
    for place in ("data", "folder"):
        with library(folder, index={"place": place}) as lib:
            assert lib.status()["documents"] == 3
            assert lib.engine.check() == []


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")
@pytest.mark.parametrize("obstacle", ["file", "link", "foreign"])
def test_a_data_directory_that_cannot_be_used_is_an_error(
    tmp_path: Path, data: Path, obstacle: str
) -> None:
    folder = write(tmp_path / "docs", PAGES)
    if obstacle == "file":
        data.write_text("in the way")
    else:
        data.mkdir()
        (tmp_path / "elsewhere").mkdir()
        (data / "libraries").symlink_to(tmp_path / "elsewhere")
    if obstacle == "foreign":
        if os.geteuid():
            pytest.skip("needs root to give a folder away")
        (data / "libraries").unlink()
        (data / "libraries").mkdir()
        os.chown(data / "libraries", 12345, 12345)
    with (
        library(folder) as lib,
        pytest.raises(StoreError, match="Cannot create the index folder") as error,
    ):
        lib.index()
    assert "MARKLIGHT_DATA_DIR" in str(error.value)
    assert not (tmp_path / "elsewhere").exists() or not os.listdir(tmp_path / "elsewhere")


@pytest.mark.parametrize("part", ["library.db", "words", "vectors"])
def test_a_part_of_another_backup_is_not_used(docs: Path, tmp_path: Path, part: str) -> None:
    """Restore a backup of an index, so that it continues in two ways from one point."""
    index = index_of(docs)
    backup = Path(shutil.copytree(index, tmp_path / "backup"))
    write(docs, {"giraffe.md": "# Giraffe\n\nAll about the giraffe.\n"})
    with library(docs) as lib:
        lib.index()
    other_way = Path(shutil.copytree(index, tmp_path / "other-way"))
    (docs / "giraffe.md").unlink()
    shutil.copytree(backup, index, dirs_exist_ok=True)
    write(docs, {"copper.md": "# Copper\n\nAll about the copper.\n"})
    with library(docs) as lib:
        lib.index()
    for file in [other_way / part, *(other_way / part).rglob("*")]:
        if file.is_file():
            shutil.copy(file, index / file.relative_to(other_way))
    expected = {"zebra": "zebra.md", "copper": "copper.md", "giraffe": ""}
    for number in range(2):
        with library(docs) as lib:
            answers = {query: lib.search(query).hits for query in expected}
            paths = {query: hits[0].chunk.path if hits else "" for query, hits in answers.items()}
            assert paths == expected
            assert lib.engine.check() == [] or number == 0


def test_an_index_in_a_given_place_makes_no_library_of_a_folder(docs: Path, tmp_path: Path) -> None:
    with library(docs / "below", engine=f"file:{tmp_path / 'place'}") as lib:
        lib.index()
    assert locate(docs / "below").folder == docs


BIND = """
import os, subprocess, sys
folder, other = sys.argv[1:]
subprocess.run(["mount", "--bind", folder, other], check=True)
import marklight
for path in (folder, other, folder, other):
    with marklight.open(path) as library:
        report = library.index()
        print(library.engine.describe(), len(report.added), len(report.changed))
    # As editors save: every file of the folder gets a new inode.
    with open(os.path.join(folder, "draft"), "w") as draft:
        draft.write(f"# Zebra\\n\\nSaved through {path}.\\n")
    os.replace(draft.name, os.path.join(folder, "zebra.md"))
"""


def test_a_folder_with_two_paths_has_one_index_whatever_happens_to_its_files(
    tmp_path: Path,
) -> None:
    unshare = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else [])]
    mount = ["mount", "--bind", "/", str(tmp_path)]
    if (
        not shutil.which("unshare")
        or subprocess.run([*unshare, *mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs the right to mount a folder in a namespace")
    folder = write(tmp_path / "docs", {"zebra.md": "# Zebra\n\nStripes.\n"})
    (tmp_path / "other").mkdir()
    run = subprocess.run(
        [*unshare, sys.executable, "-c", BIND, str(folder), str(tmp_path / "other")],
        env={**os.environ, "MARKLIGHT_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=True,
    )
    place = f"file:{next((tmp_path / 'data' / 'libraries').iterdir())}"
    assert run.stdout.splitlines() == [f"{place} 1 0", *[f"{place} 0 1"] * 3]
