"""The estimate of tokens: examples that can be counted by hand, and the truncation to a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text.tokens import MAX_CHARACTERS, count_tokens, fits, truncate_to_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("one two three", 3),
        ("documentation", 3),  # documenta, tio, n
        ("getUserName", 3),
        ("2026-11-18", 6),
        ("a\n\nb", 3),
        ("Привет", 3),
        ("日本語", 3),
        ("x" * 300, 98),  # nine letters, then three at a time
    ],
)
def test_a_text_is_split_roughly_as_tokenizers_do(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@given(st.text(max_size=300), st.integers(1, 60))
def test_a_truncated_text_fits_the_budget(text: str, tokens: int) -> None:
    assert fits(text, tokens) == (count_tokens(text) <= tokens)
    assert len(text) <= MAX_CHARACTERS * count_tokens(text) + 1
    if not fits(text, tokens):
        assert count_tokens(truncate_to_tokens(text, tokens)) <= tokens
