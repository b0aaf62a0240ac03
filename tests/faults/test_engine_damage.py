"""Damaged, deleted or foreign files: derived parts are rebuilt, a damaged database is reported."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded import vector_files
from marklight.engines.embedded.vector_files import HEADER_BYTES
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.query import Filters
from tests.contracts.builders import entry, vector, vectors
from tests.faults.committing import answers, batches, copied, in_memory


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an undamaged index."""
    with in_memory(tmp_path_factory.mktemp("undamaged")) as place:
        yield make(place / "library")


@pytest.fixture(scope="module")
def continued(undamaged: Path) -> object:
    """Return its content after the same commits once more."""
    copy = copied(undamaged, undamaged.with_name("continued"))
    return content(make(copy))


@pytest.fixture
def folder(undamaged: Path, continued: object) -> Iterator[Path]:
    """Return a copy of it, to be damaged."""
    with in_memory(undamaged.parent) as place:
        yield copied(undamaged, place / "library")


def make(folder: Path, steps: int = 9) -> Path:
    engine = engines.open(folder)
    with engine.writing(1):
        for batch in list(batches())[:steps]:
            engine.commit(batch)
    engine.close()
    return folder


def content(folder: Path) -> object:
    engine = engines.open(folder)
    try:
        with engine.snapshot() as snapshot:
            return answers(snapshot)
    finally:
        engine.close()


def put(path: Path, data: bytes) -> None:
    # As a new file: truncating one that this process may still have mapped would crash the process.
    if path.name != "library.db":
        path.unlink()
    path.write_bytes(data)


def halve(path: Path) -> None:
    put(path, path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    put(path, b"")


def garble(path: Path) -> None:
    put(path, random.Random(1).randbytes(path.stat().st_size))


def all_files(pattern: str, harm: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        paths = list(folder.glob(pattern))
        assert paths
        for path in paths:
            harm(path)

    return damage


DERIVED: dict[str, Callable[[Path], object]] = {
    # A thread of tantivy may still create its lock there, so that the folder could not be deleted.
    "no lexical index": lambda folder: (folder / "lexical").rename(folder.with_name("moved")),
    "no list of segments": all_files("lexical/*/meta.json", Path.unlink),
    "an empty list of segments": all_files("lexical/*/meta.json", empty),
    "half a list of segments": all_files("lexical/*/meta.json", halve),
    "no stamp": all_files("lexical/*/marklight.json", Path.unlink),
    "no segments": all_files("lexical/*/*.idx", Path.unlink),
    "empty segments": all_files("lexical/*/*.idx", empty),
    "half a segment": all_files("lexical/*/*.idx", halve),
    "garbled terms": all_files("lexical/*/*.term", garble),
    "garbled postings": all_files("lexical/*/*.idx", garble),
    "half of the fast fields": all_files("lexical/*/*.fast", halve),
    "garbled fast fields": all_files("lexical/*/*.fast", garble),
}
VECTORS: dict[str, Callable[[Path], object]] = {
    "none": lambda folder: shutil.rmtree(folder / "vectors"),
    "empty": all_files("vectors/*", empty),
    "half": all_files("vectors/*", halve),
    "foreign": all_files("vectors/*", garble),
}


@pytest.mark.parametrize("harm", DERIVED)
def test_a_damaged_derived_part_is_rebuilt_by_a_search(folder: Path, harm: str) -> None:
    before = content(folder)
    DERIVED[harm](folder)
    assert content(folder) == before
    engine = engines.open(folder)
    assert engine.check() == []
    with engine.writing(1):
        engine.commit(Batch(entries=(entry("new.md", "durian"),)))
    with engine.snapshot() as snapshot:
        assert len(snapshot.lexical.search(["durian"], {"body": 1.0}, Filters(), 9)) == 1
    engine.close()


@pytest.mark.parametrize("harm", DERIVED)
def test_a_writer_repairs_a_damaged_derived_part(
    folder: Path, continued: object, harm: str
) -> None:
    DERIVED[harm](folder)
    assert content(make(folder)) == continued


def test_parts_of_another_library_are_not_used(folder: Path) -> None:
    before = content(folder)
    other = make(folder.with_name("other"), steps=12)
    for part in ("lexical", "vectors"):
        shutil.rmtree(folder / part)
        shutil.copytree(other / part, folder / part)
    assert embed_again(folder) == before[1:]  # type: ignore[index]


@pytest.mark.parametrize("by", ["search", "commit", "check"])
@pytest.mark.parametrize("harm", VECTORS)
def test_vectors_of_an_unusable_file_are_computed_again(folder: Path, harm: str, by: str) -> None:
    before = content(folder)
    VECTORS[harm](folder)
    engine = engines.open(folder)
    if by == "search":
        with engine.snapshot() as snapshot:
            assert snapshot.vectors.search(vector("q"), "m", Filters(), 9) == []
        assert ["embedded again" in notice for notice in engine.take_notices()] == [True]
    elif by == "commit":
        with engine.writing(1):
            engine.commit(Batch(vectors=vectors(["no passage"])))
    else:
        assert "computed again" in engine.check()[0]
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").embedded == 0
    engine.close()
    assert embed_again(folder) == before[1:]  # type: ignore[index]


def embed_again(folder: Path) -> object:
    """Commit the vectors again that are missing, and return the content without the generation."""
    content(folder)
    engine = engines.open(folder)
    with engine.writing(1):
        for batch in list(batches())[:9]:
            engine.commit(Batch(vectors=batch.vectors))
    with engine.snapshot() as snapshot:
        stored = answers(snapshot)
    assert engine.check() == []
    engine.close()
    return (replace(stored[1], generation=9), *stored[2:])  # type: ignore[index]


def test_a_vector_file_that_cannot_be_opened_now_is_not_discarded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(folder)
    engine = engines.open(folder)

    def too_many_files(path: Path, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(vector_files, "open_private", too_many_files)
    with engine.snapshot() as snapshot, pytest.raises(StoreError, match="Too many open files"):
        snapshot.vectors.search(vector("q"), "m", Filters(), 9)
    monkeypatch.undo()
    engine.close()
    assert content(folder) == before


def test_an_older_copy_of_the_lexical_index_is_not_used(folder: Path) -> None:
    shutil.copytree(folder / "lexical", folder.with_name("old"))
    make(folder)
    before = content(folder)
    shutil.rmtree(folder / "lexical")
    shutil.copytree(folder.with_name("old"), folder / "lexical")
    assert content(folder) == before


def test_an_older_copy_of_the_database_is_used(folder: Path, continued: object) -> None:
    before = content(folder)
    shutil.copy(folder / "library.db", folder.with_name("old"))
    make(folder)
    shutil.copy(folder.with_name("old"), folder / "library.db")
    assert content(folder) == before
    assert content(make(folder)) == continued


def test_a_check_repairs_changed_bytes_in_a_vector_file(folder: Path) -> None:
    before = content(folder)
    path = next((folder / "vectors").iterdir())
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 44] ^= 0xFF
    path.write_bytes(data)
    engine = engines.open(folder)
    assert engine.check()[0] == "1 damaged vectors were deleted and will be computed again"
    assert engine.check() == []
    engine.close()
    assert embed_again(folder) == before[1:]  # type: ignore[index]


def overwrite(path: Path, start: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    data[start : start + length] = random.Random(2).randbytes(length)
    path.write_bytes(data)


DATABASE: dict[str, Callable[[Path], object]] = {
    "empty": empty,
    "cut": halve,
    "cut in the middle of a page": lambda path: os.truncate(path, 5000),
    "overwritten at the start": lambda path: overwrite(path, 0, 100),
    "overwritten in its pages": lambda path: overwrite(path, 4096, path.stat().st_size - 4096),
    "overwritten in one of its tables": lambda path: overwrite(path, 4096, 8 * 4096),
    "not a database": lambda path: shutil.copy(__file__, path),
}


@pytest.mark.parametrize("harm", DATABASE)
def test_a_damaged_database_is_reported_and_not_changed(folder: Path, harm: str) -> None:
    store = folder / "library.db"
    DATABASE[harm](store)
    damaged = store.read_bytes()
    with pytest.raises(StoreError) as caught:
        content(folder)
    assert str(store) in str(caught.value)
    assert "marklight index" in caught.value.hint
    assert store.read_bytes() == damaged


def test_a_missing_database_is_not_replaced_by_an_empty_one(folder: Path) -> None:
    (folder / "library.db").unlink()
    with pytest.raises(StoreError, match="missing"):
        engines.open(folder)
    assert not (folder / "library.db").exists()


@pytest.mark.parametrize(
    "harm, message",
    [
        ("UPDATE terms SET documents = 99 WHERE term = 'plum'", "frequencies of the vocabulary"),
        ("DELETE FROM terms WHERE term = 'plum'", "frequencies of the vocabulary"),
        ("DELETE FROM titles WHERE document % 2", "titles and headings"),
        ("UPDATE titles SET last = 99", "titles and headings"),
    ],
)
def test_a_check_rebuilds_wrong_derived_tables(folder: Path, harm: str, message: str) -> None:
    before = content(folder)
    connection = sqlite3.connect(folder / "library.db")
    connection.execute(harm)
    connection.commit()
    connection.close()
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        generation = snapshot.generation
    (finding,) = engine.check()
    assert message in finding
    assert engine.check() == []
    with engine.snapshot() as snapshot:
        assert snapshot.generation == generation + 1
        assert answers(snapshot)[2:] == before[2:]  # type: ignore[index]
    engine.close()


def test_terms_of_another_tokenizer_version_are_recounted(folder: Path) -> None:
    connection = sqlite3.connect(folder / "library.db")
    connection.execute("UPDATE state SET vocabulary = 'an older fingerprint'")
    connection.execute("UPDATE terms SET documents = 1, term = 'old' || term")
    connection.commit()
    connection.close()
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(manifest={"no": "document"}))
        engine.commit(Batch(entries=(entry("new.md", "durian"),)))
    with engine.snapshot() as snapshot:
        assert {"plum", "durian"} <= set(snapshot.vocabulary.terms_without_vector("m", 99))
        assert "oldplum" not in snapshot.vocabulary.terms_without_vector("m", 99)
    assert engine.check() == []
    engine.close()


def test_an_index_of_a_newer_version_is_not_changed(folder: Path) -> None:
    connection = sqlite3.connect(folder / "library.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="newer"):
        engines.open(folder)
