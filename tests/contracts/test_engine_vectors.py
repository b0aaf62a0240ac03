"""Contract of `VectorReader`: exact cosines, shared and pending vectors."""

from __future__ import annotations

import numpy as np
import pytest

from marklight.errors import StoreError
from marklight.model import Batch, Counts, Vectors
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts.builders import commit, embedding, entry, id_of, put, vector, vectors

ROUNDING = 1 / 254
"""Half a step of quantisation to 127 steps."""


def test_pending_texts_are_distinct_and_oldest_first(engine: Engine) -> None:
    put(engine, entry("a.md", "one", "same"), entry("b.md", "same", "two"))
    put(engine, entry("c.md", "three"))
    put(engine, entry("a.md", "one", "same", "four"))
    with engine.snapshot() as snapshot:
        pending = snapshot.vectors.pending("m", 10)
        assert [each.chunk.text for each in pending] == ["same", "two", "three", "one", "four"]
        assert all(each.digest == each.chunk.digest for each in pending)
        assert [each.chunk.text for each in snapshot.vectors.pending("m", 2)] == ["same", "two"]
        assert snapshot.vectors.pending("m", 0) == []


def test_digests_without_a_vector_are_missing_whether_or_not_a_passage_has_them(
    engine: Engine,
) -> None:
    put(engine, entry("a.md", "one", "two"))
    commit(engine, embedding(entry("a.md", "two", "three")))
    digests = [each.digest for each in entry("a.md", "four", "three", "one", "two").chunks]
    with engine.snapshot() as snapshot:
        assert snapshot.vectors.missing("m", digests) == [digests[0], digests[2]]
        assert snapshot.vectors.missing("other", digests) == digests
        assert snapshot.vectors.missing("m", []) == []


def test_passages_with_the_digests_of_unused_vectors_are_found_at_once(engine: Engine) -> None:
    old, new = entry("a.md", "one"), entry("a.md", "two", "three")
    put(engine, old)
    commit(engine, embedding(old))
    commit(engine, embedding(new))
    assert engine.count_unused_vectors() == 2
    put(engine, new)
    assert engine.count_unused_vectors() == 1
    with engine.snapshot() as snapshot:
        counts = snapshot.status.counts("m")
        assert (counts.embedded, counts.pending) == (2, 0)
        nearest = snapshot.vectors.search(vector("two"), "m", Filters(), 5)
        assert {each.chunk_id for each in nearest} == {each.id for each in new.chunks}


def test_requested_passages_are_pending_first(engine: Engine) -> None:
    one, two = entry("a.md", "one", "two", "three"), entry("b.md", "four")
    put(engine, one, two)
    first = (two.chunks[0].id, "unknown", one.chunks[2].id)
    with engine.snapshot() as snapshot:
        pending = snapshot.vectors.pending("m", 3, first)
        assert [each.chunk.text for each in pending] == ["four", "three", "one"]
    commit(engine, embedding(two))
    with engine.snapshot() as snapshot:
        pending = snapshot.vectors.pending("m", 9, first)
        assert [each.chunk.text for each in pending] == ["three", "one", "two"]


def test_embedding_resumes_where_it_stopped(engine: Engine) -> None:
    put(engine, *(entry(f"{at}.md", f"text {at}", f"more {at}") for at in range(7)))
    seen: list[str] = []
    while True:
        with engine.snapshot() as snapshot:
            pending = snapshot.vectors.pending("m", 3)
            assert snapshot.status.counts("m").embedded == len(seen)
        if not pending:
            break
        # Out of order, as a run that sorts by length would.
        digests = [each.digest for each in reversed(pending)]
        seen += digests
        commit(engine, Batch(vectors=vectors(digests)))
    assert len(seen) == len(set(seen)) == 14


def test_a_moved_text_keeps_its_vector(engine: Engine) -> None:
    put(engine, entry("old/a.md", "one", "two"), entry("b.md", "three"))
    commit(engine, embedding(entry("old/a.md", "one", "two")))
    moved = Batch(entries=(entry("new/a.md", "one", "two"),), removed=(id_of("old/a.md"),))
    commit(engine, moved)
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m") == Counts(2, 3, 2, 0, 3, "m")
        assert [each.chunk.text for each in snapshot.vectors.pending("m", 9)] == ["three"]
        best = snapshot.vectors.search(vector(moved.entries[0].chunks[1].digest), "m", Filters(), 1)
        assert best[0].chunk_id == moved.entries[0].chunks[1].id
        assert best[0].score == pytest.approx(1.0, abs=1e-5)
    assert engine.count_unused_vectors() == 0


def test_a_text_that_is_removed_and_added_again_keeps_its_vector(engine: Engine) -> None:
    put(engine, entry("a.md", "one"))
    commit(engine, embedding(entry("a.md", "one")))
    put(engine, entry("a.md", "two"))
    assert engine.count_unused_vectors() == 1
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").embedded == 0
        assert snapshot.status.models() == {}
        assert snapshot.vectors.search(vector("q"), "m", Filters(), 5) == []
    put(engine, entry("a.md", "one"))
    assert engine.count_unused_vectors() == 0
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").embedded == 1
        assert snapshot.vectors.pending("m", 9) == []


def test_repeated_texts_share_a_vector_and_are_all_returned(engine: Engine) -> None:
    both = entry("a.md", "same"), entry("b.md", "same")
    put(engine, *both)
    commit(engine, embedding(both[0]))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").embedded == 2
        results = snapshot.vectors.search(vector("q"), "m", Filters(), 5)
        assert [each.chunk_id for each in results] == sorted(each.chunks[0].id for each in both)
        assert results[0].score == results[1].score


def test_the_best_passage_of_each_document_is_returned(engine: Engine) -> None:
    one = entry("a.md", "far", "near", "near")
    two, three = entry("b.md", "other"), entry("c.md", "without a vector")
    put(engine, one, two, three)
    commit(engine, embedding(one, two))
    query = vector(one.chunks[1].digest)
    with engine.snapshot() as snapshot:
        results = snapshot.vectors.best_per_document(query, "m", Filters())
        assert {id.path: each.chunk_id for id, each in results.items()} == {
            "a.md": one.chunks[1].id,  # the first of two with the same words
            "b.md": two.chunks[0].id,
        }
        assert results[id_of("a.md")].score == pytest.approx(1.0)
        assert set(snapshot.vectors.best_per_document(query, "m", Filters(paths=("b.md",)))) == {
            id_of("b.md")
        }
        few = Filters(documents=(id_of("a.md"), id_of("c.md")), phrases=("far",))
        assert (
            snapshot.vectors.best_per_document(query, "m", few)[id_of("a.md")].chunk_id
            == one.chunks[0].id
        )
        assert snapshot.vectors.best_per_document(query, "m", Filters(paths=("none.md",))) == {}
        assert snapshot.vectors.best_per_document(query, "n", Filters()) == {}


def test_vectors_of_several_models_are_separate(engine: Engine) -> None:
    one, two = entry("a.md", "one"), entry("b.md", "two")
    put(engine, one, two)
    commit(engine, embedding(one, two))
    commit(engine, embedding(one, model="n"))
    with engine.snapshot() as snapshot:
        assert snapshot.status.models() == {"m": 2, "n": 1}
        assert (snapshot.status.counts("m").embedded, snapshot.status.counts("n").embedded) == (
            2,
            1,
        )
        assert [each.digest for each in snapshot.vectors.pending("n", 9)] == [two.chunks[0].digest]
        assert len(snapshot.vectors.search(vector("q"), "m", Filters(), 9)) == 2
        assert len(snapshot.vectors.search(vector("q"), "n", Filters(), 9)) == 1


def test_cleaning_deletes_unused_vectors_only(engine: Engine) -> None:
    one, two, gone = entry("a.md", "one"), entry("b.md", "two"), entry("c.md", *"wxyz")
    put(engine, one, two, gone)
    commit(engine, embedding(one, two, gone))
    commit(engine, embedding(one, two, model="n"))
    commit(engine, Batch(removed=(id_of("c.md"),)))
    assert engine.count_unused_vectors() == 4
    with engine.snapshot() as before:
        expected = before.vectors.search(vector("q"), "m", Filters(), 9)
        other = before.vectors.search(vector("q"), "n", Filters(), 9)
        assert engine.clean(keep=["m"]) == 6
        assert before.status.models() == {"m": 2, "n": 2}
        assert before.vectors.search(vector("q"), "n", Filters(), 9) == other
    assert (engine.count_unused_vectors(), engine.clean(keep=["m"])) == (0, 0)
    with engine.snapshot() as snapshot:
        assert snapshot.status.models() == {"m": 2}
        assert snapshot.vectors.search(vector("q"), "m", Filters(), 9) == expected
    put(engine, gone)
    commit(engine, embedding(gone))
    with engine.snapshot() as snapshot:
        assert len(snapshot.vectors.search(vector("q"), "m", Filters(), 9)) == 6
        assert snapshot.vectors.pending("m", 9) == []
    assert engine.check() == []


def test_scores_are_cosines(engine: Engine) -> None:
    entries = [entry("a.md", "one"), entry("b.md", "two"), entry("c.md", "zero")]
    put(engine, *entries)
    digests = tuple(each.chunks[0].digest for each in entries)
    rows = np.array([[3, 4], [-2, 0], [0, 0]], dtype=np.float32)
    commit(engine, Batch(vectors=Vectors("m", digests, rows)))
    with engine.snapshot() as snapshot:
        results = snapshot.vectors.search(np.array([10, 0], dtype=np.float32), "m", Filters(), 9)
        assert [each.score for each in results] == pytest.approx([3 / 5, 0, -1], abs=ROUNDING)


def test_a_query_vector_of_another_dimension_is_an_error(engine: Engine) -> None:
    put(engine, entry("a.md", "one"))
    commit(engine, embedding(entry("a.md", "one")))
    with engine.snapshot() as snapshot, pytest.raises(StoreError):
        snapshot.vectors.search(np.ones(3, dtype=np.float32), "m", Filters(), 9)


def test_a_vector_committed_twice_counts_once(engine: Engine) -> None:
    one = entry("a.md", "one")
    put(engine, one)
    digest = one.chunks[0].digest
    commit(engine, Batch(vectors=vectors([digest, digest])))
    commit(engine, Batch(vectors=vectors([digest])))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").embedded == 1
        assert len(snapshot.vectors.search(vector("q"), "m", Filters(), 9)) == 1


def test_vectors_of_passages_are_unit_vectors(engine: Engine) -> None:
    one, two = entry("a.md", "x", "y", "x"), entry("b.md", "z")
    put(engine, one, two)
    digests = (one.chunks[1].digest, one.chunks[0].digest)
    commit(engine, Batch(vectors=Vectors("m", digests, np.array([[0, 3], [4, 3]], np.float32))))
    ids = [chunk.id for chunk in (*one.chunks, *two.chunks)]
    with engine.snapshot() as snapshot:
        known = snapshot.vectors.get("m", [*ids, "unknown"])
        assert snapshot.vectors.get("other", ids) == snapshot.vectors.get("m", []) == {}
    assert known.keys() == set(ids[:3])
    assert known[ids[1]].tolist() == [0, 1]
    # 4 and 3 are the sides of a triangle whose long one is 5; two passages have this one text.
    assert known[ids[0]] == pytest.approx([0.8, 0.6], abs=ROUNDING)
    assert known[ids[2]] == pytest.approx([0.8, 0.6], abs=ROUNDING)


def test_a_snapshot_keeps_its_vectors(engine: Engine) -> None:
    one = entry("a.md", "x")
    put(engine, one)
    with engine.snapshot() as before:
        commit(engine, embedding(one))
        assert before.vectors.get("m", [one.chunks[0].id]) == {}
    with engine.snapshot() as after:
        commit(engine, Batch(removed=(id_of("a.md"),)))
        assert after.vectors.get("m", [one.chunks[0].id]).keys() == {one.chunks[0].id}
