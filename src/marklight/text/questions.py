"""The words of a question, as they are looked for."""

from __future__ import annotations

from marklight.text.code import parts
from marklight.text.prose import MAX_WORD, fold, runs, words


def query_words(text: str, *spelled: str) -> list[str]:
    """Its words and those that names in it are made of; one of stop words only keeps them all, so it is never empty.

    Of the same in other spellings, the words that are new.
    """
    found = words(text) + parts(text)
    found = found or [run for run in runs(fold(text)) if len(run) <= MAX_WORD]
    for other in spelled:
        found += [word for word in query_words(other) if word not in found]
    return found
