"""Words of a library that somebody may have meant who typed one that stands nowhere in it."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_lowercase

from marklight.ports import Snapshot
from marklight.search.seams import known
from marklight.text import stop_words

_SWAPPED, _LACKING, _ANY, _TWO = 4, 5, 7, 8
"""Letters of a word in which two may have changed places, one may lack, any slip may be, and two.

What is like a shorter one is mostly another word: asked the questions of four other sets, FastAPI's
pages had a proposal for 28 mistyped words and for 7 others; with any slip from four letters on, two of
any sort from eight, and endings, for 31 and 55.
"""
_LOOKED = 500
"""Words that begin alike, the commonest, which are compared."""


def meant(word: str, snapshot: Snapshot) -> str:
    """The word in most documents that differs by one slip, or else by two where it is long; empty where there is none.

    Of all words only those are looked for that a slip can make of it: names are compared one by one
    (near.py), but a library may have 200,000 words.
    """
    slips = one_slip(word)
    if slips & stop_words():
        return ""
    found = snapshot.vocabulary.document_frequencies(sorted(_others(word, slips)))
    if not found and len(word) >= _TWO:
        # Of two slips seldom one is in the first third; all others are found by it.
        alike = snapshot.vocabulary.terms_with_prefix(
            word[: len(word) // 3], len(word) - 2, len(word) + 2, _LOOKED
        )
        found = {each: alike[each] for each in _others(word, alike) if _within(word, each)}
    # Terms are counted in all of a document, and not all of it may stand in a passage.
    there = known(found, snapshot)
    return min(there, key=lambda each: (-found[each], each), default="")


def one_slip(word: str) -> set[str]:
    """All words with two letters changed over, and in longer words with one more, one less or another one.

    The first letter is seldom mistyped otherwise: what differs there is another word.
    """
    halves = [(word[:at], word[at:]) for at in range(len(word))]
    found: set[str] = set()
    if len(word) >= _SWAPPED:
        found |= {one + two[1] + two[0] + two[2:] for one, two in halves if len(two) > 1}
    if len(word) >= _LACKING:
        found |= {one + letter + two for one, two in halves[1:] for letter in ascii_lowercase}
    if len(word) >= _ANY:
        found |= {one + letter + two[1:] for one, two in halves[1:] for letter in ascii_lowercase}
        found |= {one + two[1:] for one, two in halves[1:]}
    return found - {word}


def _others(word: str, words: Iterable[str]) -> list[str]:
    """Those that differ by more than an ending: `parse` and `parser` are both right."""
    return [each for each in words if not each.startswith(word) and not word.startswith(each)]


def _within(word: str, other: str) -> bool:
    """Whether one is the other with letters too many, and none that is wrong: `authentification`."""
    short, long = sorted((word, other), key=len)
    left = iter(long)
    return all(letter in left for letter in short)
