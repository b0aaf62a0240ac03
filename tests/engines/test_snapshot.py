"""The cache of snapshots: shared by snapshots of one commit, separate for each commit, bounded."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marklight.engines.embedded import store
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.engines.relational import decode_texts, encode_texts
from marklight.engines.relational import snapshot as relational_snapshot
from marklight.engines.relational.snapshot import BoundedCache
from marklight.model import Batch, Entry, Vectors
from marklight.ports import FIELD_BOOSTS, Snapshot
from marklight.query import Filters
from marklight.text.analyzer import analyze
from tests.contracts.builders import entry, id_of


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    opened = EmbeddedEngine(tmp_path / "index")
    yield opened
    opened.close()


def put(engine: EmbeddedEngine, *entries: Entry) -> None:
    """Commit documents with an orthogonal vector for each passage."""
    digests = tuple(chunk.digest for each in entries for chunk in each.chunks)
    with engine.writing(1):
        engine.commit(Batch(entries=entries))
        rows = np.eye(8, dtype=np.float32)[: len(digests)]
        engine.commit(Batch(vectors=Vectors("m", digests, rows)))


def test_only_missing_keys_are_read() -> None:
    reads: list[list[int]] = []

    def double(keys: list[int]) -> dict[int, int]:
        reads.append(keys)
        return {key: 2 * key for key in keys if key < 9}

    cache = BoundedCache[int, int](10)
    assert cache.get([1, 2], double) == {1: 2, 2: 4}
    assert cache.get([2, 3, 9], double) == {2: 4, 3: 6}
    assert cache.get([1, 2, 3], double) == {1: 2, 2: 4, 3: 6}
    assert reads == [[1, 2], [3, 9]]


def test_the_cache_is_emptied_before_it_exceeds_its_size() -> None:
    def same(keys: list[int]) -> dict[int, int]:
        return {key: key for key in keys}

    cache = BoundedCache[int, int](3)
    cache.get([1, 2], same)
    assert cache.get([2, 3, 4], same) == {2: 2, 3: 3, 4: 4}
    assert cache.known(range(9)) == {3: 3, 4: 4}
    assert cache.get(range(9), same) == same(list(range(9)))
    assert len(cache.known(range(9))) <= 3


def everything(snapshot: Snapshot) -> list[object]:
    """Call every method that caches something."""
    first, second = (f"{name}.md" for name in "ab")
    ids = [
        chunk.id for path in (first, second) for chunk in snapshot.documents.chunks_of(id_of(path))
    ]
    query = np.eye(8, dtype=np.float32)[0]
    return [
        [chunk.text for chunk in snapshot.documents.chunks(ids)],
        snapshot.documents.owners(ids),
        snapshot.documents.modified_times([id_of(first), id_of(second)]),
        snapshot.documents.dates([id_of(first), id_of(second)]),
        snapshot.links.communities([id_of(first), id_of(second)]),
        snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 9),
        snapshot.vectors.search(query, "m", Filters(), 9),
        {id: vector.tolist() for id, vector in snapshot.vectors.get("m", ids).items()},
    ]


def test_snapshots_of_two_commits_do_not_share_cached_values(engine: EmbeddedEngine) -> None:
    put(engine, entry("a.md", "apple one", "apple two", mtime_ns=10**18), entry("b.md", "pear"))
    with engine.snapshot() as old:
        before = everything(old)
        with engine.writing(1):
            engine.commit(Batch(removed=(id_of("b.md"),), communities={id_of("a.md"): 7}))
        put(engine, entry("a.md", "apple three", "pear", mtime_ns=2 * 10**18))
        with engine.snapshot() as new:
            after = everything(new)
            assert all(one != other for one, other in zip(before, after, strict=True))
            assert everything(old) == before
            assert everything(new) == after
    with EmbeddedEngine(engine.folder).snapshot() as fresh:
        assert everything(fresh) == after


def test_more_than_the_cache_holds_can_be_read(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_PASSAGES", "MAX_DOCUMENTS", "MAX_VECTORS"):
        monkeypatch.setattr(relational_snapshot, name, 2)
    put(engine, entry("a.md", "apple one", "apple two", "apple", "a pear"), entry("b.md", "apple"))
    with engine.snapshot() as snapshot:
        assert everything(snapshot) == everything(snapshot)
        assert (
            len(
                snapshot.documents.chunks(
                    [chunk.id for chunk in snapshot.documents.chunks_of(id_of("a.md"))]
                )
            )
            == 4
        )


def test_a_repeated_keyword_search_with_a_lower_limit_returns_the_same_order(
    engine: EmbeddedEngine,
) -> None:
    put(engine, entry("a.md", "apple apple", "apple and a pear"), entry("b.md", "apple"))
    with engine.snapshot() as snapshot:
        every = snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 9)
        assert snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 2) == every[:2]
        assert snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 9) == every
        (only,) = snapshot.lexical.search(
            analyze("apple"), FIELD_BOOSTS, Filters(paths=("b.md",)), 9
        )
        assert only in every
        assert len(snapshot.lexical.search(analyze("pear"), FIELD_BOOSTS, Filters(), 9)) == 1


@pytest.mark.parametrize(
    "values",
    [(), ("",), ("", ""), ("one",), ("one", "two"), ('say "no", "yes"',), ("a\\b", "c"), ("ü\n",)],
)
def test_packed_texts_are_unpacked_unchanged(values: tuple[str, ...]) -> None:
    assert decode_texts(encode_texts(values)) == values


def test_the_cache_of_a_missing_library_does_not_grow(engine: EmbeddedEngine) -> None:
    for _ in range(9):
        with engine.snapshot() as snapshot:
            assert snapshot.status.counts("").documents == 0
    assert len(engine._parts.caches._snapshots) == 1
    put(engine, entry("a.md", "apple"))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("").documents == 1


def test_the_lexical_index_of_a_snapshot_is_freed_when_it_ends(engine: EmbeddedEngine) -> None:
    put(engine, entry("a.md", "alpha"))
    gc.disable()
    try:
        with engine.snapshot() as snapshot:
            assert snapshot.lexical.search(analyze("alpha"), FIELD_BOOSTS, Filters(), 5)
            reader = weakref.ref(snapshot.lexical)
        del snapshot
        assert reader() is None
    finally:
        gc.enable()


def test_a_connection_is_closed_after_many_snapshots(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, entry("a.md", "alpha"))
    monkeypatch.setattr(store, "_MAX_SNAPSHOTS", 2)
    connections = []
    for _ in range(3):
        with engine.snapshot() as snapshot:
            connections.append(snapshot.session.connection)
    first, second, third = connections
    assert first is second is not third
    with pytest.raises(sqlite3.ProgrammingError):
        first.execute("SELECT 1")
