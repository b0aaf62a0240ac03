"""Words of a library that somebody may have meant who typed one that stands nowhere in it."""

from __future__ import annotations

from string import ascii_lowercase

from marklight.ports import Reader
from marklight.search.near import near_words
from marklight.search.seams import known

_LEAST, _SURE, _LONG = 4, 5, 8
"""Letters of a word that may be mistyped at all, that may have a wrong letter, and that may have two slips."""
_LOOKED = 500
"""Words that begin alike, the commonest, which are compared."""


def meant(word: str, reader: Reader) -> str:
    """The word in most documents that differs by one slip, or else by two where it is long; empty where there is none."""
    if len(word) < _LEAST:
        return ""
    found = reader.term_counts(sorted(one_slip(word)))
    if not found and len(word) >= _LONG:
        # Of two slips seldom one is in the first third; all others are found by it.
        alike = reader.terms_like(word[: len(word) // 3], len(word) - 2, len(word) + 2, _LOOKED)
        found = {each: alike[each] for each in near_words(word, alike, slips=2)}
    # Terms are counted in all of a document, and not all of it may stand in a passage.
    there = known(found, reader)
    return min(there, key=lambda each: (-found[each], each), default="")


def one_slip(word: str) -> set[str]:
    """All words with one letter more, one less, two changed over, or from five letters on another one in its place."""
    halves = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {one + two[1:] for one, two in halves if two}
    found |= {one + two[1] + two[0] + two[2:] for one, two in halves if len(two) > 1}
    found |= {one + letter + two for one, two in halves for letter in ascii_lowercase}
    if len(word) >= _SURE:
        found |= {
            one + letter + two[1:] for one, two in halves if two for letter in ascii_lowercase
        }
    return found - {word}
