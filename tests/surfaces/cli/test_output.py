"""Folding long lines on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.surfaces.cli.output import INDENT, display_width, folded


def test_a_line_that_fits_is_unchanged() -> None:
    assert folded("one\n> two\n\n  three", 20) == "one\n> two\n\n  three"


def test_folded_lines_are_quoted_again_or_indented() -> None:
    assert folded("> aaaa bbbb cccc dddd eeee", 20) == "> aaaa bbbb cccc\n> dddd eeee"
    assert folded("aaaaa bbbbb ccccc ddddd", 20) == f"aaaaa bbbbb ccccc\n{INDENT}ddddd"
    assert folded("x" * 25, 20) == f"{'x' * 20}\n{INDENT}{'x' * 5}"


def test_escape_sequences_take_no_columns() -> None:
    link = "\x1b[1m\x1b]8;;file:///a/very/long/address.md\x1b\\a.md\x1b]8;;\x1b\\\x1b[0m"
    assert folded(link, 20) == link


@given(
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs", "Mn", "So"])),
    st.integers(20, 120),
    st.sampled_from(["", "> "]),
)
def test_no_row_is_wider_than_the_terminal_and_no_character_is_lost(
    text: str, width: int, before: str
) -> None:
    rows = folded(before + text, width).split("\n")
    assert all(display_width(row) <= width for row in rows)
    again = "> " if before else INDENT
    assert all(row.startswith(again) for row in rows[1:])
    whole = rows[0] + "".join(row.removeprefix(again) for row in rows[1:])
    assert "".join(whole.split(" ")) == "".join((before + text).split(" "))


def test_a_tab_extends_to_the_next_tab_stop() -> None:
    rows = folded("> \t\t\t\tend", 24).split("\n")
    assert all(len(row.expandtabs(8)) <= 24 for row in rows)
    assert all(row.startswith("> ") for row in rows)


@pytest.mark.parametrize("width", [8, 13, 20, 33, 47, 80])
def test_lines_break_between_words_at_any_width(width: int) -> None:
    text = "note: No passage is likely to answer this (best 0.01). Use a lower threshold to see the closest ones."
    rows = folded(text, width).split("\n")
    assert all(len(row) <= width for row in rows)
    words = [word for word in text.split() if len(word) <= width - len(INDENT)]
    assert words
    shown = [word for row in rows for word in row.split()]
    assert not [word for word in words if word not in shown]


def test_a_word_longer_than_a_row_is_broken_where_the_row_is_full() -> None:
    assert folded(f"in {'x' * 30} now", 20) == f"in {'x' * 17}\n{INDENT}{'x' * 13}\n{INDENT}now"
