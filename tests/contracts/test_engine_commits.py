"""Contract of engines: atomic commits, isolated snapshots, the writer lock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marklight.errors import MarklightError
from marklight.model import Batch, Counts, Failure, Vectors
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts.builders import commit, embedding, entry, find, id_of, link, put, vector
from tests.contracts.conftest import Open


def test_a_new_library_is_empty(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m") == Counts(model="m")
        assert snapshot.documents.files() == {}
        assert snapshot.documents.modified_times([id_of("a.md")]) == {}
        assert snapshot.documents.find_by_path("a.md") == []
        assert snapshot.metadata.tags() == {}
        assert snapshot.status.failures() == []
        assert snapshot.status.manifest() == {}
        assert snapshot.status.models() == {}
        assert snapshot.documents.get(id_of("a.md")) is None
        assert snapshot.documents.chunks(["x"]) == []
        assert snapshot.documents.section("x") is None
        assert snapshot.links.unresolved() == []
        assert snapshot.vectors.pending("m", 10) == []
        assert find(snapshot, "anything") == []
        assert snapshot.vectors.search(vector("x"), "m", Filters(), 10) == []
        assert snapshot.documents.find_by_title("anything", Filters(), 10) == []
        assert snapshot.vocabulary.nearest_terms(vector("x"), "m", 10) == []
        assert snapshot.vocabulary.terms_without_vector("m", 10) == []
        assert (
            snapshot.vectors.get("m", ["x"]) == snapshot.vocabulary.term_vectors("m", ["x"]) == {}
        )
        assert (
            snapshot.documents.dates([id_of("a.md")])
            == snapshot.links.communities([id_of("a.md")])
            == {}
        )
        assert snapshot.links.last_changed() == 0


def test_a_snapshot_does_not_change_while_others_commit(engine: Engine) -> None:
    old, unchanged = entry("a.md", "the old words"), entry("b.md", "words that stay")
    put(engine, old, unchanged)
    commit(engine, embedding(old, unchanged))
    with engine.snapshot() as before:
        first = before.vectors.search(vector("q"), "m", Filters(), 10)
        for turn in range(3):
            new = entry("a.md", f"the new words, turn {turn}")
            put(engine, new)
            commit(engine, embedding(new))
        commit(engine, Batch(removed=(id_of("b.md"),)))
        assert before.generation == 2
        assert before.status.counts("m") == Counts(2, 2, 2, 0, 2, "m")
        assert sorted(find(before, "words")) == ["a.md", "b.md"]
        assert find(before, "new") == []
        assert before.vectors.search(vector("q"), "m", Filters(), 10) == first
        assert before.documents.chunks_of(id_of("a.md")) == list(old.chunks)
        with engine.snapshot() as after:
            assert find(after, "words") == ["a.md"]
            assert find(after, "old") == []
            assert find(after, "new") == ["a.md"]
            assert len(after.vectors.search(vector("q"), "m", Filters(), 10)) == 1


def test_a_failed_commit_changes_nothing(engine: Engine) -> None:
    put(engine, entry("a.md", "first"))
    commit(engine, embedding(entry("a.md", "first")))
    bad = Vectors("m", ("other",), np.ones((1, 3), dtype=np.float32))
    batch = Batch(
        entries=(entry("b.md", "second"),),
        removed=(id_of("a.md"),),
        failures=(Failure(id_of("c.md"), "broken"),),
        vectors=bad,
        manifest={"model": "m"},
    )
    with pytest.raises(MarklightError):
        commit(engine, batch)
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m") == Counts(1, 1, 1, 0, 2, "m")
        assert (find(snapshot, "first"), find(snapshot, "second")) == (["a.md"], [])
        assert snapshot.status.manifest() == {}
    put(engine, entry("c.md", "third"))
    with engine.snapshot() as snapshot:
        assert (find(snapshot, "second"), find(snapshot, "third")) == ([], ["c.md"])
        assert snapshot.status.counts("m") == Counts(2, 2, 1, 0, 3, "m")


def test_an_empty_commit_makes_no_generation(engine: Engine) -> None:
    put(engine, entry("a.md", "words"))
    assert commit(engine, Batch()) == 1


def test_an_entry_made_from_a_text_that_changed_is_left_out(engine: Engine) -> None:
    old, new = entry("a.md", "one", "two"), entry("a.md", "three")
    put(engine, old, entry("b.md", "four"))
    again = replace(entry("a.md", "one two"), replaces=old.document.digest)
    gone = replace(entry("c.md", "five"), replaces=entry("c.md", "five").document.digest)
    commit(engine, Batch(entries=(again, gone)))
    with engine.snapshot() as snapshot:
        assert [each.text for each in snapshot.documents.chunks_of(id_of("a.md"))] == ["one two"]
        assert snapshot.documents.get(id_of("c.md")) is None
    put(engine, new)
    commit(engine, Batch(entries=(again, entry("b.md", "six"))))
    with engine.snapshot() as snapshot:
        assert [each.text for each in snapshot.documents.chunks_of(id_of("a.md"))] == ["three"]
        assert [each.text for each in snapshot.documents.chunks_of(id_of("b.md"))] == ["six"]
        assert snapshot.status.counts("m").chunks == 2
    assert engine.check() == []


def test_everything_is_there_after_reopening(reopen: Open) -> None:
    first = reopen()
    one = entry("a.md", "lasting words", links=(link("nowhere"),))
    put(first, one)
    commit(first, embedding(one))
    first.close()
    with reopen().snapshot() as snapshot:
        assert snapshot.generation == 2
        assert snapshot.status.counts("m") == Counts(1, 1, 1, 0, 2, "m")
        assert find(snapshot, "lasting") == ["a.md"]
        assert len(snapshot.links.unresolved()) == 1
        assert (
            snapshot.vectors.search(vector(one.chunks[0].digest), "m", Filters(), 1)[0].score
            > 0.9999
        )


def test_a_commit_needs_the_writer_lock(engine: Engine) -> None:
    with pytest.raises(RuntimeError):
        engine.commit(Batch(manifest={"a": "b"}))


def test_a_check_of_a_sound_library_reports_nothing(engine: Engine) -> None:
    put(engine, entry("a.md", "one"), entry("b.md", "two"))
    commit(engine, embedding(entry("a.md", "one")))
    put(engine, entry("a.md", "three"))
    assert engine.check() == []
