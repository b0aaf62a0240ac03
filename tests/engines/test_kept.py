"""What was read is read again only by views of another commit, and does not pile up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marklight.answer import Filters
from marklight.engines.embedded import snapshot as snapshots
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.engines.embedded.records import texts, unpacked
from marklight.engines.embedded.snapshot import BoundedCache
from marklight.model import Batch, Entry, Vectors
from marklight.ports import FIELD_BOOSTS, Snapshot
from marklight.text import analyze
from tests.contracts.builders import entry, id_of


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    opened = EmbeddedEngine(tmp_path / "index")
    yield opened
    opened.close()


def put(engine: EmbeddedEngine, *entries: Entry) -> None:
    """Each passage has a vector of its own direction, by its place."""
    digests = tuple(chunk.digest for each in entries for chunk in each.chunks)
    with engine.writing(1):
        engine.commit(Batch(entries=entries))
        rows = np.eye(8, dtype=np.float32)[: len(digests)]
        engine.commit(Batch(vectors=Vectors("m", digests, rows)))


def test_only_what_is_not_known_is_read() -> None:
    asked: list[list[int]] = []

    def double(keys: list[int]) -> dict[int, int]:
        asked.append(keys)
        return {key: 2 * key for key in keys if key < 9}

    recent = BoundedCache[int, int](10)
    assert recent.get([1, 2], double) == {1: 2, 2: 4}
    assert recent.get([2, 3, 9], double) == {2: 4, 3: 6}
    assert recent.get([1, 2, 3], double) == {1: 2, 2: 4, 3: 6}
    assert asked == [[1, 2], [3, 9]]


def test_all_is_forgotten_before_it_becomes_too_much() -> None:
    def same(keys: list[int]) -> dict[int, int]:
        return {key: key for key in keys}

    recent = BoundedCache[int, int](3)
    recent.get([1, 2], same)
    assert recent.get([2, 3, 4], same) == {2: 2, 3: 3, 4: 4}
    assert recent.known(range(9)) == {3: 3, 4: 4}
    assert recent.get(range(9), same) == same(list(range(9)))
    assert len(recent.known(range(9))) <= 3


def everything(snapshot: Snapshot) -> list[object]:
    """What a view says in all the ways that keep something."""
    first, second = (f"{name}.md" for name in "ab")
    ids = [
        chunk.id for path in (first, second) for chunk in snapshot.documents.chunks_of(id_of(path))
    ]
    question = np.eye(8, dtype=np.float32)[0]
    return [
        [chunk.text for chunk in snapshot.documents.chunks(ids)],
        snapshot.documents.owners(ids),
        snapshot.documents.modified_times([id_of(first), id_of(second)]),
        snapshot.documents.dates([id_of(first), id_of(second)]),
        snapshot.links.communities([id_of(first), id_of(second)]),
        snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 9),
        snapshot.vectors.search(question, "m", Filters(), 9),
        {id: vector.tolist() for id, vector in snapshot.vectors.get("m", ids).items()},
    ]


def test_views_of_two_commits_keep_apart_what_they_read(engine: EmbeddedEngine) -> None:
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


def test_much_more_than_is_kept_can_be_read(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_PASSAGES", "MAX_DOCUMENTS", "MAX_VECTORS"):
        monkeypatch.setattr(snapshots, name, 2)
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


def test_fewer_by_words_are_the_first_of_more(engine: EmbeddedEngine) -> None:
    put(engine, entry("a.md", "apple apple", "apple and a pear"), entry("b.md", "apple"))
    with engine.snapshot() as snapshot:
        all_of_them = snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 9)
        assert (
            snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 2) == all_of_them[:2]
        )
        assert snapshot.lexical.search(analyze("apple"), FIELD_BOOSTS, Filters(), 9) == all_of_them
        (only,) = snapshot.lexical.search(
            analyze("apple"), FIELD_BOOSTS, Filters(paths=("b.md",)), 9
        )
        assert only in all_of_them
        assert len(snapshot.lexical.search(analyze("pear"), FIELD_BOOSTS, Filters(), 9)) == 1


@pytest.mark.parametrize(
    "values",
    [(), ("",), ("", ""), ("one",), ("one", "two"), ('say "no", "yes"',), ("a\\b", "c"), ("ü\n",)],
)
def test_several_texts_come_back_as_they_were(values: tuple[str, ...]) -> None:
    assert unpacked(texts(values)) == values


def test_where_no_library_was_made_nothing_piles_up_either(engine: EmbeddedEngine) -> None:
    for _ in range(9):
        with engine.snapshot() as snapshot:
            assert snapshot.status.counts("").documents == 0
    assert len(engine._parts.caches) == 1
    put(engine, entry("a.md", "apple"))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("").documents == 1
