"""One view of the embedded engine, asked by many threads at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marklight import engines
from marklight.answer import Filters
from marklight.engines.embedded import lexical_repair
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.engines.embedded.vector_files import VectorFile
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Engine, ScoredChunk, Snapshot
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


def ask(snapshot: Snapshot, number: int) -> object:
    """All that retrievers ask for, most of it with a filter that SQLite must call Python for."""
    some = Filters(paths=(f"part{number % 5}/*.md",)) if number % 4 else Filters()
    words = snapshot.lexical.search([f"word{number}", "pear"], FIELD_BOOSTS, some, 9)
    near = snapshot.vectors.search(vector(PAGES[number].chunks[0].digest), "m", some, 9)
    return words, near, snapshot.documents.chunks([each.chunk_id for each in (*words, *near)])


def same_from_all_threads(engine: Engine) -> None:
    with engine.snapshot() as snapshot, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: ask(snapshot, number % 40), range(160)))
        assert found == [ask(snapshot, number % 40) for number in range(160)]


def test_threads_share_a_view_that_has_loaded_nothing_yet(folder: Path) -> None:
    same_from_all_threads(engines.open(folder))


def test_nobody_is_told_what_another_thread_asked_for_meanwhile(folder: Path) -> None:
    class Interrupted(str):
        """A word that is compared while somebody else asks."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            asked("appl")
            return str.__eq__(self, other)

    def asked(word: str) -> list[ScoredChunk]:
        return snapshot.lexical.search([word], FIELD_BOOSTS, Filters(), 9)

    with engines.open(folder).snapshot() as snapshot:
        pears = asked("pear")
        assert pears != asked("appl")
        assert asked("pear") == pears
        assert asked(Interrupted("pear")) == pears


def test_each_piece_of_news_is_told_to_one_of_many(tmp_path: Path) -> None:
    pieces = [f"piece {number}" for number in range(5000)]
    engine, usual = EmbeddedEngine(tmp_path / "library"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(20):
                engine._parts.lexical.notices.extend(pieces)
                told = threads.map(lambda _: engine.take_notices(), range(8))
                assert sorted(piece for some in told for piece in some) == sorted(pieces)
    finally:
        sys.setswitchinterval(usual)


def damage_words(folder: Path) -> None:
    for path in (folder / "words").iterdir():
        path.write_bytes(b"nothing")


def damage_vectors(folder: Path) -> None:
    for path in (folder / "vectors").iterdir():
        path.unlink()


@pytest.mark.parametrize("damage", [damage_words, damage_vectors])
def test_what_is_damaged_is_mended_by_one_of_them(
    folder: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mended: list[str] = []
    for owner, name in (
        (lexical_repair, "_rebuild"),
        (lexical_repair, "build_in_memory"),
        (VectorFile, "rebuild"),
    ):
        made = getattr(owner, name)

        def note(*given: object, made: Callable[..., object] = made) -> object:
            mended.append(made.__name__)
            return made(*given)

        monkeypatch.setattr(owner, name, note)
    damage(folder)
    same_from_all_threads(engines.open(folder))
    assert len(mended) == 1


def test_a_closed_engine_says_so(folder: Path) -> None:
    engine = engines.open(folder)
    engine.close()
    with pytest.raises(StoreError, match="has been closed"), engine.snapshot():
        raise AssertionError("there is nothing to see")
    with pytest.raises(StoreError, match="has been closed"), engine.writing(0):
        engine.commit(Batch(manifest={"a": "b"}))
