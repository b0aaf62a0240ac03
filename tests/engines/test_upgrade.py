"""A library of an older format answers as it is, and the next writer brings it up to date."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.answer import Filters
from marklight.engines.embedded import upgrade
from marklight.engines.embedded.schema import VERSION
from marklight.engines.embedded.turn import Turn
from marklight.errors import StoreError
from marklight.model import Batch, Counts
from marklight.models.fake import FakeEmbedder
from marklight.ports import FIELD_BOOSTS, Engine, Reader
from marklight.text import words
from tests.contracts.builders import entry, id_of
from tests.engines.format2 import MODEL, format_of, lay_down


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return lay_down(tmp_path / "library")


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    engine = engines.open(folder)
    yield engine
    engine.close()


def everything(reader: Reader) -> object:
    """What a library of either format says."""
    question = FakeEmbedder().embed_query("undo a deployment")
    files = sorted(reader.files())
    return (
        reader.files(),
        [reader.document(id) for id in files],
        [(reader.chunks_of(id), reader.links_from(id), reader.links_to(id)) for id in files],
        (list(reader.edges()), reader.orphans()),
        (reader.neighbours(files, 9), reader.degrees(files, 9)),
        reader.failures(),
        (reader.manifest(), reader.models(), reader.moments(files)),
        reader.keyword(words("tokens expire"), FIELD_BOOSTS, Filters(), 9),
        reader.keyword(words("refresh"), FIELD_BOOSTS, Filters(tags=("security",)), 9),
        reader.semantic(question, MODEL, Filters(), 9),
        reader.semantic(question, MODEL, Filters(paths=("deploy/**",)), 9),
        {
            chunk.id: reader.vectors(MODEL, [chunk.id])[chunk.id].tolist()
            for id in files
            for chunk in reader.chunks_of(id)
        },
    )


def told_by(engine: Engine, folder: Path) -> object:
    """The same while nobody may write, not even to mend what is derived."""
    with Turn(folder / "lock").hold(0), engine.snapshot() as reader:
        return everything(reader)


def test_an_older_format_is_read_as_it_is(engine: Engine, folder: Path) -> None:
    with engine.snapshot() as reader:
        assert reader.counts(MODEL) == Counts(4, 5, 5, 1, 4, MODEL)
        (first,) = reader.chunks_of(id_of("deploy/rollback.md", "default"))
        assert reader.chunks([reader.named("rolling BACK", Filters(), 9)[0].chunk]) == [first]
        assert reader.communities(reader.files()) == {}
        assert reader.linked == 4
        assert reader.unembedded_concepts(MODEL, 9) == []
        assert reader.concepts(FakeEmbedder().embed_query("x"), MODEL, 9) == []
    assert format_of(folder) == 2


def test_the_next_writer_brings_it_up_to_date_and_keeps_every_answer(
    engine: Engine, folder: Path
) -> None:
    told = told_by(engine, folder)
    assert format_of(folder) == 2
    with engine.snapshot() as before:
        assert before.generation == 4
        with engine.writing(1):
            assert format_of(folder) == VERSION
        with engine.snapshot() as after:
            assert everything(after) == told
            assert after.counts(MODEL) == Counts(4, 5, 5, 1, 5, MODEL)
            assert after.unembedded(MODEL, 9) == []
        # A view that was open all the while still sees what it saw.
        assert everything(before) == told
        assert before.generation == 4
    assert engine.check() == []


def test_what_the_new_format_knows_is_there_at_once(engine: Engine) -> None:
    with engine.writing(1), engine.snapshot() as reader:
        found = reader.named("refresh", Filters(), 9)
        assert [(chunk.headings, chunk.ordinal) for chunk in reader.chunks([found[0].chunk])] == [
            (("Refresh",), 1)
        ]
        assert found[0].score == 0.5
        assert [each.score for each in reader.named("SCALE.md", Filters(), 9)] == [1.0]
        assert {"tokens", "token", "access"} <= set(reader.unembedded_concepts(MODEL, 99))
        assert reader.linked == reader.generation == 5


def test_a_commit_to_an_older_format_is_a_commit_to_the_new_one(engine: Engine) -> None:
    with engine.writing(1):
        assert engine.commit(Batch(entries=(entry("new.md", "kumquat", title="New"),))) == 6
    with engine.snapshot() as reader:
        assert len(reader.named("New", Filters(), 9)) == 1
        assert "kumquat" in reader.unembedded_concepts(MODEL, 99)
    # The store was laid down alone, without the file that is derived from it.
    assert engine.check() == [f"The vectors of {MODEL} were written anew from the store"]


def test_connections_that_have_read_the_old_format_see_the_new_one(
    engine: Engine, folder: Path
) -> None:
    with engine.snapshot() as reader:
        assert reader.named("refresh", Filters(), 9) == []
    other = engines.open(folder)
    with other.writing(1):
        pass
    other.close()
    with engine.snapshot() as reader:
        assert len(reader.named("refresh", Filters(), 9)) == 1
        assert reader.unembedded_concepts(MODEL, 1) != []


def tables(path: Path) -> dict[str, str]:
    """Every table and index, without the comments and blanks that SQLite keeps."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_master").fetchall()
    connection.close()
    return {name: re.sub(r"--[^\n]*|\s", "", sql) for name, sql in rows}


def test_an_upgraded_store_has_the_tables_of_a_fresh_one(
    engine: Engine, folder: Path, tmp_path: Path
) -> None:
    fresh = engines.open(tmp_path / "fresh")
    for each in (fresh, engine):
        with each.writing(1):
            pass
    fresh.close()
    engine.close()
    assert tables(folder / "library.db") == tables(tmp_path / "fresh" / "library.db")
    connection = sqlite3.connect(folder / "library.db")
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_every_format_that_is_known_leads_to_the_present_one() -> None:
    assert sorted(upgrade.OLDER) == list(range(min(upgrade.OLDER), VERSION))


def test_a_format_that_no_step_leads_from_is_refused_and_left_alone(folder: Path) -> None:
    connection = sqlite3.connect(folder / "library.db")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    before = (folder / "library.db").read_bytes()
    with pytest.raises(StoreError, match=r"older Marklight \(format 1") as caught:
        engines.open(folder)
    assert "marklight index" in caught.value.hint
    assert (folder / "library.db").read_bytes() == before


def test_a_format_that_becomes_newer_while_it_is_open_is_refused(
    engine: Engine, folder: Path
) -> None:
    connection = sqlite3.connect(folder / "library.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="newer Marklight"), engine.snapshot():
        pass


def test_a_step_that_fails_leaves_the_old_format(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_by(engine, folder)
    with monkeypatch.context() as patch:
        patch.setattr("marklight.engines.embedded.refill.INSERT_CALLING", "INSERT INTO nowhere")
        with pytest.raises(StoreError), engine.writing(1):
            pass
    assert told_by(engine, folder) == told
    assert format_of(folder) == 2
    with engine.writing(1):
        pass
    assert format_of(folder) == VERSION
