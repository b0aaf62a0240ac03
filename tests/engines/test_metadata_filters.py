"""Path globs, and frontmatter as key-value pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.engines.metadata_filters import matches_any_glob, metadata_pairs
from marklight.text import globs
from tests.contracts.builders import entry


@pytest.mark.parametrize(
    "glob, meant, not_meant",
    [
        ("*.md", ["a.md", "x/a.md"], ["a.mdx", "a.md/b.txt"]),
        ("/a.md", ["a.md"], ["x/a.md"]),
        ("[z-a].md", ["[z-a].md"], ["z.md"]),
        ("**/**/***/a.md", ["a.md", "x/y/z/a.md"], ["b.md"]),
        ("./x/a.md", ["x/a.md"], ["y/x/a.md"]),
        ("x/*", ["x/a.md"], ["x/y/a.md", "a.md"]),
        ("x/**", ["x/a.md", "x/y/z/a.md"], ["y/x/a.md"]),
        ("**/x/*.md", ["x/a.md", "y/z/x/a.md"], ["x/y/a.md"]),
        ("x", ["x/a.md", "y/x/a.md", "x"], ["xa.md"]),
        ("x/y", ["x/y/a.md", "x/y"], ["x/ya.md", "z/x/y/a.md"]),
        ("x/y/", ["x/y/a.md"], ["x/ya.md"]),
        ("a?.md", ["ab.md"], ["a.md", "a/.md"]),
        ("[ab].md", ["a.md", "b.md"], ["c.md"]),
        ("[!ab].md", ["c.md"], ["a.md"]),
        ("a+(b).md", ["a+(b).md"], ["aab.md"]),
        ("line\nbreak.md", ["line\nbreak.md", "x/line\nbreak.md"], ["line"]),
    ],
)
def test_a_glob_matches_as_in_a_shell(glob: str, meant: list[str], not_meant: list[str]) -> None:
    assert [path for path in meant + not_meant if matches_any_glob(path, [glob])] == meant


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_valid_glob(path: str, glob: str) -> None:
    assert matches_any_glob(path, [glob]) in (True, False)


@given(st.text("ab/.", max_size=12), st.text("ab/.*?[]!", max_size=12))
def test_a_glob_with_many_wildcards_matches_the_same_paths(path: str, glob: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fast = matches_any_glob(path, [glob])
        patch.setattr(globs, "MAX_BACKTRACKING", 0)
        assert matches_any_glob(path, [glob]) == fast


def test_metadata_pairs_are_flat_and_in_lower_case() -> None:
    one = entry(
        "a.md",
        tags=("A/B/c",),
        author="Ann",
        metadata={"N": {"Deep": [True, 1, None]}, "list": ["X", {"y": "Z"}]},
    )
    assert metadata_pairs(one.document) == {
        ("#", "a"),
        ("#", "a/b"),
        ("#", "a/b/c"),
        ("tags", "a/b/c"),
        ("author", "ann"),
        ("n.deep", "true"),
        ("n.deep", "1"),
        ("list", "x"),
        ("list.y", "z"),
    }
