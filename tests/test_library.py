"""The library's verbs, through the public door, over both engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import Busy, ModelError, NotFound, UsageError
from marklight.text import passage_of

from .making import library, write

PAGES = {
    "auth.md": "---\ntitle: Authentication\ntags: [security]\nstatus: draft\n---\n\nTokens expire after an hour.\n\n"
    "## Refresh\n\nA refresh token gives a new access token without asking the user again.\n",
    "deploy/rollback.md": "# Rolling back\n\nUse the undo command to return to an earlier revision of the deployment.\n",
    "deploy/scale.md": "# Scaling\n\nMore replicas carry more load. See [[rollback]].\n",
    "notes.txt": "Plain notes about the espresso machine in the kitchen.\n",
}


@pytest.fixture(params=["embedded", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"file:{tmp_path / 'index'}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", PAGES)


def paths(answer: marklight.Answer) -> list[str]:
    return [hit.chunk.path for hit in answer.hits]


def test_a_folder_is_indexed_and_searched(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert sorted(id.path for id in report.added) == sorted(PAGES)
        assert report.index.pending == 0
        answer = lib.search("undo a deployment revision")
        assert paths(answer)[0] == "deploy/rollback.md"
        assert 0 < answer.hits[0].score <= 1


def test_a_search_indexes_a_new_folder_by_itself(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        assert paths(lib.search("espresso machine"))[0] == "notes.txt"


def test_the_next_question_sees_what_changed_on_the_disk(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
        (folder / "notes.txt").unlink()
        assert paths(lib.search("zebra stripes"))[0] == "new.md"
        assert "notes.txt" not in paths(lib.search("espresso machine"))


def test_without_a_look_at_the_disk_a_dead_file_is_still_never_returned(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        (folder / "notes.txt").unlink()
        answer = lib.search("espresso machine", refresh=False)
        assert "notes.txt" not in paths(answer)
        (folder / "auth.md").unlink()
        alone = lib.search("tokens expire hour", path="auth.md", refresh=False)
        assert alone.abstained == "what matched is no longer on the disk"


def test_nothing_changed_makes_no_commit(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        first = lib.index()
        again = lib.index()
        assert again.index.generation == first.index.generation
        assert not [*again.added, *again.changed, *again.removed, *again.moved]


def test_a_change_is_one_changed_document(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        write(folder, {"auth.md": "# Authentication\n\nTokens never expire.\n"})
        report = lib.index()
        assert [id.path for id in report.changed] == ["auth.md"]
        assert not report.added


def test_a_file_that_is_only_touched_is_not_read_into_the_index_again(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        os.utime(folder / "auth.md", (1, 1))
        report = lib.index()
        assert not report.changed
        assert lib.index().index.generation == report.index.generation


def test_a_moved_folder_is_embedded_no_second_time(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        (folder / "deploy").rename(folder / "operations")
        with lib.engine.writing(0):
            report = lib.ingest.text(lib.ingest.look())
        assert sorted((old.path, new.path) for old, new in report.moved) == [
            ("deploy/rollback.md", "operations/rollback.md"),
            ("deploy/scale.md", "operations/scale.md"),
        ]
        assert lib.ingest.counts().pending == 0


def test_no_passage_is_longer_than_the_model_takes(folder: Path, engine: str) -> None:
    write(folder, {"dense.md": "# Dense\n\n" + "a b c d e f g h " * 90 + "\n\n" + "x " * 700})
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert report.index.pending == 0
        assert lib.embedder is not None
        with lib.engine.snapshot() as reader:
            chunks = [chunk for id in reader.files() for chunk in reader.chunks_of(id)]
        counts = lib.embedder.count_tokens([passage_of(chunk) for chunk in chunks])
        assert max(counts) <= lib.embedder.token_limit
        assert len({chunk.id for chunk in chunks}) == len(chunks)
        generation = report.index.generation
        assert lib.index().index.generation == generation


def test_a_rebuild_embeds_nothing_again(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        with lib.engine.writing(0):
            report = lib.ingest.text(lib.ingest.look(rebuild=True))
        assert len(report.changed) == len(PAGES)
        assert lib.ingest.counts().pending == 0


def test_other_chunk_sizes_redo_the_text_by_themselves(folder: Path, tmp_path: Path) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as lib:
        lib.index()
    with library(folder, engine=place, chunk={"max_chars": 300}) as lib:
        assert len(lib.index().changed) == len(PAGES)
        assert not lib.index().changed


def test_words_answer_before_vectors_are_there(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        with lib.engine.writing(0):
            lib.ingest.text(lib.ingest.look())
        answer = lib.search("espresso machine", refresh=False)
        assert paths(answer)[0] == "notes.txt"
        assert answer.to_dict()["index"]["pending"] == answer.index.chunks > 0
        assert any("0 of" in notice for notice in answer.notices)


def test_a_search_with_no_time_to_embed_answers_all_the_same(folder: Path, engine: str) -> None:
    with library(folder, engine=engine, index={"first_search_seconds": 0.0}) as lib:
        answer = lib.search("espresso machine")
        assert paths(answer)[0] == "notes.txt"
        assert answer.index.pending > 0


@pytest.mark.parametrize("verb", ["index", "search"])
def test_a_new_model_embeds_anew_and_the_old_one_answers_meanwhile(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as lib:
        lib.index() if verb == "index" else lib.search("espresso")
        old = lib.embedder.fingerprint if lib.embedder else ""
    from marklight import models
    from marklight.models.fake import FakeEmbedder

    load = models.load

    def with_another(name: str, **options: Any) -> Any:
        return FakeEmbedder(dimension=32) if name == "other" else load(name, **options)

    monkeypatch.setattr(models, "load", with_another)
    with library(folder, engine=place, model={"name": "other"}) as lib:
        assert not lib.ingest.look(), "no text is read again for a model"
        answer = lib.search("espresso machine", refresh=False)
        assert paths(answer)[0] == "notes.txt"
        assert any("answers until" in notice for notice in answer.notices)
        lib.index()
        assert not lib.search("espresso machine").notices
        with lib.engine.snapshot() as reader:
            assert old not in reader.models()


def test_one_bad_file_is_a_line_in_the_status(folder: Path, engine: str) -> None:
    write(folder, {"bad.md": b"a\x00b", "good.md": "# Good\n\nfine\n"})
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert [(one.document.path, "NUL" in one.reason) for one in report.skipped] == [
            ("bad.md", True)
        ]
        assert [one["path"] for one in lib.status()["failed"]] == ["bad.md"]
        assert not lib.index().skipped
        write(folder, {"bad.md": "# Mended\n\nnow it is text\n"})
        assert [id.path for id in lib.index().added] == ["bad.md"]
        assert not lib.status()["failed"]


def test_broken_frontmatter_loses_nothing_and_is_remarked(folder: Path, engine: str) -> None:
    write(folder, {"odd.md": "---\ntitle: [never closed\n---\n\nquokka\n"})
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert [(id.path, "frontmatter" in said.lower()) for id, said in report.remarks] == [
            ("odd.md", True)
        ]
        assert [one["path"] for one in lib.status()["remarks"]] == ["odd.md"]
        assert paths(lib.search("quokka"))[0] == "odd.md"
        (folder / "odd.md").unlink()
        lib.index()
        assert not lib.status()["remarks"]


def test_a_document_that_turns_bad_is_no_longer_served(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        write(folder, {"notes.txt": b"espresso \x00 machine"})
        assert "notes.txt" not in paths(lib.search("espresso machine"))
        assert [one["path"] for one in lib.status()["failed"]] == ["notes.txt"]


def test_a_failure_goes_with_its_file(folder: Path, engine: str) -> None:
    write(folder, {"bad.md": b"a\x00b"})
    with library(folder, engine=engine) as lib:
        lib.index()
        (folder / "bad.md").unlink()
        lib.index()
        assert not lib.status()["failed"]


def test_collections_own_their_files_and_can_be_asked_for(tmp_path: Path, engine: str) -> None:
    write(
        tmp_path / "all",
        {
            "README.md": "# Outer\n\nthe outer readme speaks of apples\n",
            "sub/README.md": "# Inner\n\nthe inner readme speaks of apples\n",
        },
    )
    with library(
        tmp_path / "all", engine=engine, collections={"outer": ".", "inner": "sub"}
    ) as lib:
        lib.index()
        answer = lib.search("apples readme")
        assert sorted((hit.chunk.collection, hit.chunk.path) for hit in answer.hits) == [
            ("inner", "README.md"),
            ("outer", "README.md"),
        ]
        only = lib.search("apples readme", collection="inner")
        assert [hit.chunk.collection for hit in only.hits] == ["inner"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "deploy/**"}, {"deploy/rollback.md", "deploy/scale.md"}),
        ({"exclude": "deploy/scale.md"}, {"auth.md", "deploy/rollback.md", "notes.txt"}),
        ({"tag": "security"}, {"auth.md"}),
        ({"where": {"status": "draft"}}, {"auth.md"}),
        ({"where": ["status=draft"]}, {"auth.md"}),
    ],
)
def test_filters_come_before_ranking(
    folder: Path, engine: str, options: dict[str, Any], expected: set[str]
) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search(
            "token deployment replicas espresso", limit=100, min_confidence=0.0, **options
        )
        assert set(paths(answer)) == expected


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", {}, "empty"),
        ("  \n", {}, "empty"),
        ("x", {"limit": 0}, "1 to 100"),
        ("x", {"limit": 101}, "1 to 100"),
        ("x", {"mode": "psychic"}, "hybrid"),
        ("x", {"after": "yesterday"}, "2026-01-31"),
        ("x", {"min_confidence": 1.5}, "0 to 1"),
        ("x", {"max_tokens": 0}, "positive"),
        ("x", {"where": "status"}, "KEY=VALUE"),
    ],
)
def test_a_question_that_makes_no_sense_is_a_clear_error(
    folder: Path, text: str, options: dict[str, Any], said: str
) -> None:
    with library(folder, engine="memory:") as lib, pytest.raises(UsageError, match=said):
        lib.search(text, **options)


@pytest.mark.parametrize(
    "text",
    [
        "C++",
        "a-b/c.d",
        '"quoted',
        "AND OR NOT",
        "*",
        "🙂",
        "'; DROP TABLE documents; --",
        "(((",
        "x" * 100_000,
    ],
)
def test_no_punctuation_breaks_a_question(folder: Path, engine: str, text: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.search(text)
        lib.search(text, mode="keyword")
        lib.search(text, mode="code")


def test_an_answer_within_a_token_budget_says_what_was_left_out(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("token deployment replicas", max_tokens=20, min_confidence=0.0)
        assert sum(len(hit.chunk.text) for hit in answer.hits) <= 20 * 3 + 2
        assert any("20 tokens" in notice for notice in answer.notices)


def test_a_reference_leads_to_its_part(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        assert lib.get("auth.md").text.startswith("---")
        part = lib.get("auth.md#refresh")
        assert part.text.startswith("## Refresh")
        assert part.headings == ("Refresh",)
        assert lib.get("auth.md:7").text == "Tokens expire after an hour."
        assert lib.get("auth.md:7-9").lines == (7, 9)
        assert lib.get("rollback").document.path == "deploy/rollback.md"
        hit = lib.search("undo command").hits[0]
        assert lib.get(hit.chunk.id).text == hit.chunk.text
        for wrong in ("nothing.md", "auth.md#nowhere", "auth.md:900"):
            with pytest.raises(NotFound):
                lib.get(wrong)
        with pytest.raises(UsageError):
            lib.get("auth.md:9-2")


def test_an_outline_has_lines_and_anchors(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        _, headings = lib.outline("auth.md")
        assert [(one.text, one.anchor, one.lines[0]) for one in headings] == [
            ("Refresh", "refresh", 9)
        ]


def test_a_second_writer_is_told_and_a_reader_still_answers(folder: Path, tmp_path: Path) -> None:
    place = f"file:{tmp_path / 'index'}"
    quick = {"wait_seconds": 0.1}
    with library(folder, engine=place) as one, library(folder, engine=place, index=quick) as other:
        one.index()
        with one.engine.writing(0):
            write(folder, {"new.md": "# New\n\nsomething new\n"})
            with pytest.raises(Busy):
                other.index()
            answer = other.search("espresso machine")
        assert paths(answer)[0] == "notes.txt"
        assert any("another process" in notice for notice in answer.notices)


def test_a_plan_made_before_another_process_wrote_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as one, library(folder, engine=place) as other:
        one.index()
        write(folder, {"notes.txt": "bravo\n"})
        stale = one.reading.look()
        other.index()
        write(folder, {"notes.txt": PAGES["notes.txt"]})
        looks = [stale]
        fresh = type(one.reading).look
        monkeypatch.setattr(
            type(one.reading), "look", lambda self, **k: looks.pop() if looks else fresh(self, **k)
        )
        one.search("espresso machine", mode="keyword")
        assert paths(other.search("espresso machine", refresh=False))[0] == "notes.txt"
        assert not other.search("bravo", mode="keyword", refresh=False).hits


def test_words_answer_in_full_where_there_is_no_model(folder: Path, engine: str) -> None:
    with marklight.open(folder, {"engine": engine, "model": {"name": "none"}}) as lib:
        hybrid = lib.search("token deployment replicas espresso", limit=20)
        words = lib.search("token deployment replicas espresso", limit=20, mode="keyword")
        assert [(hit.chunk.id, hit.score) for hit in hybrid.hits] == [
            (hit.chunk.id, hit.score) for hit in words.hits
        ]
        assert not hybrid.notices
        with pytest.raises(UsageError, match="no semantic"):
            lib.search("token", mode="semantic")


def test_a_model_that_cannot_be_loaded_leaves_search_by_words(folder: Path, engine: str) -> None:
    with marklight.open(folder, {"engine": engine, "model": {"name": "no such model"}}) as lib:
        assert paths(lib.search("espresso machine", mode="keyword"))[0] == "notes.txt"
        with pytest.raises(ModelError, match="no such model"):
            lib.search("espresso machine")
        assert "no such model" in lib.status()["model_problem"]


def test_a_path_from_where_one_stands_is_that_file_in_its_own_collection(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "marklight.toml": "[collections]\none = 'a'\ntwo = 'b'\ndeep = 'a/sub'\n",
            "a/README.md": "# A\n\nfirst\n",
            "b/README.md": "# B\n\nsecond\n\nlast ^MyBlock\n",
            "a/sub/other.md": "# Other\n\nthird\n",
        },
    )
    with library(tmp_path, engine="memory:") as lib:
        assert lib.get("b/README.md", near=tmp_path).document == ("two", "README.md")
        assert lib.get("a/sub/other.md", near=tmp_path).document == ("deep", "other.md")
        assert lib.get("../b/README.md:1", near=tmp_path / "a").text == "# B"
        assert lib.get(f"{tmp_path}/b/README.md:1-2", near=tmp_path).document.collection == "two"
        assert lib.get("b/README.md#b", near=tmp_path).document.collection == "two"
        assert lib.get("two/README.md").document.collection == "two"
        assert lib.get("two/README.md#^MyBlock").text == "last ^MyBlock"
        for outside in ("../../etc/passwd", "/etc/passwd", "a\0b"):
            with pytest.raises(NotFound):
                lib.get(outside, near=tmp_path)


def test_part_of_a_library_can_be_asked_for_by_its_folder(folder: Path) -> None:
    with library(folder) as lib:
        lib.index()
    with marklight.open(folder / "deploy", {"model": {"name": "fake"}}) as lib:
        assert lib.place.folder == folder.resolve()
        answer = lib.search("tokens deployment", min_confidence=0.0)
        assert {path.partition("/")[0] for path in paths(answer)} == {"deploy"}


def test_the_collection_one_stands_in_comes_first_and_hides_no_other(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# Apples\n\napples are red and round\n"
    write(tmp_path / "all", {"one/a.md": text, "two/b.md": text + "\nreally\n"})
    settings = {"engine": engine, "collections": {"one": "one", "two": "two"}}
    for here in ("one", "two"):
        monkeypatch.chdir(tmp_path / "all" / here)
        with library(tmp_path / "all", **settings) as lib:
            answer = lib.search("red apples", explain=True)
            assert answer.hits[0].chunk.collection == here
            assert {hit.chunk.collection for hit in answer.hits} == {"one", "two"}
            assert all(hit.score <= 1 for hit in answer.hits)


def test_a_folder_inside_a_collection_stands_for_its_documents(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "marklight.toml": "[collections]\na = 'a'\nb = 'b'\n",
            "a/x/one.md": "# Apples\n\napples\n",
            "a/y/two.md": "# Apples\n\napples too\n",
            "b/three.md": "# Apples\n\napples three\n",
            "c/four.txt": "",
        },
    )
    for asked, expected in (("a/x", {"x/one.md"}), ("b", {"three.md"})):
        with library(tmp_path / asked, engine="memory:") as lib:
            assert set(paths(lib.search("apples", min_confidence=0.0))) == expected
    with (
        library(tmp_path / "c", engine="memory:") as lib,
        pytest.raises(UsageError, match="no coll"),
    ):
        lib.search("apples")


def test_a_folder_that_was_named_and_a_filter_must_both_hold(tmp_path: Path, engine: str) -> None:
    write(
        tmp_path,
        {
            "marklight.toml": f"engine = '{engine}'\n",
            "[slug]/a.md": "# A\n\nbanana\n",
            "[slug]/b.txt": "banana",
            "s/a.md": "# S\n\nbanana\n",
            "other/c.md": "# C\n\nbanana\n",
        },
    )
    with library(tmp_path / "[slug]", engine=engine) as lib:
        found = lib.search("banana", path="*.md", min_confidence=0.0)
        assert paths(found) == ["[slug]/a.md"]
        assert found.to_dict()["query"]["filters"]["within"] == [["default", "[slug]"]]
    with library(tmp_path, engine=engine) as lib:
        assert set(paths(lib.search("banana", path="[slug]/a.md", limit=9))) >= {"[slug]/a.md"}


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        marklight.open(tmp_path / "nowhere")


def test_an_empty_folder_answers_that_it_is_empty(tmp_path: Path) -> None:
    with library(tmp_path) as lib:
        answer = lib.search("anything")
        assert not answer.hits
        assert any("no documents" in notice for notice in answer.notices)
