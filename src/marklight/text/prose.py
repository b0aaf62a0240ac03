"""The words of prose: folded, stemmed, without stop words, pairs of signs where no spaces are written."""

from __future__ import annotations

import re
import unicodedata

from marklight.text.forms import one_form

STOP_WORDS = frozenset(
    "a about all also am an and any are as at be been but by can could did do does for from had has have "
    "he her him his how i if in into is it its just me my of on or our out she should so some such than "
    "that the their them then there these they this those to too us was we were what when where which "
    "who why will with would you your".split()
)
"""Words that say nothing about what a passage is about; a query of nothing else keeps them."""

_CJK = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0002ffff\U00030000-\U0003ffff"
)
_ENDING = r"(?:['’](?:s|t|re|ve|ll|d|m)\b|\+\+(?!\w)|#(?!\w))?"
_RUNS = re.compile(rf"\w+{_ENDING}|\.net\b")
_MIXED_RUNS = re.compile(rf"[{_CJK}]+|(?:(?![{_CJK}])\w)+{_ENDING}|\.net\b")
"""The same for text that also holds runs written without spaces; slower, so used only there."""
_SHORTENED = re.compile(r"'(?:s|re|ve|ll|d|m)$")
"""Not `'t`: what can't be is another matter than what can."""
_CJK_SIGN = re.compile(f"[{_CJK}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")
"""Only the marks of Latin, Greek and Cyrillic: elsewhere a mark changes the letter."""
MAX_WORD = 64
"""Longer runs are hashes or encoded data: nobody types them, and they bloat the index."""


class _Words(dict[str, str]):
    """What becomes of each run of letters, found once since documents repeat their words; empty is dropped."""

    _MOST = 200_000

    def __missing__(self, run: str) -> str:
        if len(self) >= self._MOST:
            self.clear()
        # Which apostrophe a program puts makes no other word, and `what's` says as little as `what is`.
        word = bare(run).replace("’", "'")
        stops = not word or word in STOP_WORDS or _SHORTENED.sub("", word) in STOP_WORDS
        word = self[run] = "" if stops else _stem(word)
        return word


_words = _Words()


def bare(run: str) -> str:
    """A run without emphasis, `_so_`; `C++`, `C#` and `F#` keep their signs, other words lose them."""
    run = run.strip("_")
    letters = run.rstrip("+#").rstrip("_") if run and run[-1] in "+#" else run
    return run if len(letters) == 1 else letters


def _stem(word: str) -> str:
    """`C++`, `C#` and `F#` have none but themselves."""
    from Stemmer import Stemmer

    return str(Stemmer("english", 0).stemWord(one_form(word))) if len(word) <= MAX_WORD else ""


def words(text: str) -> list[str]:
    """The words of prose as the index keeps them: folded, stemmed, without stop words.

    Chinese, Japanese and Korean runs become pairs of characters; `C++`, `C#` and `.NET` stay whole.
    """
    folded = fold(text)
    if not has_cjk(folded):
        return [word for run in _RUNS.findall(folded) if (word := _words[run])]
    found: list[str] = []
    for run in _MIXED_RUNS.findall(folded):
        if is_cjk(run):
            found.extend(pairs(run))
        elif word := _words[run]:
            found.append(word)
    return found


def runs(folded: str) -> list[str]:
    """The runs of letters and digits that become words; signs written without spaces stand apart."""
    return (_MIXED_RUNS if has_cjk(folded) else _RUNS).findall(folded)


def has_cjk(folded: str) -> bool:
    """Whether a text holds signs that are written without spaces."""
    return not folded.isascii() and bool(_CJK_SIGN.search(folded))


def is_cjk(run: str) -> bool:
    """Whether a run is made of such signs."""
    return bool(_CJK_SIGN.match(run))


def pairs(run: str) -> list[str]:
    """A run of such signs as the index keeps it."""
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def flat(text: str) -> str:
    """As names and texts are compared: case, accents and the shape of white space do not matter."""
    return " ".join(fold(text).split())


def fold(text: str) -> str:
    """Lower case, with compatibility forms and accents laid aside, so that `Café` finds `cafe`."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    decomposed = unicodedata.normalize("NFKD", lowered)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))
