"""The sentence splitter: boundaries, sentences, and truncation at a boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text.lines import sentence_ends, split_sentences, truncate_at_sentence

TEXTS = st.text(st.sampled_from("ab .!?…。'\")\n"), max_size=60)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One. ", "Two! ", "Three?"]),
        ('He said "no." Then left.', ['He said "no." ', "Then left."]),
        ("Version 1.20 is out", ["Version 1.20 is out"]),
        ("全文。検索！", ["全文。", "検索！"]),
        ("- item\n- item", ["- item\n", "- item"]),
        ("\n \n", []),
    ],
)
def test_a_text_is_split_at_punctuation_and_line_breaks(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_boundaries_are_offsets_in_the_whole_text() -> None:
    assert sentence_ends("One. Two. Three.", 5, 16) == [10]


@pytest.mark.parametrize(
    ("max_chars", "text"),
    [(9, "One. Two. …"), (8, "One. …"), (4, "One. …"), (3, "One …"), (2, "On …")],
)
def test_a_text_is_truncated_after_the_last_sentence_that_fits(max_chars: int, text: str) -> None:
    assert truncate_at_sentence("One. Two. Three.", max_chars) == text


def test_a_line_break_inside_a_sentence_does_not_truncate_it_but_a_paragraph_does() -> None:
    assert truncate_at_sentence("One long\nsentence without an end", 20) == "One long\nsentence …"
    assert truncate_at_sentence("A heading\n\nOne long sentence", 20) == "A heading …"


@given(TEXTS, st.integers(1, 60))
def test_a_truncated_text_is_a_prefix_within_the_limit(text: str, max_chars: int) -> None:
    kept = truncate_at_sentence(text, max_chars).removesuffix(" …")
    assert text.startswith(kept)
    assert len(kept) <= max_chars


@given(TEXTS)
def test_sentences_lose_nothing_but_white_space(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
