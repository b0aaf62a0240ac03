"""What every engine owes: commits whole or not at all, views that stand still."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marklight.answer import Filters
from marklight.errors import MarklightError
from marklight.model import Batch, Counts, DocumentId, Failure, FileState, Heading, Vectors
from marklight.ports import FIELD_BOOSTS, Engine, IndexedFile, PathRange, Snapshot
from marklight.text import analyze
from tests.contracts.builders import embedding, entry, id_of, link, vector
from tests.contracts.conftest import Open


def commit(engine: Engine, batch: Batch) -> int:
    with engine.writing(1):
        return engine.commit(batch)


def put(engine: Engine, *entries: object) -> int:
    return commit(engine, Batch(entries=tuple(entries)))  # type: ignore[arg-type]


def find(
    snapshot: Snapshot, query: str, filters: Filters | None = None, limit: int = 10
) -> list[str]:
    found = snapshot.lexical.search(analyze(query), FIELD_BOOSTS, filters or Filters(), limit)
    return [snapshot.documents.chunks([each.chunk_id])[0].path for each in found]


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


def test_what_was_committed_is_read_back_as_it_was(engine: Engine) -> None:
    one = entry(
        "guide/auth.md",
        "How tokens expire.",
        "How they are renewed.",
        title="Auth",
        headings=("Auth", "Tokens"),
        merged=("Renewal",),
        code="let token = renew()",
        languages=("rust",),
        description="About tokens",
        keywords=("token", "login"),
        tags=("security/web",),
        aliases=("Sign-in",),
        author="Ann",
        category="howto",
        date="2026-01-31",
        metadata={"status": "draft", "nested": {"list": [1, 2.5, True, None, "ä"]}},
        blocks={"b1": 4},
        remarks=("frontmatter was odd",),
        links=(link("Other"), link("Third", "x/third", "third")),
    )
    assert put(engine, one) == 1
    with engine.snapshot() as snapshot:
        assert snapshot.documents.get(id_of("guide/auth.md")) == one.document
        assert tuple(snapshot.documents.chunks_of(id_of("guide/auth.md"))) == one.chunks
        ids = [one.chunks[1].id, "unknown", one.chunks[0].id]
        assert snapshot.documents.chunks(ids) == [one.chunks[1], one.chunks[0]]
        assert snapshot.documents.section(one.sections[0].id) == (one.document.id, one.sections[0])
        state = one.document.file
        assert snapshot.documents.files() == {
            one.document.id: IndexedFile(state, one.document.digest, "r1")
        }


def test_files_are_told_by_spans_of_their_paths_and_by_their_names(engine: Engine) -> None:
    paths = ["a.md", "a/b.md", "a/é.md", "a-b.md", "b.md", "zoë/x.md"]
    put(engine, *(entry(path, f"words of {path}") for path in paths))
    with engine.snapshot() as snapshot:
        files = snapshot.documents.files()
        ordered = sorted(paths)

        def within(*spans: PathRange) -> list[str]:
            found = snapshot.documents.files(spans)
            assert all(files[id] == each for id, each in found.items())
            return sorted(id.path for id in found)

        collection = id_of("a.md").collection
        for first in (*ordered, "", "a/", "zz"):
            for end in (*ordered, None, "a0"):
                expected = [p for p in ordered if first <= p and (end is None or p < end)]
                assert within(PathRange(collection, first, end)) == expected
        assert within(PathRange("other")) == within() == []
        assert within(PathRange(collection, "b"), PathRange(collection, "", "a/")) == [
            "a-b.md",
            "a.md",
            "b.md",
            "zoë/x.md",
        ]
        some = [id_of("b.md"), id_of("none.md"), id_of("a/é.md")]
        assert snapshot.documents.files_of(some) == {id: files[id] for id in some if id in files}
        assert len(snapshot.documents.files_of(some)) == 2


def test_a_view_stands_still_while_commits_go_on(engine: Engine) -> None:
    old, kept = entry("a.md", "the old words"), entry("b.md", "words that stay")
    put(engine, old, kept)
    commit(engine, embedding(old, kept))
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


def test_a_commit_that_fails_leaves_nothing(engine: Engine) -> None:
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


def test_a_document_is_replaced_whole(engine: Engine) -> None:
    put(engine, entry("a.md", "one", "two", "three"), entry("b.md", "other"))
    put(engine, entry("a.md", "four"))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m") == Counts(2, 2, 0, 0, 2, "m")
        assert [chunk.text for chunk in snapshot.documents.chunks_of(id_of("a.md"))] == ["four"]
        assert (find(snapshot, "three"), find(snapshot, "four")) == ([], ["a.md"])


def test_a_removed_document_is_gone(engine: Engine) -> None:
    gone = entry("a.md", "one", links=(link("b"),))
    put(engine, gone, entry("b.md", "two"))
    commit(engine, Batch(removed=(id_of("a.md"), id_of("never-there.md"))))
    with engine.snapshot() as snapshot:
        assert list(snapshot.documents.files()) == [id_of("b.md")]
        assert snapshot.documents.get(id_of("a.md")) is None
        assert snapshot.documents.chunks([gone.chunks[0].id]) == []
        assert snapshot.documents.section(gone.sections[0].id) is None
        assert snapshot.links.incoming(id_of("b.md")) == []
        assert find(snapshot, "one") == []


def test_two_collections_keep_documents_of_one_path_apart(engine: Engine) -> None:
    put(engine, entry("README.md", "mine"), entry("README.md", "yours", collection="b"))
    commit(engine, Batch(removed=(DocumentId("b", "README.md"),)))
    with engine.snapshot() as snapshot:
        assert list(snapshot.documents.files()) == [id_of("README.md")]


def test_a_path_is_found_in_every_collection_that_has_it(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "mine", mtime_ns=7, collection="z"),
        entry("a.md", "yours", mtime_ns=8),
        entry("x/a.md", "another"),
        entry("A.md", "a third"),
    )
    with engine.snapshot() as snapshot:
        assert snapshot.documents.find_by_path("a.md") == [id_of("a.md"), id_of("a.md", "z")]
        assert snapshot.documents.find_by_path("x/a.md") == [id_of("x/a.md")]
        assert snapshot.documents.find_by_path("none.md") == []
        asked = [id_of("a.md", "z"), id_of("gone.md"), id_of("a.md")]
        assert snapshot.documents.modified_times(asked) == {id_of("a.md", "z"): 7, id_of("a.md"): 8}


def test_touching_changes_the_file_state_and_nothing_else(engine: Engine) -> None:
    one = entry("a.md", "words")
    put(engine, one)
    state = FileState(5, 1_700_000_000_000_000_000)
    commit(engine, Batch(touched=((id_of("a.md"), state), (id_of("no.md"), state))))
    with engine.snapshot() as snapshot:
        assert snapshot.documents.files() == {
            id_of("a.md"): IndexedFile(state, one.document.digest, "r1")
        }
        assert snapshot.documents.get(id_of("a.md")) == replace(one.document, file=state)
        assert find(snapshot, "words", Filters(after="2023-11-14", before="2023-11")) == ["a.md"]


@pytest.mark.parametrize("odd", [2**63, 2**80, -(2**63) - 1])
def test_an_odd_file_time_stops_no_commit(engine: Engine, odd: int) -> None:
    nearest = 2**63 - 1 if odd > 0 else -(2**63)
    put(engine, entry("a.md", "words", mtime_ns=odd), entry("b.md", "words"))
    commit(
        engine,
        Batch(
            touched=((id_of("b.md"), FileState(1, odd)),),
            failures=(Failure(id_of("c.md"), "odd", FileState(1, odd)),),
        ),
    )
    with engine.snapshot() as snapshot:
        assert set(snapshot.documents.modified_times(snapshot.documents.files()).values()) == {
            nearest
        }
        bounds = Filters(after="2200") if odd > 0 else Filters(before="1700")
        assert sorted(find(snapshot, "words", bounds)) == ["a.md", "b.md"]


def test_a_failure_is_kept_until_its_file_succeeds_or_leaves(engine: Engine) -> None:
    failures = (
        Failure(id_of("b.md"), "not text", FileState(1, 2)),
        Failure(id_of("a.md"), "unreadable"),
    )
    commit(engine, Batch(failures=failures))
    with engine.snapshot() as snapshot:
        assert list(snapshot.status.failures()) == [failures[1], failures[0]]
        assert snapshot.status.counts("m").failed == 2
    put(engine, entry("a.md", "readable now"))
    commit(engine, Batch(removed=(id_of("b.md"),)))
    with engine.snapshot() as snapshot:
        assert snapshot.status.failures() == []
        assert snapshot.status.counts("m").failed == 0


def test_a_document_that_fails_later_may_be_removed_and_listed_at_once(engine: Engine) -> None:
    put(engine, entry("a.md", "words"))
    failure = Failure(id_of("a.md"), "became binary")
    commit(engine, Batch(removed=(id_of("a.md"),), failures=(failure,)))
    with engine.snapshot() as snapshot:
        assert (snapshot.documents.files(), list(snapshot.status.failures())) == ({}, [failure])


def test_the_manifest_is_added_to(engine: Engine) -> None:
    commit(engine, Batch(manifest={"model": "a", "parser": "1"}))
    commit(engine, Batch(manifest={"model": "b"}))
    with engine.snapshot() as snapshot:
        assert snapshot.status.manifest() == {"model": "b", "parser": "1"}


def test_an_empty_commit_makes_no_generation(engine: Engine) -> None:
    put(engine, entry("a.md", "words"))
    assert commit(engine, Batch()) == 1


def test_everything_is_there_after_opening_again(reopen: Open) -> None:
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


def test_a_commit_needs_the_writers_place(engine: Engine) -> None:
    with pytest.raises(RuntimeError):
        engine.commit(Batch(manifest={"a": "b"}))


def test_a_sound_library_has_nothing_to_mend(engine: Engine) -> None:
    put(engine, entry("a.md", "one"), entry("b.md", "two"))
    commit(engine, embedding(entry("a.md", "one")))
    put(engine, entry("a.md", "three"))
    assert engine.check() == []


def test_a_passage_stands_between_its_neighbours(engine: Engine) -> None:
    put(engine, entry("a.md", *"vwxyz"), entry("b.md", "q"))
    with engine.snapshot() as snapshot:
        for at, count, expected in [(2, 1, "wxy"), (2, 0, "x"), (0, 2, "vwx"), (4, 9, "vwxyz")]:
            found = snapshot.documents.chunks_around(id_of("a.md"), at, count)
            assert [each.text for each in found] == list(expected)
        assert snapshot.documents.chunks_around(id_of("c.md"), 0, 3) == []


def test_a_document_can_be_had_by_its_text_and_outline_alone(engine: Engine) -> None:
    outline = (Heading(1, "Top", "top", (1, 3)), Heading(2, "Café", "cafe", (2, 3)))
    put(engine, entry("a.md", "x", "y", outline=outline), entry("b.md", "z"))
    with engine.snapshot() as snapshot:
        assert snapshot.documents.text_and_outline(id_of("a.md")) == ("x\n\ny", outline)
        assert snapshot.documents.text_and_outline(id_of("b.md")) == ("z", ())
        assert snapshot.documents.text_and_outline(id_of("c.md")) is None


def test_what_was_odd_about_documents_is_told_in_the_order_of_their_paths(engine: Engine) -> None:
    odd = entry("z.md", "one", remarks=("no end of its frontmatter", "two titles"))
    other = entry("a.md", "two", remarks=("a date that is none",))
    with engine.writing(1):
        engine.commit(Batch(entries=(odd, other, entry("m.md", "three"))))
    with engine.snapshot() as snapshot:
        assert snapshot.status.remarks() == [
            (id_of("a.md"), "a date that is none"),
            (id_of("z.md"), "no end of its frontmatter"),
            (id_of("z.md"), "two titles"),
        ]


def test_a_document_is_from_its_own_date_else_from_its_files(engine: Engine) -> None:
    put(
        engine,
        entry("file.md", "x", mtime_ns=86_400_500_000_000),
        entry("dated.md", "x", mtime_ns=5, date="1970-01-03"),
        entry("undated.md", "x", mtime_ns=1_000_000_000, date="some day"),
    )
    with engine.snapshot() as snapshot:
        assert snapshot.documents.dates([*snapshot.documents.files(), id_of("gone.md")]) == {
            id_of("file.md"): 86_400.5,
            id_of("dated.md"): 2 * 86_400,
            id_of("undated.md"): 1,
        }
    commit(engine, Batch(touched=((id_of("file.md"), FileState(1, 7_000_000_000)),)))
    with engine.snapshot() as snapshot:
        assert snapshot.documents.dates([id_of("file.md")]) == {id_of("file.md"): 7}


def test_communities_take_the_place_of_those_before(engine: Engine) -> None:
    a, b, c = (id_of(f"{name}.md") for name in "abc")
    put(engine, *(entry(id.path, "x") for id in (a, b, c)))
    commit(engine, Batch(communities={a: 1, b: 0, id_of("gone.md"): 4}))
    with engine.snapshot() as before:
        assert before.links.communities([c, b, a, id_of("gone.md")]) == {a: 1, b: 0}
        commit(engine, Batch(communities={c: 2}))
        assert before.links.communities([a, b, c]) == {a: 1, b: 0}
    with engine.snapshot() as snapshot:
        assert snapshot.links.communities([a, b, c]) == {c: 2}
    commit(engine, Batch(communities={}))
    with engine.snapshot() as snapshot:
        assert snapshot.links.communities([a, b, c]) == {}


def test_a_document_stays_in_its_community_until_it_leaves(engine: Engine) -> None:
    a, b = id_of("a.md"), id_of("b.md")
    put(engine, entry("a.md", "x"), entry("b.md", "x"))
    commit(engine, Batch(communities={a: 1, b: 2}))
    commit(engine, Batch(entries=(entry("a.md", "other"),), removed=(b,)))
    put(engine, entry("b.md", "x"))
    with engine.snapshot() as snapshot:
        assert snapshot.links.communities([a, b]) == {a: 1}
