"""The documents and tags of a library, told a part at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.errors import NotFound, UsageError
from tests.making import library, write

PAGES = {
    f"{folder}/{name}.md": f"# {name}\n\nText of {name}.\n"
    for folder in "ab"
    for name in ("one", "two", "three")
}


def test_all_documents_are_told_once_whatever_the_size_of_a_part(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        lib.index()
        for limit in (1, 4, 6, 7):
            told: list[str] = []
            after = ""
            while True:
                part = lib.documents(after=after, limit=limit)
                assert part.total == 6
                told += [id.path for id, _ in part.documents]
                if part.next is None:
                    break
                after = part.next
            assert told == sorted(PAGES)


def test_what_comes_between_two_parts_upsets_none(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        lib.index()
        part = lib.documents(limit=3)
        write(tmp_path, {"a/first.md": "# First\n", "b/zoo.md": "# Zoo\n"})
        lib.index()
        rest = lib.documents(after=part.next or "", limit=9)
        assert [id.path for id, _ in rest.documents] == [*sorted(PAGES)[3:], "b/zoo.md"]


def test_paths_like_a_text_begin_with_it_or_hold_it(tmp_path: Path) -> None:
    with library(write(tmp_path, {**PAGES, "two.md": "# Two\n", "x/untwo.md": "# X\n"})) as lib:
        lib.index()
        found = [id.path for id, _ in lib.documents(like="TWO").documents]
        assert found == ["two.md", "a/two.md", "b/two.md", "x/untwo.md"]
        assert lib.documents(like="nowhere").documents == ()


@pytest.mark.parametrize("after", ["x", "[]", "[1,2,3]", "{}", "7", '["a"]'])
def test_a_mark_that_nobody_gave_is_refused(tmp_path: Path, after: str) -> None:
    with library(tmp_path) as lib, pytest.raises(UsageError, match="`next`"):
        lib.documents(after=after)


def test_tags_are_counted_with_those_below_them(tmp_path: Path) -> None:
    pages = {"a.md": "---\ntags: [Area/Work]\n---\n# A\n", "b.md": "---\ntags: [area]\n---\n# B\n"}
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        assert lib.tags() == {"area": 2, "area/work": 1}


def test_a_path_of_a_named_collection_is_no_other(tmp_path: Path) -> None:
    write(tmp_path, {"one/b/x.md": "# Of one\n", "two/x.md": "# Of two\n"})
    with library(tmp_path, collections={"a": "one", "b": "two"}) as lib:
        lib.index()
        assert lib.get("b/x.md").title == "Of one"
        assert lib.get("x.md", collection="b").title == "Of two"
        assert lib.get("x.md#of-two", collection="b").text == "# Of two"
        for missing in ("b/x.md", "x", "../one/b/x.md", "/etc/passwd", "x.md\0", "\ud800"):
            with pytest.raises(NotFound):
                lib.get(missing, collection="b")
        (tmp_path / "two" / "x.md").unlink()
        with pytest.raises(NotFound):
            lib.get("x.md", collection="b")
