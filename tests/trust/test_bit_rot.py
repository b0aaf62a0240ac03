"""Bit rot: no wrong text is shown, and `doctor` finds every flipped bit that matters."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import marklight
from marklight.engines.embedded import stored_rows
from marklight.errors import StoreError
from marklight.ports import FIELD_BOOSTS
from marklight.query import Filters
from tests.faults.committing import copied
from tests.making import index_of, library, write

NAMES = "zebra heron otter lynx badger curlew osprey marten plover egret".split()
PAGES = {
    f"{name}.md": f"# {name.title()}\n\nThe {name} sleeps for {number + 2} months.\n\n"
    f"## Food\n\nIt eats about {number} kilograms of {NAMES[number - 1]} food a day.\n\n### Season\n\nAll year.\n"
    for number, name in enumerate(NAMES)
}

TEXT = "passage_text(text, document)"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("sound") / "docs", PAGES)
    with library(folder) as lib:
        lib.index()
    return folder


@pytest.fixture
def docs(sound: Path, tmp_path: Path) -> Path:
    """A copy of the documents with their index."""
    folder = Path(shutil.copytree(sound, tmp_path / "docs"))
    for file in folder.iterdir():  # as they were when they were read
        status = (sound / file.name).stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    copied(index_of(sound), index_of(folder))
    with library(folder) as lib:
        lib.index()
    return folder


def change(folder: Path, sql: str, *values: object) -> None:
    store = sqlite3.connect(index_of(folder) / "library.db")
    stored_rows.register(store)
    store.create_function("pack", 1, stored_rows.pack)
    assert store.execute(sql, values).rowcount
    store.commit()
    store.close()


def shown(lib: marklight.Library, **options: object) -> list[str]:
    found = lib.search("how many months does the heron sleep", min_confidence=0.0, **options)  # type: ignore[arg-type]
    return [hit.chunk.text for hit in found.hits]


@pytest.mark.parametrize("refresh", [True, False])
def test_a_changed_passage_is_never_shown(docs: Path, refresh: bool) -> None:
    change(docs, f"UPDATE chunks SET text = replace({TEXT}, '3 months', '72 months')")
    with library(docs) as lib:
        found = lib.search("how many months does the heron sleep", refresh=refresh, limit=9)
        texts = [hit.chunk.text for hit in found.hits]
        assert "72 months" not in "".join(texts)
        assert any("3 months" in text for text in texts) == refresh
        assert any("amaged in the index" in notice for notice in found.notices)
        assert [found.path for found in [hit.chunk for hit in found.hits]][:1] == (
            ["heron.md"] if refresh else [found.hits[0].chunk.path]
        )
    with library(docs) as lib:
        assert (lib.engine.check() == []) == refresh


@pytest.mark.parametrize("column", ["title", "headings", "anchor", "first_line", "last_line"])
def test_changed_line_numbers_of_a_passage_are_never_shown(docs: Path, column: str) -> None:
    value = {"first_line": 1, "last_line": 99, "headings": '["Badger"]'}.get(column, "badger")
    change(docs, f"UPDATE chunks SET {column} = ? WHERE {TEXT} LIKE '%3 months%'", value)
    with library(docs) as lib:
        before = lib.search("heron sleep months", limit=9)
        assert any("read again" in notice for notice in before.notices)
        assert lib.engine.check() == []


@pytest.mark.parametrize("how", [{"parents": True}, {"context": 1}, {"expand_context": True}])
def test_text_around_a_passage_is_verified_too(docs: Path, how: dict[str, object]) -> None:
    change(docs, "UPDATE contents SET text = pack(replace(unpack(text), '3 months', '72 months'))")
    change(docs, f"UPDATE chunks SET text = replace({TEXT}, 'kilograms', 'tons') WHERE ordinal = 1")
    with library(docs) as lib:
        texts = "".join(shown(lib, limit=9, **how))
        assert "72 months" not in texts
        assert "tons" not in texts


def test_a_changed_document_is_never_shown_whole(docs: Path) -> None:
    change(docs, "UPDATE contents SET text = pack(replace(unpack(text), '3 months', '72 months'))")
    with library(docs) as lib:
        assert "sleeps for 3 months" in lib.get("heron.md").text
        assert "sleeps for 3 months" in lib.get("heron.md:3-3").text


def test_doctor_names_the_document_and_the_next_search_reads_it_again(docs: Path) -> None:
    change(docs, f"UPDATE chunks SET text = replace({TEXT}, '3 months', '72 months')")
    with library(docs) as lib:
        (found,) = lib.engine.check()
        assert "heron.md" in found
        assert lib.engine.check() == []
        assert any("3 months" in text for text in shown(lib))


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE vectors SET checksum = checksum + 1 WHERE file_row = 3",
        "UPDATE vectors SET digest = digest || 'x' WHERE file_row = 3",
        "UPDATE term_vectors SET vector = x'0000' WHERE term = 'heron'",
    ],
)
def test_a_damaged_vector_is_found_and_computed_again(docs: Path, harm: str) -> None:
    change(docs, harm)
    with library(docs) as lib:
        assert shown(lib)  # no error, whatever its length
        found = lib.engine.check()
        assert any("damaged vectors were deleted" in each for each in found)
        lib.index()
        assert lib.engine.check() == []
        assert lib.index().index.pending == 0


def test_invalid_columns_are_one_clear_error(docs: Path) -> None:
    change(docs, "UPDATE contents SET record = '{' WHERE document = 1")
    change(docs, "UPDATE chunks SET kind = 'nothing', headings = '[\"\\' WHERE document = 2")
    change(docs, "UPDATE chunks SET text = CAST(x'ff0041' AS TEXT) WHERE document = 3")
    with library(docs) as lib, pytest.raises(StoreError, match="doctor"):
        shown(lib, limit=50)
    with library(docs) as lib:
        assert len(lib.engine.check()) >= 1
        assert shown(lib, limit=50)
        assert lib.engine.check() == []


def test_a_file_where_the_folder_of_vectors_should_be_is_replaced(docs: Path) -> None:
    shutil.rmtree(index_of(docs) / "vectors")
    (index_of(docs) / "vectors").write_text("a file")
    with library(docs) as lib:
        assert shown(lib)
        write(docs, {"new.md": "# New\n\nA page about the wombat.\n"})
        lib.index()
        assert lib.search("wombat").hits
        assert lib.engine.check() == []


def test_a_flipped_bit_in_the_lexical_index_is_found(docs: Path) -> None:
    """Each of these is found by a check, and what is found afterwards equals a sound index."""
    chance = random.Random(5)
    expected = None
    for number in range(60):
        with library(docs) as lib:
            assert lib.engine.check() == []
            if expected is None:
                expected = ranked(lib)
        files = [each for each in sorted(index_of(docs).glob("lexical/*/*")) if each.stat().st_size]
        file = files[number % len(files)]
        data = bytearray(file.read_bytes())
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        file.unlink()  # another process may have it mapped
        file.write_bytes(data)
        with library(docs) as lib:
            try:
                found = lib.engine.check()
            except StoreError as error:
                raise AssertionError((file.name, at)) from error
            assert ranked(lib) == expected, (file.name, at, found)


def ranked(lib: marklight.Library) -> list[object]:
    with lib.engine.snapshot() as snapshot:
        return [snapshot.lexical.search([name], FIELD_BOOSTS, Filters(), 20) for name in NAMES]


def test_a_flipped_bit_in_the_vectors_is_found(docs: Path) -> None:
    (file,) = (index_of(docs) / "vectors").glob("*.int8")
    chance = random.Random(6)
    for _ in range(20):
        data = bytearray(file.read_bytes())
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        file.unlink()
        file.write_bytes(data)
        with library(docs) as lib:
            lib.engine.check()
            assert lib.engine.check() == []
            with lib.engine.snapshot() as snapshot:
                vectors = snapshot.vectors.get("fake-64", reader_ids(lib))
                assert np.allclose([np.linalg.norm(each) for each in vectors.values()], 1.0)


def reader_ids(lib: marklight.Library) -> list[str]:
    return [hit.chunk.id for hit in lib.search("months", min_confidence=0.0, limit=20).hits]


def test_a_flipped_bit_in_the_database_never_changes_what_is_shown(docs: Path) -> None:
    """Wherever it is: the text is right, or the passage is left out, or there is one clear error."""
    store = index_of(docs) / "library.db"
    with library(docs) as lib:
        lib.engine.check()
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = store.read_bytes()
    chance = random.Random(7)
    for _ in range(200):
        at = chance.randrange(100, len(data))
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        store.write_bytes(flipped)
        try:
            with library(docs) as lib:
                for hit in lib.search("heron sleep months food", limit=20, refresh=False).hits:
                    page = PAGES[hit.chunk.path]
                    assert hit.chunk.text in page, at
                    start, _ = hit.chunk.lines
                    assert page.split("\n")[start - 1] in hit.chunk.text, at
        except StoreError:
            continue
