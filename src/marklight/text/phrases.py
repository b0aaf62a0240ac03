"""Exact phrases: words as they are written, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from marklight.text.prose import bare, fold, is_cjk, pairs, runs, words

_PLAIN = re.compile(r"\w+", re.ASCII)


class _Phrase:
    """A phrase made ready to be looked for; a text of many kilobytes is rarely taken apart."""

    def __init__(self, phrase: str) -> None:
        self.runs = _runs(_folded(phrase))
        self.needle = _joined(self.runs)
        # Where nothing but blanks stands between words, and no sign that could belong to them
        # beside, the phrase is there for certain, and the text need not be taken apart.
        plain = all(_PLAIN.fullmatch(run) for run in self.runs)
        inner = r"\s+".join(map(re.escape, self.runs))
        self.certain = re.compile(rf"(?<![\w'’+#.]){inner}(?![\w'’+#])") if plain else None

    def stands_in(self, text: str) -> bool:
        folded = _folded(text)
        if not all(run in folded for run in self.runs):
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


def phrase_words(phrase: str) -> list[str]:
    """Words that the index has for every text in which the phrase stands; maybe none."""
    found: list[str] = []
    for run in _phrase(phrase).runs:
        if is_cjk(run):
            found += pairs(run) if len(run) > 1 else []
        elif "'" not in run:  # the index tells one kind of apostrophe from the other
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
