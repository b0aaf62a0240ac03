"""Phrase matching: exact word sequences, without stemming and stop words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from marklight.text.analyzer import (
    ENGLISH,
    analyze,
    bigrams,
    fold,
    has_cjk,
    is_cjk,
    strip_marks,
    tokenize,
)

CACHED_PHRASES = 256
"""Compiled phrases that are kept; a query has a few. Hand-set; not measured."""

_PLAIN = re.compile(r"\w+", re.ASCII)
_WORD = re.compile(r"\w+")


class _Phrase:
    """A compiled phrase; two regular expressions decide for most texts without tokenizing them."""

    def __init__(self, phrase: str) -> None:
        self.tokens = _tokens(_folded(phrase))
        self.needle = _joined(self.tokens)
        # Necessary: no letter between the words or beside them; only `.net` may follow letters.
        # Sufficient: nothing but white space between the words.
        gaps = (
            "" if not at else r"[\W_]*" if token[0] == "." else r"[\W_]+"
            for at, token in enumerate(self.tokens)
        )
        spread = "".join(
            gap + re.escape(token) for gap, token in zip(gaps, self.tokens, strict=True)
        )
        plain = all(_PLAIN.fullmatch(token) for token in self.tokens)
        close = r"\s+".join(map(re.escape, self.tokens))
        self.necessary = re.compile(rf"{spread}(?![^\W_])")
        self.sufficient = re.compile(rf"(?<![\w'+#.]){close}(?![\w'+#])") if plain else None

    def occurs_in(self, text: str) -> bool:
        folded = _folded(text)
        if not all(token in folded for token in self.tokens):
            return False
        if not has_cjk(folded):
            if not self.necessary.search(folded):
                return False
            if self.sufficient and self.sufficient.search(folded):
                return True
        return self.needle in _joined(_tokens(folded), whole=True)


_phrase = lru_cache(maxsize=CACHED_PHRASES)(_Phrase)


def matches_phrases(phrases: Iterable[str], excluded: Iterable[str], texts: Sequence[str]) -> bool:
    """Return true if every phrase, and no excluded one, occurs within one of the texts.

    Stop words and inflections count, case and accents do not. Of CJK text any substring matches. A phrase
    without words matches everything.
    """
    return all(_occurs(phrase, texts) for phrase in phrases if _phrase(phrase).tokens) and not any(
        _occurs(phrase, texts) for phrase in excluded if _phrase(phrase).tokens
    )


def contains_sequence(phrase: str, text: str) -> bool:
    """Return true if a lower-case text contains the words of a phrase with only punctuation, but no NUL, between them.

    Less exact than `matches_phrases`, as accents count, but much faster: nothing is compiled.
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
        if end >= 0 and not _is_word_character(text, at - 1) and not _is_word_character(text, end):
            return True
        at = text.find(first, at + 1)
    return False


def _next_word(text: str, at: int) -> int:
    while at < len(text) and text[at] != "\0" and not _is_word_character(text, at):
        at += 1
    return at


def _is_word_character(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


def phrase_terms(phrase: str, language: str = ENGLISH) -> list[str]:
    """Return index terms that every text in this language with this phrase has; may be empty."""
    terms: list[str] = []
    for token in _phrase(phrase).tokens:
        if is_cjk(token):
            terms += bigrams(token) if len(token) > 1 else []
        else:
            terms += analyze(token, language)
    return list(dict.fromkeys(terms))


def has_words(text: str) -> bool:
    """Return true if a text contains any word."""
    return bool(_phrase(text).tokens)


def _occurs(phrase: str, texts: Sequence[str]) -> bool:
    return any(_phrase(phrase).occurs_in(text) for text in texts)


def _folded(text: str) -> str:
    folded = fold(text)
    return folded.replace("’", "'") if "’" in folded else folded


def _tokens(folded: str) -> list[str]:
    return [word for token in tokenize(folded) if (word := strip_marks(token))]


def _joined(tokens: list[str], whole: bool = False) -> str:
    """Join tokens with a space on each side, so that no part of a word matches; CJK text may match in part."""
    if not tokens:
        return ""
    before = " " if whole or not is_cjk(tokens[0]) else ""
    after = " " if whole or not is_cjk(tokens[-1]) else ""
    return before + " ".join(tokens) + after
