"""Concurrent use of one snapshot of the embedded engine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded import lexical_writer, vector_files
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Engine, ScoredChunk, Snapshot
from marklight.query import Filters
from tests.contracts.builders import embedding, entry, vector

PAGES = [entry(f"part{at % 5}/{at}.md", f"word{at} apple", f"pear word{at}") for at in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    engine = engines.open(tmp_path / "library")
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(PAGES)))
        engine.commit(embedding(*PAGES))
    engine.close()
    return tmp_path / "library"


def search(snapshot: Snapshot, number: int) -> object:
    """Run the queries of all retrievers, most of them with a filter for which SQLite calls Python."""
    filters = Filters(paths=(f"part{number % 5}/*.md",)) if number % 4 else Filters()
    lexical = snapshot.lexical.search([f"word{number}", "pear"], FIELD_BOOSTS, filters, 9)
    nearest = snapshot.vectors.search(vector(PAGES[number].chunks[0].digest), "m", filters, 9)
    ids = [candidate.chunk_id for candidate in (*lexical, *nearest)]
    return lexical, nearest, snapshot.documents.chunks(ids)


def check_all_threads(engine: Engine) -> None:
    """Compare the results of concurrent searches with those of one thread."""
    with engine.snapshot() as snapshot, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: search(snapshot, number % 40), range(160)))
        assert results == [search(snapshot, number % 40) for number in range(160)]


def test_threads_share_a_snapshot_that_has_loaded_nothing_yet(folder: Path) -> None:
    check_all_threads(engines.open(folder))


def test_concurrent_queries_do_not_mix_their_results(folder: Path) -> None:
    class Interrupted(str):
        """A term during whose comparison another query runs."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            results("appl")
            return str.__eq__(self, other)

    def results(term: str) -> list[ScoredChunk]:
        return snapshot.lexical.search([term], FIELD_BOOSTS, Filters(), 9)

    with engines.open(folder).snapshot() as snapshot:
        pears = results("pear")
        assert pears != results("appl")
        assert results("pear") == pears
        assert results(Interrupted("pear")) == pears


def test_each_notice_is_returned_to_one_thread_only(tmp_path: Path) -> None:
    notices = [f"notice {number}" for number in range(5000)]
    engine, interval = EmbeddedEngine(tmp_path / "library"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(20):
                engine._parts.lexical.notices.extend(notices)
                taken = threads.map(lambda _: engine.take_notices(), range(8))
                assert sorted(notice for some in taken for notice in some) == sorted(notices)
    finally:
        sys.setswitchinterval(interval)


def damage_lexical_index(folder: Path) -> None:
    for path in folder.glob("lexical/*/*"):
        path.write_bytes(b"nothing")


def damage_vectors(folder: Path) -> None:
    for path in (folder / "vectors").iterdir():
        path.unlink()


@pytest.mark.parametrize("damage", [damage_lexical_index, damage_vectors])
def test_one_thread_repairs_what_is_damaged(
    folder: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    repairs: list[str] = []
    for owner, name in (
        (lexical_writer, "rebuild"),
        (lexical_writer, "build_in_memory"),
        (vector_files, "discard"),
    ):
        original = getattr(owner, name)

        def record(*args: object, original: Callable[..., object] = original) -> object:
            repairs.append(original.__name__)
            return original(*args)

        monkeypatch.setattr(owner, name, record)
    damage(folder)
    check_all_threads(engines.open(folder))
    assert len(repairs) == 1


def test_using_a_closed_engine_is_an_error(folder: Path) -> None:
    engine = engines.open(folder)
    engine.close()
    with pytest.raises(StoreError, match="has been closed"), engine.snapshot():
        raise AssertionError("the snapshot was opened")
    with pytest.raises(StoreError, match="has been closed"), engine.writing(0):
        engine.commit(Batch(manifest={"a": "b"}))
