"""Rankings do not depend on deleted documents: tombstones and rebuilds of the lexical index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from marklight import engines, lexical
from marklight.engines.embedded import lexical_writer
from marklight.model import Batch, Chunk
from marklight.ports import Engine, ScoredChunk, Snapshot
from marklight.query import Filters
from tests.contracts.builders import entry, id_of
from tests.faults.committing import in_memory

REMAINING = [
    entry("a.md", "apple pear pear", "apple"),
    entry("b.md", "plum apple", "plum pear fig"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as place:
        yield place / "library"


def temporary(count: int) -> Batch:
    """Return a batch of long passages that contain one frequent term."""
    return Batch(
        entries=(entry("temporary.md", *(f"apple {'long ' * 30}{at}" for at in range(count))),)
    )


def fill(engine: Engine, deleted: int) -> None:
    """Fill an index with the remaining documents, and add and delete so many other passages."""
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(REMAINING)))
        engine.commit(temporary(deleted))
        engine.commit(Batch(removed=(id_of("temporary.md"),)))


def ranking(engine: Engine) -> list[list[ScoredChunk]]:
    with engine.snapshot() as snapshot:
        return [search(snapshot, word) for word in ("appl", "pear", "plum")]


def deleted_before_build(folder: Path) -> int:
    """Return how many passages had been deleted when the lexical index was built."""
    (stamp,) = folder.glob("lexical/*/marklight.json")
    return int(json.loads(stamp.read_bytes())["deleted"])


def search(snapshot: Snapshot, word: str) -> list[ScoredChunk]:
    return snapshot.lexical.search([word], {"body": 1.0}, Filters(), 999)


@pytest.fixture
def oracle(folder: Path) -> list[list[ScoredChunk]]:
    """Return the rankings of an index that never contained anything else."""
    engine = engines.open(folder.with_name("oracle"))
    with engine.writing(0):
        engine.commit(Batch(entries=tuple(REMAINING)))
    expected = ranking(engine)
    engine.close()
    return expected


def test_many_deleted_passages_do_not_change_the_ranking(
    folder: Path, oracle: list[list[ScoredChunk]]
) -> None:
    engine = engines.open(folder)
    fill(engine, deleted=201)
    assert ranking(engine) == oracle
    (meta,) = (json.loads(path.read_bytes()) for path in folder.glob("lexical/*/meta.json"))
    assert sum(segment["max_doc"] for segment in meta["segments"]) == 4
    assert engine.check() == []
    engine.close()


def test_a_large_index_is_rebuilt_at_a_share_of_deleted_passages(folder: Path) -> None:
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(entry(f"{at}.md", *["fig"] * 50) for at in range(20))))
    fill(engine, deleted=250)  # of 1,004 a quarter are 251
    assert deleted_before_build(folder) == 0
    with engine.writing(1):
        engine.commit(Batch(removed=(id_of("a.md"),)))
    assert deleted_before_build(folder) == 252
    engine.close()


def test_a_check_purges_all_deleted_passages(folder: Path, oracle: list[list[ScoredChunk]]) -> None:
    engine = engines.open(folder)
    fill(engine, deleted=5)
    assert ranking(engine) != oracle
    assert engine.check() == []
    assert ranking(engine) == oracle
    engine.close()


def test_an_older_snapshot_still_finds_deleted_passages(
    folder: Path, oracle: list[list[ScoredChunk]]
) -> None:
    reading, writing = engines.open(folder), engines.open(folder)
    with writing.writing(1):
        writing.commit(temporary(300))
    with reading.snapshot() as before:
        fill(writing, deleted=10)
        assert deleted_before_build(folder) == 310
        assert len(search(before, "appl")) == 300
        with reading.snapshot() as after:
            assert [search(after, word) for word in ("appl", "pear", "plum")] == oracle
            assert len(search(before, "long")) == 300
    reading.close()
    writing.close()


def test_an_older_snapshot_has_its_own_terms_only(folder: Path) -> None:
    terms = ["appl", "plum", "nowher"]
    reading, writing = engines.open(folder), engines.open(folder)
    with writing.writing(1):
        writing.commit(temporary(300))
    with reading.snapshot() as before:  # has not opened the index yet, and cannot any more
        fill(writing, deleted=10)
        with reading.snapshot() as after:
            assert after.lexical.existing_terms(["long", *terms]) == {"appl", "plum"}
        assert before.lexical.existing_terms(["long", *terms]) == {"long", "appl"}
    reading.close()
    writing.close()


def test_a_term_of_deleted_passages_does_not_exist_after_a_rebuild(folder: Path) -> None:
    engine = engines.open(folder)
    fill(engine, deleted=3)
    with engine.snapshot() as before:
        assert before.lexical.existing_terms(["long", "appl"]) == {"appl"}
        fill(engine, deleted=300)
        with engine.snapshot() as after:
            assert after.lexical.existing_terms(["long", "appl"]) == {"appl"}
        assert before.lexical.existing_terms(["long", "appl"]) == {"appl"}
    engine.close()


def test_a_rebuild_that_fails_is_repeated_later(
    folder: Path, oracle: list[list[ScoredChunk]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.open(folder)
    fill(engine, deleted=0)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(lexical_writer, "stored_passages", no_space)
        fill(engine, deleted=300)
        assert [len(found) for found in ranking(engine)] == [3, 2, 2]
    with engine.writing(1):
        pass
    assert ranking(engine) == oracle
    assert engine.check() == []
    engine.close()


def test_an_emptied_library_has_no_results(folder: Path, oracle: list[list[ScoredChunk]]) -> None:
    engine = engines.open(folder)
    fill(engine, deleted=300)
    with engine.writing(1):
        engine.commit(Batch(removed=tuple(remaining.document.id for remaining in REMAINING)))
    assert ranking(engine) == [[], [], []]
    assert engine.check() == []
    fill(engine, deleted=0)
    assert ranking(engine) == oracle
    engine.close()


def test_terms_of_a_long_document_are_computed_a_passage_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[str] = []
    passage_terms = lexical.passage_terms

    def counted(shared: lexical.DocumentTerms, chunk: Chunk) -> Mapping[str, Sequence[str]]:
        computed.append(chunk.id)
        return passage_terms(shared, chunk)

    monkeypatch.setattr(lexical, "passage_terms", counted)
    terms = lexical.entry_terms(entry("a.md", "apple", "pear", "plum"))
    assert not computed
    assert next(terms)["body"] == "appl"
    assert len(computed) == 1
