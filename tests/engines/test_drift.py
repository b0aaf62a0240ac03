"""Ranks do not depend on what a library held before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.answer import Filters
from marklight.engines.embedded import lexical_index, lexical_repair
from marklight.model import Batch
from marklight.ports import Engine, ScoredChunk, Snapshot
from tests.contracts.builders import entry, id_of
from tests.faults.committing import in_memory

LIVING = [entry("a.md", "apple pear pear", "apple"), entry("b.md", "plum apple", "plum pear fig")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as place:
        yield place / "library"


def dying(count: int) -> Batch:
    """So many passages full of one word, and long."""
    return Batch(
        entries=(entry("dying.md", *(f"apple {'long ' * 30}{at}" for at in range(count))),)
    )


def live(engine: Engine, deaths: int) -> None:
    """A library that holds the same as any other in the end, after so many deaths."""
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(LIVING)))
        engine.commit(dying(deaths))
        engine.commit(Batch(removed=(id_of("dying.md"),)))


def ranking(engine: Engine) -> list[list[ScoredChunk]]:
    with engine.snapshot() as snapshot:
        return [search(snapshot, word) for word in ("appl", "pear", "plum")]


def search(snapshot: Snapshot, word: str) -> list[ScoredChunk]:
    return snapshot.lexical.search([word], {"body": 1.0}, Filters(), 999)


@pytest.fixture
def oracle(folder: Path) -> list[list[ScoredChunk]]:
    """What a library answers that never held anything else."""
    engine = engines.open(folder.with_name("oracle"))
    with engine.writing(0):
        engine.commit(Batch(entries=tuple(LIVING)))
    found = ranking(engine)
    engine.close()
    return found


def test_many_deaths_do_not_change_the_ranks(folder: Path, oracle: list[list[ScoredChunk]]) -> None:
    engine = engines.open(folder)
    live(engine, deaths=201)
    assert ranking(engine) == oracle
    meta = json.loads((folder / "words" / "meta.json").read_bytes())
    assert sum(each["max_doc"] for each in meta["segments"]) == 4
    assert engine.check() == []
    engine.close()


def test_a_share_of_a_large_library_may_be_dead(folder: Path) -> None:
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(entry(f"{at}.md", *["fig"] * 50) for at in range(20))))
    stamp = lexical_index.LexicalIndex(folder).stamp
    live(engine, deaths=250)  # of 1,004 a quarter are 251
    assert stamp().died == 0
    with engine.writing(1):
        engine.commit(Batch(removed=(id_of("a.md"),)))
    assert stamp().died == 252
    engine.close()


def test_a_check_forgets_every_death(folder: Path, oracle: list[list[ScoredChunk]]) -> None:
    engine = engines.open(folder)
    live(engine, deaths=5)
    assert ranking(engine) != oracle
    assert engine.check() == []
    assert ranking(engine) == oracle
    engine.close()


def test_a_view_from_before_still_finds_what_died(
    folder: Path, oracle: list[list[ScoredChunk]]
) -> None:
    reading, writing = engines.open(folder), engines.open(folder)
    with writing.writing(1):
        writing.commit(dying(300))
    with reading.snapshot() as before:
        live(writing, deaths=10)
        assert lexical_index.LexicalIndex(folder).stamp().died == 310
        assert len(search(before, "appl")) == 300
        with reading.snapshot() as after:
            assert [search(after, word) for word in ("appl", "pear", "plum")] == oracle
            assert len(search(before, "long")) == 300
    reading.close()
    writing.close()


def test_a_view_from_before_knows_its_own_words_and_no_others(folder: Path) -> None:
    asked = ["appl", "plum", "nowher"]
    reading, writing = engines.open(folder), engines.open(folder)
    with writing.writing(1):
        writing.commit(dying(300))
    with reading.snapshot() as before:  # has not opened the index yet, and cannot any more
        live(writing, deaths=10)
        with reading.snapshot() as after:
            assert after.lexical.existing_terms(["long", *asked]) == {"appl", "plum"}
        assert before.lexical.existing_terms(["long", *asked]) == {"long", "appl"}
    reading.close()
    writing.close()


def test_a_word_of_the_dead_is_not_known_whatever_is_built_meanwhile(folder: Path) -> None:
    engine = engines.open(folder)
    live(engine, deaths=3)
    with engine.snapshot() as before:
        assert before.lexical.existing_terms(["long", "appl"]) == {"appl"}
        live(engine, deaths=300)
        with engine.snapshot() as after:
            assert after.lexical.existing_terms(["long", "appl"]) == {"appl"}
        assert before.lexical.existing_terms(["long", "appl"]) == {"appl"}
    engine.close()


def test_what_cannot_be_built_anew_now_is_built_later(
    folder: Path, oracle: list[list[ScoredChunk]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.open(folder)
    live(engine, deaths=0)

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(lexical_repair, "stored_passages", no_room)
        live(engine, deaths=300)
        assert [len(found) for found in ranking(engine)] == [3, 2, 2]
    with engine.writing(1):
        pass
    assert ranking(engine) == oracle
    assert engine.check() == []
    engine.close()


def test_an_emptied_library_leaves_no_words(folder: Path, oracle: list[list[ScoredChunk]]) -> None:
    engine = engines.open(folder)
    live(engine, deaths=300)
    with engine.writing(1):
        engine.commit(Batch(removed=tuple(each.document.id for each in LIVING)))
    assert ranking(engine) == [[], [], []]
    assert engine.check() == []
    live(engine, deaths=0)
    assert ranking(engine) == oracle
    engine.close()
