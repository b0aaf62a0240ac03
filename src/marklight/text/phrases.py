"""Exact phrases: words as they are written, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from marklight.text.prose import bare, fold, has_cjk, is_cjk, pairs, runs, words

_PLAIN = re.compile(r"\w+", re.ASCII)
_WORD = re.compile(r"\w+")


class _Phrase:
    """A phrase made ready to be looked for; few texts have to be taken apart for it."""

    def __init__(self, phrase: str) -> None:
        self.runs = _runs(_folded(phrase))
        self.needle = _joined(self.runs)
        # Where no letter stands between its words or beside them, it may be there; `.net` alone
        # follows on letters. Where nothing but blanks does, it is there for certain.
        gaps = (
            "" if not at else r"[\W_]*" if run[0] == "." else r"[\W_]+"
            for at, run in enumerate(self.runs)
        )
        spread = "".join(gap + re.escape(run) for gap, run in zip(gaps, self.runs, strict=True))
        plain = all(_PLAIN.fullmatch(run) for run in self.runs)
        close = r"\s+".join(map(re.escape, self.runs))
        self.possible = re.compile(rf"{spread}(?![^\W_])")
        self.certain = re.compile(rf"(?<![\w'+#.]){close}(?![\w'+#])") if plain else None

    def stands_in(self, text: str) -> bool:
        folded = _folded(text)
        if not all(run in folded for run in self.runs):
            return False
        if not has_cjk(folded):
            if not self.possible.search(folded):
                return False
            if self.certain and self.certain.search(folded):
                return True
        return self.needle in _joined(_runs(folded), whole=True)


_phrase = lru_cache(maxsize=256)(_Phrase)


def admits(phrases: Iterable[str], without: Iterable[str], texts: Sequence[str]) -> bool:
    """Whether all of these phrases, and none of those, stand in one of the texts each.

    Stop words and endings count, case and accents do not. Of signs that are written without
    spaces any part of a run is found. A phrase without words asks for nothing.
    """
    return all(_stands(phrase, texts) for phrase in phrases if _phrase(phrase).runs) and not any(
        _stands(phrase, texts) for phrase in without if _phrase(phrase).runs
    )


def together(phrase: str, text: str) -> bool:
    """Whether its words stand in a text of small letters with nothing but signs between them, no NUL.

    Less exact than `admits`, since accents count, and much quicker: nothing is made ready for it.
    """
    first, *others = _WORD.findall(phrase.lower()) or [""]
    at = text.find(first) if first else -1
    while at >= 0:
        end = at + len(first)
        for word in others:
            start = _next_word(text, end)
            end = start + len(word) if start > end and text.startswith(word, start) else -1
            if end < 0:
                break
        if end >= 0 and not _letter(text, at - 1) and not _letter(text, end):
            return True
        at = text.find(first, at + 1)
    return False


def _next_word(text: str, at: int) -> int:
    while at < len(text) and text[at] != "\0" and not _letter(text, at):
        at += 1
    return at


def _letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


def phrase_words(phrase: str) -> list[str]:
    """Words that the index has for every text in which the phrase stands; maybe none."""
    found: list[str] = []
    for run in _phrase(phrase).runs:
        if is_cjk(run):
            found += pairs(run) if len(run) > 1 else []
        else:
            found += words(run)
    return list(dict.fromkeys(found))


def is_phrase(text: str) -> bool:
    """Whether there is any word in it."""
    return bool(_phrase(text).runs)


def _stands(phrase: str, texts: Sequence[str]) -> bool:
    return any(_phrase(phrase).stands_in(text) for text in texts)


def _folded(text: str) -> str:
    folded = fold(text)
    return folded.replace("’", "'") if "’" in folded else folded


def _runs(folded: str) -> list[str]:
    return [word for run in runs(folded) if (word := bare(run))]


def _joined(found: list[str], whole: bool = False) -> str:
    """With a blank on each side of a word, so that no part of it is taken for it."""
    if not found:
        return ""
    before = " " if whole or not is_cjk(found[0]) else ""
    after = " " if whole or not is_cjk(found[-1]) else ""
    return before + " ".join(found) + after
