"""The terms of a text: words as they are written, which can be shown and embedded, unlike stems."""

from __future__ import annotations

import re
from functools import cache

from marklight.text.digests import digest
from marklight.text.prose import STOP_WORDS, fold

LEAST_LETTERS = 3
MOST_LETTERS = 30
"""Longer runs of letters are names of classes or encoded data."""

_ENDING = r"(?:['’](?:s|t|re|ve|ll|d|m)\b)?"
_RUN = re.compile(rf"[^\W\d_]{{{LEAST_LETTERS},}}{_ENDING}")
_ASCII_RUN = re.compile(rf"[a-z]{{{LEAST_LETTERS},}}{_ENDING}")
"""The same for text without other letters, in half the time."""
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts that are written without spaces: a run of them is a sentence, not a word."""


def terms(text: str) -> set[str]:
    """The distinct words of at least three letters, folded, without stop words.

    Of a word with an apostrophe the possessive counts without its ending; `don't` says nothing.
    """
    # A text repeats itself: each piece is looked at once.
    folded = fold(" ".join(set(text.split())))
    plain = folded.isascii()
    runs = set((_ASCII_RUN if plain else _RUN).findall(folded))
    found = {run for run in runs if run.isalpha()}
    found.update(run[:-2] for run in runs if run.endswith(("'s", "’s")))
    found = {run for run in found if len(run) <= MOST_LETTERS}
    if not plain:
        found = {run for run in found if not _UNSPACED.search(run)}
    return found - STOP_WORDS


@cache
def terms_recipe() -> str:
    """Changes when terms are found in another way, and with it every count of them."""
    sample = "The Café's naïve parser don't run_fast 日本語のテキスト 한국어 C++ v1.27 " + "x" * 40
    rules = (_RUN.pattern, _UNSPACED.pattern, str(LEAST_LETTERS), str(MOST_LETTERS))
    return digest(*sorted(terms(sample)), *sorted(STOP_WORDS), *rules, size=6)
