"""Documents by reference, path, title and folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import marklight
from marklight.errors import NotFound, SettingsError, UsageError
from tests.library.conftest import paths
from tests.making import library, write


def test_a_reference_returns_its_part_of_a_document(folder: Path, engine: str) -> None:
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


def test_a_document_is_found_by_a_unique_title(tmp_path: Path, engine: str) -> None:
    pages = {
        "one.md": "# Night shift\n\nWho sleeps when.\n\n## Pay\n\nA quarter more.\n",
        "two.md": "---\naliases: [Rota]\n---\n# Shifts: all\n\nThe plan.\n",
        "a/three.md": "# Twin\n\nThe one.\n",
        "b/four.md": "# Twin\n\nThe other.\n",
        "Pay.md": "# Wages\n\nOn the first.\n",
    }
    with library(write(tmp_path / "docs", pages), engine=engine) as lib:
        lib.index()
        found = {
            name: lib.get(name).document.path
            for name in ("Night shift", "NIGHT SHIFT", "Shifts: all", "Rota", "Wages", "Pay")
        }
        assert list(found.values()) == ["one.md", "one.md", "two.md", "two.md", "Pay.md", "Pay.md"]
        assert lib.get("Night shift#pay").text.startswith("## Pay")
        assert lib.get("Night shift:3").text == "Who sleeps when."
        assert [each.text for each in lib.outline("Wages").headings] == ["Wages"]
        with pytest.raises(NotFound, match=r"Several documents.*: a/three\.md, b/four\.md"):
            lib.get("twin")
        with pytest.raises(NotFound, match="No document is called 'Night"):
            lib.get("Night\udcff")


def test_an_outline_has_lines_and_anchors(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        headings = lib.outline("auth.md").headings
        assert [(one.text, one.anchor, one.lines[0]) for one in headings] == [
            ("Refresh", "refresh", 9)
        ]


def test_a_relative_path_means_the_file_in_its_own_collection(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "marklight.toml": "[collections]\none = 'a'\ntwo = 'b'\ndeep = 'a/sub'\n",
            "a/README.md": "# A\n\nfirst\n",
            "b/README.md": "# B\n\nsecond\n\nlast ^MyBlock\n",
            "a/sub/other.md": "# Other\n\nthird\n",
        },
    )
    with library(tmp_path) as lib:
        with pytest.raises(NotFound, match="Nothing is indexed"):
            lib.get("b/README.md")
        lib.index()
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


def test_a_search_can_be_limited_to_a_folder(folder: Path) -> None:
    with library(folder) as lib:
        lib.index()
    with marklight.open(folder / "deploy", {"model": {"name": "fake"}}) as lib:
        assert lib.place.folder == folder.resolve()
        answer = lib.search("tokens deployment", min_confidence=0.0)
        assert {path.partition("/")[0] for path in paths(answer)} == {"deploy"}


def test_the_current_collection_ranks_first_and_hides_no_other(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# Apples\n\napples are red and round, red apples fall from old trees in autumn\n"
    write(tmp_path / "all", {"one/a.md": text, "two/b.md": text})
    settings = {"engine": engine, "collections": {"one": "one", "two": "two"}}
    for here in ("one", "two"):
        monkeypatch.chdir(tmp_path / "all" / here)
        with library(tmp_path / "all", **settings) as lib:
            unlike = {
                "search": {"skip": ["exact_duplicates", "near_duplicates", "semantic_duplicates"]}
            }
            answer = lib.search("red apples", explain=True, settings=unlike)
            assert answer.hits[0].chunk.collection == here
            assert {hit.chunk.collection for hit in answer.hits} == {"one", "two"}
            assert all(hit.score <= 1 for hit in answer.hits)


def test_a_folder_inside_a_collection_means_its_documents(tmp_path: Path) -> None:
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
    for part, expected in (("a/x", {"x/one.md"}), ("b", {"three.md"})):
        with library(tmp_path / part) as lib:
            assert set(paths(lib.search("apples", min_confidence=0.0))) == expected
    with (
        library(tmp_path / "c") as lib,
        pytest.raises(UsageError, match="no coll"),
    ):
        lib.search("apples")


def test_a_folder_and_a_filter_apply_together(tmp_path: Path, engine: str) -> None:
    write(
        tmp_path,
        {
            "marklight.toml": "",
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


@pytest.mark.parametrize("name", ["a/b", "", "..", " a"])
def test_a_collection_has_a_name_that_a_path_can_begin_with(tmp_path: Path, name: str) -> None:
    with library(tmp_path, collections={name: "."}) as lib, pytest.raises(SettingsError):
        lib.index()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such folder"):
        marklight.open(tmp_path / "nowhere")


def test_a_collection_with_a_missing_folder_has_a_notice_and_keeps_its_documents(
    tmp_path: Path, engine: str
) -> None:
    write(tmp_path, {"one/a.md": "apples in the cellar", "two/b.md": "pears in the cellar"})
    settings = {"engine": engine, "collections": {"one": "one", "two": "two"}}
    with library(tmp_path, **settings) as opened:
        opened.index()
        (tmp_path / "two").rename(tmp_path / "elsewhere")
        answer = opened.search("cellar", mode="keyword")
        assert [hit.chunk.path for hit in answer.hits] == ["a.md"]
        assert any("collection 'two' does not exist" in notice for notice in answer.notices)
        assert opened.status()["documents"] == 2
        (tmp_path / "elsewhere").rename(tmp_path / "two")
        again = opened.search("cellar", mode="keyword")
        assert sorted(hit.chunk.path for hit in again.hits) == ["a.md", "b.md"]
        assert not opened.status()["failed"]
