"""Contract of the document reader: documents, files, passages, and exact titles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marklight.model import Batch, Counts, DocumentId, Entry, Failure, FileState, Heading
from marklight.ports import Engine, IndexedFile, ScoredChunk
from marklight.query import Filters
from tests.contracts.builders import commit, entry, find, id_of, link, put


def with_headings(one: Entry, *headings: tuple[str, ...]) -> Entry:
    """Return the document with the given headings above each passage."""
    chunks = (
        replace(chunk, headings=above) for chunk, above in zip(one.chunks, headings, strict=True)
    )
    return replace(one, chunks=tuple(chunks))


def titled(
    engine: Engine, name: str, filters: Filters | None = None, limit: int = 9
) -> list[ScoredChunk]:
    with engine.snapshot() as snapshot:
        return snapshot.documents.find_by_title(name, filters or Filters(), limit)


@pytest.mark.parametrize(
    "name",
    ["Café Guide", "cafe guide", "  CAFÉ \t guide\n", "Coffee", "menü.md", "MENU", "menu.md"],
)
def test_a_document_is_found_by_title_alias_or_file_name(engine: Engine, name: str) -> None:
    one = entry("food/menü.md", "one", "two", title="Café Guide", aliases=("Coffee", "Kaffee"))
    put(engine, one, entry("food/other.md", "Café Guide", title="Café Guide and more"))
    assert titled(engine, name) == [ScoredChunk(one.chunks[0].id, 1.0)]


@pytest.mark.parametrize("name", ["", "  ", "guide", "food/menu.md", "food", "one"])
def test_a_part_of_a_title_does_not_match(engine: Engine, name: str) -> None:
    put(engine, entry("food/menu.md", "one", title="Café guide", headings=("",)))
    assert titled(engine, name) == []


def test_a_heading_finds_the_first_passage_of_its_section(engine: Engine) -> None:
    one = with_headings(
        entry("a.md", "0", "1", "2", "3", "4"),
        (),
        ("Setup", "Linux"),
        ("Setup", "Linux"),
        ("Setup", "Windows"),
        ("Use", "Linux"),
    )
    put(engine, one)
    ids = [chunk.id for chunk in one.chunks]
    assert titled(engine, "windows") == [ScoredChunk(ids[3], 0.5)]
    # No passage is about nothing but the setup: it begins where its first section does.
    assert titled(engine, "Setup") == [ScoredChunk(ids[1], 0.5)]
    assert titled(engine, "linux") == [ScoredChunk(id, 0.5) for id in sorted((ids[1], ids[4]))]


def test_a_merged_section_is_found_in_the_passage_that_contains_it(engine: Engine) -> None:
    one = entry("a.md", "0", "1", headings=("Options",), merged=("--Top  N", "--mode"))
    put(engine, one)
    assert titled(engine, "--top n") == [ScoredChunk(one.chunks[0].id, 0.5)]


def test_a_title_scores_higher_than_a_heading(engine: Engine) -> None:
    # The title goes to the passage whose id comes last, so that the order of ids would be wrong.
    first, last = sorted(("a.md", "b.md"), key=lambda path: entry(path, "0").chunks[0].id)
    one = entry(last, "0", title="Setup", headings=("Setup",))
    two = entry(first, "0", headings=("Setup",))
    put(engine, two, one)
    assert titled(engine, "setup") == [
        ScoredChunk(one.chunks[0].id, 1.0),
        ScoredChunk(two.chunks[0].id, 0.5),
    ]
    assert titled(engine, "setup", limit=1) == [ScoredChunk(one.chunks[0].id, 1.0)]
    assert titled(engine, "setup", limit=0) == []


def test_a_title_finds_the_first_passage_that_matches_the_filters(engine: Engine) -> None:
    plain, coded = entry("a.md", "0", "1", "2"), entry("a.md", "0", "1", "2", languages=("go",))
    mixed = replace(plain, chunks=(*plain.chunks[:1], *coded.chunks[1:]))
    one = replace(mixed, document=replace(mixed.document, title="Setup"))
    two = entry("b.md", "0", title="Setup")
    put(engine, one, two)
    assert titled(engine, "Setup", Filters(languages=("Go",))) == [
        ScoredChunk(one.chunks[1].id, 1.0)
    ]
    assert titled(engine, "Setup", Filters(paths=("b.md",))) == [ScoredChunk(two.chunks[0].id, 1.0)]
    assert titled(engine, "Setup", Filters(exclude=("b.md",))) == [
        ScoredChunk(one.chunks[0].id, 1.0)
    ]
    assert titled(engine, "Setup", Filters(paths=("c.md",))) == []


def test_titles_are_added_and_removed_with_their_documents(engine: Engine) -> None:
    put(engine, entry("a.md", "0", title="Old", headings=("Part",)))
    with engine.snapshot() as before:
        put(engine, entry("a.md", "0", title="New"))
        assert titled(engine, "Old") == titled(engine, "Part") == []
        assert (
            len(titled(engine, "New"))
            == len(before.documents.find_by_title("Old", Filters(), 9))
            == 1
        )
    commit(engine, Batch(removed=(id_of("a.md"),)))
    assert titled(engine, "New") == []


def test_a_committed_document_is_read_back_unchanged(engine: Engine) -> None:
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
        language="de",
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


def test_every_change_of_documents_has_another_version(engine: Engine) -> None:
    versions = []
    for batch in (
        Batch(),
        Batch(entries=(entry("a.md", "one"), entry("b.md", "two"))),
        Batch(entries=(entry("a.md", "three"),)),
        Batch(removed=(id_of("b.md"),)),
        Batch(entries=(entry("b.md", "two"),)),
    ):
        with engine.writing(1):
            engine.commit(batch)
        with engine.snapshot() as snapshot:
            versions.append(snapshot.status.documents_version())
    assert len(set(versions)) == len(versions)


def test_files_are_listed_by_ids(engine: Engine) -> None:
    paths = ["a.md", "a/b.md", "a/é.md", "a-b.md", "b.md", "zoë/x.md"]
    put(engine, *(entry(path, f"words of {path}") for path in paths))
    with engine.snapshot() as snapshot:
        files = snapshot.documents.files()
        some = [id_of("b.md"), id_of("none.md"), id_of("a/é.md")]
        assert snapshot.documents.files_of(some) == {id: files[id] for id in some if id in files}
        assert len(snapshot.documents.files_of(some)) == 2


def test_a_document_is_replaced_as_a_whole(engine: Engine) -> None:
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


def test_documents_with_the_same_path_in_two_collections_are_separate(engine: Engine) -> None:
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
        ids = [id_of("a.md", "z"), id_of("gone.md"), id_of("a.md")]
        assert snapshot.documents.modified_times(ids) == {id_of("a.md", "z"): 7, id_of("a.md"): 8}


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
def test_a_file_time_out_of_range_does_not_stop_a_commit(engine: Engine, odd: int) -> None:
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


def test_the_passages_around_a_passage_are_returned_in_order(engine: Engine) -> None:
    put(engine, entry("a.md", *"vwxyz"), entry("b.md", "q"))
    with engine.snapshot() as snapshot:
        for at, count, expected in [(2, 1, "wxy"), (2, 0, "x"), (0, 2, "vwx"), (4, 9, "vwxyz")]:
            results = snapshot.documents.chunks_around(id_of("a.md"), at, count)
            assert [each.text for each in results] == list(expected)
        assert snapshot.documents.chunks_around(id_of("c.md"), 0, 3) == []


def test_text_and_outline_are_read_without_the_rest(engine: Engine) -> None:
    outline = (Heading(1, "Top", "top", (1, 3)), Heading(2, "Café", "cafe", (2, 3)))
    put(engine, entry("a.md", "x", "y", outline=outline), entry("b.md", "z"))
    with engine.snapshot() as snapshot:
        assert snapshot.documents.text_and_outline(id_of("a.md")) == ("x\n\ny", outline)
        assert snapshot.documents.text_and_outline(id_of("b.md")) == ("z", ())
        assert snapshot.documents.text_and_outline(id_of("c.md")) is None


def test_the_date_of_a_document_is_its_own_else_its_file_time(engine: Engine) -> None:
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


def test_documents_are_found_by_words_of_their_titles_aliases_and_paths(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "x", title="Rolling back a Release", aliases=("Überraschung",)),
        entry("b.md", "x", title="Release"),
        entry("guide/prerelease.md", "x", title="Other", headings=("Release notes",)),
        entry("d.md", "x", title="100%_x!"),
    )
    with engine.snapshot() as snapshot:

        def names(text: str, limit: int = 9) -> list[str]:
            return [id.path for id in snapshot.documents.find_by_words_of_name(text, limit)]

        assert names("release") == ["b.md", "a.md", "guide/prerelease.md"]
        assert names("release", 1) == ["b.md"]
        assert names(" back  ROLL") == ["a.md"]
        assert names("uberr") == names("Überr") == ["a.md"]
        assert names("guide/pre") == ["guide/prerelease.md"]
        assert names("%") == names("_x!") == ["d.md"]
        assert names("") == names("notes") == names("release", 0) == []


def test_the_words_of_all_paths_are_those_of_the_current_documents(engine: Engine) -> None:
    put(engine, entry("Über/kafka_topics.md", "x"), entry("notes.txt", "x"))
    with engine.snapshot() as snapshot:
        words = {"uber", "kafka", "topics", "md", "notes", "txt"}
        assert snapshot.documents.words_of_paths() == words
    commit(engine, Batch(removed=(id_of("notes.txt"),)))
    with engine.snapshot() as snapshot:
        assert snapshot.documents.words_of_paths() == words - {"notes", "txt"}


def test_titles_with_a_prefix_are_listed_shortest_first(engine: Engine) -> None:
    put(
        engine,
        entry("kubectl.md", "x", title="Kubectl"),
        entry("a.md", "x", title="Kubernetes Überblick", aliases=("Küber",)),
        entry("b.md", "x", title="Kub"),
        entry("c.md", "x", title="Other", headings=("Kubelet",)),
        entry("d.md", "x", title="Kube_x"),
    )
    with engine.snapshot() as snapshot:
        titles = snapshot.documents.titles_with_prefix
        assert titles("KUB", 9) == [
            "kuber",
            "kube_x",
            "kubectl",
            "kubectl.md",
            "kubernetes uberblick",
        ]
        assert titles("kub", 2) == ["kuber", "kube_x"]
        assert titles("kubernetes  über", 9) == ["kubernetes uberblick"]
        for none in ("x", "", "%", "kubectl.md"):
            assert titles(none, 9) == []
        assert titles("kub", 0) == []
