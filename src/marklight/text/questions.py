"""The words of a question, as they are looked for."""

from __future__ import annotations

import re

from marklight.text.code import parts
from marklight.text.prose import MAX_WORD, STOP_WORDS, fold, runs, words

_SAID = re.compile(r"\W*(\w+)(?:['’]\w+)?\W*")
"""A word between blanks, with what may be written on to it: `what's`."""


def query_words(text: str, *spelled: str) -> list[str]:
    """Its words and those that names in it are made of; one of stop words only keeps them all, so it is never empty.

    Of the same in other spellings, the words that are new.
    """
    found = words(text) + parts(text)
    found = found or [run for run in runs(fold(text)) if len(run) <= MAX_WORD]
    for other in spelled:
        found += [word for word in query_words(other) if word not in found]
    return found


def subject(text: str) -> str:
    """A question without the stop words around it: `when is the pen test?` asks about a pen test."""
    said = text.split()
    telling = [at for at, each in enumerate(said) if not _is_stop(each)]
    return " ".join(said[telling[0] : telling[-1] + 1]) if telling else text


def _is_stop(said: str) -> bool:
    word = _SAID.fullmatch(said)
    return word is not None and word[1].lower() in STOP_WORDS
