"""The words of a question, as they are looked for."""

from __future__ import annotations

from marklight.text.code import parts
from marklight.text.prose import MAX_WORD, fold, runs, words


def query_words(text: str) -> list[str]:
    """Its words and those that names in it are made of; one of stop words only keeps them all, so it is never empty."""
    found = words(text) + parts(text)
    return found or [run for run in runs(fold(text)) if len(run) <= MAX_WORD]
