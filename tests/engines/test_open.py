"""Opening an engine: addresses, files that are created, modules that are imported."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded.vector_files import HEADER_BYTES
from marklight.errors import SettingsError, StoreError
from marklight.model import Batch, Counts
from marklight.ports import FIELD_BOOSTS
from marklight.query import Filters
from tests.contracts.builders import embedding, entry, vector

READ_STATUS = """
import json, sys
from marklight import engines
from marklight.model import Batch
engine = engines.open(sys.argv[1])
with engine.snapshot() as snapshot:
    snapshot.status.counts("m"), snapshot.documents.files(), snapshot.status.failures()
    snapshot.status.manifest(), snapshot.status.models()
with engine.writing(1), engine.snapshot() as snapshot:
    engine.commit(Batch(manifest={"key": "value"}))
    snapshot.vectors.pending("m", 5)
engine.count_unused_vectors(), engine.sizes(), engine.close()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize(
    "address", ["password=s3cret host=h", "s3cret", "s3cret:", "u s3cret:x@h/d"]
)
def test_a_password_in_an_unknown_kind_of_address_is_not_printed(address: str) -> None:
    with pytest.raises(SettingsError) as error:
        engines.parse_address(address)
    assert "s3cret" not in str(error.value)


def test_folders_are_addresses(tmp_path: Path) -> None:
    for address in (f"file:{tmp_path}/a", tmp_path / "a", str(tmp_path / "a")):
        engine = engines.open(address)
        assert engine.describe() == f"file:{tmp_path}/a"
        engine.close()


def test_an_unknown_engine_is_an_error_with_its_name() -> None:
    with pytest.raises(SettingsError, match="postgresql"):
        engines.parse_address("mysql://localhost/x")


def make(folder: Path) -> None:
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(entries=(entry("a.md", "words"),)))
    engine.close()


def test_git_ignores_the_index_folder(tmp_path: Path) -> None:
    for folder in (tmp_path / "library", tmp_path / "deep" / "library", tmp_path / "empty"):
        if folder.name == "empty":
            folder.mkdir()
        make(folder)
        assert (folder / ".gitignore").read_text() == "*\n"


def test_a_folder_with_other_files_is_not_hidden_from_git(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("mine")
    make(tmp_path)
    assert not (tmp_path / ".gitignore").exists()
    make(tmp_path)
    assert not (tmp_path / ".gitignore").exists()


def test_foreign_files_are_never_deleted(tmp_path: Path) -> None:
    make(tmp_path)
    ours = [
        tmp_path / "vectors" / "0123456789ab-7-7.int8",
        tmp_path / "lexical" / "0123456789abcdef" / "x",
    ]
    mine = [tmp_path / "vectors" / "notes.md", tmp_path / "lexical" / "notes" / "notes.md"]
    for path in (*ours, *mine):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x" * 100_000)
    engine = engines.open(tmp_path)
    assert engine.check() == ["Deleted leftover files or folders of the index: 2"]
    engine.clean(keep=())
    assert [path.exists() for path in (*ours, *mine)] == [False, False, True, True]
    engine.close()


@pytest.mark.parametrize("place", ["", "not/there/yet"])
def test_reading_a_missing_index_creates_no_files(tmp_path: Path, place: str) -> None:
    engine = engines.open(tmp_path / place)
    with engine.snapshot() as snapshot:
        assert snapshot.generation == 0
        assert snapshot.status.counts("m") == Counts(model="m")
        assert (
            snapshot.documents.files(),
            snapshot.documents.find_by_path("a.md"),
            snapshot.links.unresolved(),
        ) == ({}, [], [])
        filters = Filters(paths=("*.md",), after="2026")
        for each in (Filters(), filters):
            assert snapshot.lexical.search(["word"], FIELD_BOOSTS, each, 9) == []
            assert snapshot.lexical.search_code(["word"], each, 9) == []
            assert snapshot.vectors.search(vector("q"), "m", each, 9) == []
    assert (engine.sizes(), engine.count_unused_vectors(), engine.check(), engine.clean(())) == (
        {},
        0,
        [],
        0,
    )
    assert engine.describe() == f"file:{tmp_path / place}"
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_an_index_created_by_another_engine_is_visible_at_once(tmp_path: Path) -> None:
    early = engines.open(tmp_path / "library")
    with early.snapshot() as before:
        make(tmp_path / "library")
        assert before.generation == 0
        assert before.lexical.search(["word"], FIELD_BOOSTS, Filters(), 9) == []
    with early.snapshot() as snapshot:
        assert snapshot.generation == 1
        assert len(snapshot.lexical.search(["word"], FIELD_BOOSTS, Filters(), 9)) == 1
    early.close()


def test_reading_the_status_imports_no_heavy_library(tmp_path: Path) -> None:
    engine = engines.open(tmp_path)
    one = entry("a.md", "words")
    with engine.writing(1):
        engine.commit(Batch(entries=(one,)))
        engine.commit(embedding(one))
    engine.close()
    run = subprocess.run(
        [sys.executable, "-c", READ_STATUS, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert not {"tantivy", "numpy", "Stemmer"} & set(json.loads(run.stdout))


def test_a_file_at_the_path_of_the_index_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "library").write_text("in the way")
    with pytest.raises(StoreError, match="library"):
        engines.open(tmp_path / "library")


def test_sizes_are_reported_by_part(tmp_path: Path) -> None:
    engine = engines.open(tmp_path)
    one = entry("a.md", "words")
    with engine.writing(1):
        engine.commit(Batch(entries=(one,)))
        engine.commit(embedding(one))
    sizes = engine.sizes()
    assert set(sizes) == {"library", "lexical", "vectors"}
    assert sizes["vectors"] == HEADER_BYTES + 16
    engine.close()


@pytest.mark.parametrize("below", [".marklight", ".marklight/history"])
def test_a_folder_of_documents_that_was_moved_away_is_not_created_again(
    tmp_path: Path, below: str
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    engine = engines.open(folder / below, documents=folder)
    with engine.writing(1):
        pass
    folder.rename(tmp_path / "away")
    with pytest.raises(StoreError, match="does not exist"), engine.writing(1):
        pass
    assert not folder.exists()
    engine.close()


def test_a_library_opens_while_another_process_deletes_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.open(tmp_path / "index")
    with engine.writing(1):
        engine.commit(Batch(manifest={"a": "b"}))
    engine.close()  # the last connection deletes the WAL
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name.endswith("-wal") or exists(path))
    opened = engines.open(tmp_path / "index")
    with opened.snapshot() as snapshot:
        assert snapshot.status.manifest() == {"a": "b"}
    opened.close()


def test_an_index_that_cannot_be_read_now_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(manifest={"a": "b"}))
    engine.close()
    lstat = os.lstat

    def fail(path: Path) -> os.stat_result:
        if path == folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            engines.open(folder)
    with engines.open(folder).snapshot() as snapshot:
        assert snapshot.status.manifest() == {"a": "b"}


def test_a_database_whose_inode_cannot_be_recorded_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, lstat = engines.open(tmp_path / "index"), os.lstat

    def fail(path: Path) -> os.stat_result:
        if str(path).endswith(".new"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fail)
        with pytest.raises(StoreError, match="Input/output error"), engine.writing(1):
            engine.commit(Batch(manifest={"a": "b"}))
    with engine.writing(1):
        engine.commit(Batch(manifest={"a": "b"}))
    with engines.open(tmp_path / "index").snapshot() as snapshot:
        assert snapshot.status.manifest() == {"a": "b"}


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
@pytest.mark.parametrize("name", ["library.db-wal", "library.db-shm", "lock"])
def test_a_file_of_another_process_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """The first look does not find it: it did not exist yet, or the disk failed."""
    folder, lstat, failed = tmp_path / "index", os.lstat, list[str]()
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(manifest={"a": "b"}))
        before = (folder / name).stat().st_ino

        def fail_once(path: Path) -> os.stat_result:
            if Path(path).name == name and not failed:
                failed.append(name)
                raise OSError(number, os.strerror(number), str(path))
            return lstat(path)

        with monkeypatch.context() as patch, suppress(StoreError):
            patch.setattr(os, "lstat", fail_once)
            with engines.open(folder).writing(0):
                pass
        assert failed
        assert (folder / name).stat().st_ino == before
    engine.close()
