"""The paginated list of documents, and the tags of a library."""

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


def test_pages_of_any_size_list_every_document_once(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        lib.index()
        for limit in (1, 4, 6, 7):
            listed: list[str] = []
            after = ""
            while True:
                part = lib.documents(after=after, limit=limit)
                assert part.total == 6
                listed += [id.path for id, _ in part.documents]
                if part.next is None:
                    break
                after = part.next
            assert listed == sorted(PAGES)


def test_documents_added_between_two_pages_do_not_disturb_the_list(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        lib.index()
        part = lib.documents(limit=3)
        write(tmp_path, {"a/first.md": "# First\n", "b/zoo.md": "# Zoo\n"})
        lib.index()
        rest = lib.documents(after=part.next or "", limit=9)
        assert [id.path for id, _ in rest.documents] == [*sorted(PAGES)[3:], "b/zoo.md"]


def test_paths_that_begin_with_a_text_come_before_those_that_contain_it(tmp_path: Path) -> None:
    with library(write(tmp_path, {**PAGES, "two.md": "# Two\n", "x/untwo.md": "# X\n"})) as lib:
        lib.index()
        found = [id.path for id, _ in lib.documents(like="TWO").documents]
        assert found == ["two.md", "a/two.md", "b/two.md", "x/untwo.md"]
        assert lib.documents(like="nowhere").documents == ()


@pytest.mark.parametrize("after", ["x", "[]", "[1,2,3]", "{}", "7", '["a"]'])
def test_an_invalid_cursor_is_an_error(tmp_path: Path, after: str) -> None:
    with library(tmp_path) as lib, pytest.raises(UsageError, match="`next`"):
        lib.documents(after=after)


def test_tags_are_counted_with_nested_tags(tmp_path: Path) -> None:
    pages = {"a.md": "---\ntags: [Area/Work]\n---\n# A\n", "b.md": "---\ntags: [area]\n---\n# B\n"}
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        assert lib.tags() == {"area": 2, "area/work": 1}


def test_with_a_collection_only_its_own_path_is_found(tmp_path: Path) -> None:
    write(tmp_path, {"one/b/x.md": "# Of one\n", "two/x.md": "# Of two\n"})
    with library(tmp_path, collections={"a": "one", "b": "two"}) as lib:
        lib.index()
        assert lib.get("b/x.md").title == "Of two"
        assert lib.get("a/b/x.md").title == "Of one"
        assert lib.get("x.md", collection="b").title == "Of two"
        assert lib.get("x.md#of-two", collection="b").text == "# Of two"
        for missing in ("b/x.md", "x", "../one/b/x.md", "/etc/passwd", "x.md\0", "\ud800"):
            with pytest.raises(NotFound):
                lib.get(missing, collection="b")
        (tmp_path / "two" / "x.md").unlink()
        with pytest.raises(NotFound):
            lib.get("x.md", collection="b")
