"""Words, identifiers and digests: pure functions that documents, queries and all engines share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marklight.model import Chunk

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
_CJK_SIGN = re.compile(f"[{_CJK}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")
"""Only the marks of Latin, Greek and Cyrillic: elsewhere a mark changes the letter."""
_MAX_WORD = 64
"""Longer runs are hashes or encoded data: nobody types them, and they bloat the index."""


class _Words(dict[str, str]):
    """What becomes of each run of letters, found once since documents repeat their words; empty is dropped."""

    _MOST = 200_000

    def __missing__(self, run: str) -> str:
        if len(self) >= self._MOST:
            self.clear()
        word = self[run] = "" if run in STOP_WORDS else stem(run)
        return word


_words = _Words()


def stem(run: str) -> str:
    """A word's stem; `C++`, `C#` and `F#` keep their signs, other words lose them."""
    from Stemmer import Stemmer

    if run[-1] in "+#":
        bare = run.rstrip("+#")
        if len(bare) == 1:
            return run
        run = bare
    return str(Stemmer("english", 0).stemWord(run)) if len(run) <= _MAX_WORD else ""


def words(text: str) -> list[str]:
    """The words of prose as the index keeps them: folded, stemmed, without stop words.

    Chinese, Japanese and Korean runs become pairs of characters; `C++`, `C#` and `.NET` stay whole.
    """
    folded = fold(text)
    if folded.isascii() or not _CJK_SIGN.search(folded):
        return [word for run in _RUNS.findall(folded) if (word := _words[run])]
    found: list[str] = []
    for run in _MIXED_RUNS.findall(folded):
        if not _CJK_SIGN.match(run):
            if word := _words[run]:
                found.append(word)
        elif len(run) == 1:
            found.append(run)
        else:
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
    return found


def query_words(text: str) -> list[str]:
    """The words of a question; one made of stop words only keeps them all, so it is never empty."""
    return words(text) or [run for run in _RUNS.findall(fold(text)) if len(run) <= _MAX_WORD]


def fold(text: str) -> str:
    """Lower case, with compatibility forms and accents laid aside, so that `Café` finds `cafe`."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    decomposed = unicodedata.normalize("NFKD", lowered)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


_IDENTIFIER = re.compile(r"c\+\+|[A-Za-z_$][\w$]*|::|\d+(?:\.\d+)*|[^\W\d_]+", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")


class _Names(dict[str, tuple[str, ...]]):
    """Each name whole and in its parts, found once since code repeats its names."""

    _MOST = 200_000

    def __missing__(self, name: str) -> tuple[str, ...]:
        if len(self) >= self._MOST:
            self.clear()
        whole = name.lower()
        parts = () if name[-1] == "+" else (part.lower() for part in _PARTS.findall(name))
        tokens = (whole, *(part for part in parts if part != whole))
        self[name] = tuple(token for token in tokens if len(token) <= _MAX_WORD)
        return self[name]


_names = _Names()


def identifiers(text: str) -> list[str]:
    """The words of code: each name whole and in its parts, so `getUserById` finds `get_user_by_id`."""
    return [token for name in _IDENTIFIER.findall(text) for token in _names[name]]


_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]]{0,2000})\]\([^()\s]{0,2000}(?:\s\"[^\"\n]{0,500}\")?\)")
_WIKILINK = re.compile(r"!?\[\[([^\[\]|\n]{1,500})(?:\|([^\[\]\n]{0,500}))?\]\]")
_TAG = re.compile(r"</?[A-Za-z][\w.:-]*(?:\s[^<>]{0,2000})?/?>")
_SHORTCODE = re.compile(r"\{\{[<%]([^{}]{0,2000})[>%]\}\}")
_QUOTED = re.compile(r'"([^"\n]{1,500})"')
_SHOWN = re.compile(r'\btext\s*=\s*"([^"\n]{1,500})"')


def plain(markdown: str) -> str:
    """What a passage says, without addresses, tags and macros; quoted macro values are words too."""
    text = markdown
    if "{{" in text:
        # Before links and tags: `{{<name` looks like a tag, and a link may lead to `{{< ref >}}`.
        text = _SHORTCODE.sub(_macro_words, text)
    if "](" in text:
        text = _IMAGE_OR_LINK.sub(r"\1", text)
    if "[[" in text:
        text = _WIKILINK.sub(lambda found: found[2] or found[1], text)
    if "<" in text:
        text = _without_comments(text)
        text = _TAG.sub(" ", text)
    return text


def _macro_words(found: re.Match[str]) -> str:
    """What a shortcode shows: its `text`, else all that is quoted, but never an address."""
    inner = found[1].strip()
    if inner.startswith(("ref ", "relref ", "include ")):
        return ""
    shown = _SHOWN.search(inner)
    return shown[1] if shown else " ".join(_QUOTED.findall(inner))


def _without_comments(text: str) -> str:
    # By hand: a pattern looks for the end of every unclosed comment anew, which is quadratic.
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        kept.append(text[at:start])
        at = end + 3
    return "".join(kept) + text[at:]


def trail(title: str, headings: Iterable[str]) -> str:
    """`title > heading > heading`, each once where the first heading repeats the title."""
    steps = [title] if title else []
    for heading in headings:
        if not steps or heading != steps[-1]:
            steps.append(heading)
    return " > ".join(steps)


def passage(title: str, headings: Iterable[str], text: str) -> str:
    """What is embedded for a passage; the blank line keeps its place in the document apart from it."""
    return f"{trail(title, headings)}\n\n{plain(text)}"


def passage_of(chunk: Chunk) -> str:
    """What is embedded for this chunk."""
    return passage(chunk.title, chunk.headings, chunk.text)


def digest(*parts: str, size: int = 16) -> str:
    """A short stable name for these texts together; the length of each is part of it."""
    hasher = blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()
