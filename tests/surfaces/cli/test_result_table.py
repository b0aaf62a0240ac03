"""The table of results fits the terminal, whatever characters it contains."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcwidth

from marklight.answer import Hit
from marklight.surfaces.cli.interactive import preview, result_table
from marklight.surfaces.cli.output import cut, cut_left, display_width
from marklight.text import query_terms
from tests.making import chunk, hits_of


@pytest.mark.parametrize(
    ("text", "width", "left", "right"),
    [
        ("guide/auth.md", 20, "guide/auth.md", "guide/auth.md"),
        ("guide/auth.md", 8, "guide/a…", "…auth.md"),
        ("中文文档", 8, "中文文档", "中文文档"),
        ("中文文档", 7, "中文文…", "…文文档"),
        ("中文文档", 6, "中文…", "…文档"),  # a character of two columns is never split
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…", "…e\u0301"),
    ],
)
def test_a_text_is_cut_by_display_width(text: str, width: int, left: str, right: str) -> None:
    assert cut(text, width) == left
    assert cut_left(text, width) == right


def test_a_table_has_two_lines_a_result_with_aligned_columns() -> None:
    hits = (
        Hit(chunk("a", "Alpha words.", "guide/long-name.md", ("a", "Part")), 0.5),
        Hit(chunk("b", "Beta words.", "b.md"), 0.25),
    )
    assert result_table(hits, query="words", width=60, first=9).splitlines() == [
        "  9  0.50  prose  guide/long-name.md:1-1  a > Part",
        "     > Alpha words.",
        " 10  0.25  prose  b.md:1-1                b",
        "     > Beta words.",
    ]


def test_headings_are_left_out_of_a_narrow_table() -> None:
    hits = (Hit(chunk("a", "Alpha.", "a-path-of-thirty-columns-or.md", ("Heading",)), 0.5),)
    assert "Heading" in result_table(hits, query="x", width=80)
    assert "Heading" not in result_table(hits, query="x", width=60)


def test_the_preview_starts_at_the_sentence_with_most_query_terms() -> None:
    text = "First words. Something else.\n\nTokens are refreshed here. And so on."
    wanted = set(query_terms("how are tokens refreshed"))
    assert preview(text, wanted) == "… Tokens are refreshed here. And so on."
    assert (
        preview(text, set()) == "First words. Something else. Tokens are refreshed here. And so on."
    )
    assert preview("", wanted) == preview(" \n", wanted).strip() == ""


@given(
    st.text(max_size=60),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.integers(40, 200),
)
def test_no_line_is_wider_than_the_terminal(text: str, path: str, width: int) -> None:
    [hit] = hits_of({"a": 0.5})
    one = replace(hit.chunk, text=text or "x", document=hit.chunk.document._replace(path=path))
    table = result_table([replace(hit, chunk=one)], query=text, width=width)
    assert all(display_width(line) <= width for line in table.split("\n"))
    assert table.count("\n") == 1
    assert all(wcwidth(character) >= 0 for character in table if character != "\n")
