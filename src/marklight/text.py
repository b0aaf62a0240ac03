"""Words, identifiers and digests: pure functions that documents, queries and all engines share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
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
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*)((?:\s[^<>]{0,2000})?/?)>")
_CLOSING = re.compile(r"</([A-Za-z][\w.:-]*)\s*>")
_VOID = frozenset(("br", "hr", "wbr"))
_LAYOUT = frozenset(
    "a b blockquote center dd details div dl dt em figcaption figure font h1 h2 h3 h4 h5 h6 i img kbd li "
    "ol p pre small span strong sub summary sup table tbody td tfoot th thead tr u ul".split()
)
"""What stands open where a passage ends before its tag does; few of them name a value, as `<pod>` does."""
_SHORTCODE = re.compile(r"\{\{[<%]([^{}]{0,2000})[>%]\}\}")
_QUOTED = re.compile(r'"([^"\n]{1,500})"')
_SHOWN = re.compile(r'\btext\s*=\s*"([^"\n]{1,500})"')


_CODE_MARK = re.compile(r"`+|~~~+|\n[ \t]*\n")
_BEFORE_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?")
_DEEPEST_FENCE = 64
"""Characters that may stand before a fence on its line: quotes, list items, blanks."""
_HIDDEN = str.maketrans("<[]{", "\x01\x02\x03\x04")
"""Signs of markup, and what stands for them inside code: ASCII, so that a text stays one byte a sign."""


def plain(markdown: str) -> str:
    """What a passage says, without addresses, tags and macros; quoted macro values are words too.

    Code is left as it is, and so is what only looks like a tag: `vector<int>`, `delete <pod>`.
    """
    text = markdown
    if "<" not in text and "[" not in text and "{{" not in text:
        return text
    if hides := "`" in text or "~~~" in text:
        text = _with_code_hidden(text)
    if "{{" in text:
        # Before links and tags: `{{<name` looks like a tag, and a link may lead to `{{< ref >}}`.
        text = _SHORTCODE.sub(_macro_words, text)
    if "](" in text:
        text = _IMAGE_OR_LINK.sub(r"\1", text)
    if "[[" in text:
        text = _WIKILINK.sub(lambda found: found[2] or found[1], text)
    if "<" in text:
        text = _without_tags(_without_comments(text))
    if hides:
        for sign, hidden in _HIDDEN.items():
            text = text.replace(chr(hidden), chr(sign))
    return text


def _with_code_hidden(text: str) -> str:
    """Hidden rather than cut out, since a link may have code for its words."""
    kept: list[str] = []
    at = 0
    for start, end in _code(text):
        kept += [text[at:start], text[start:end].translate(_HIDDEN)]
        at = end
    return "".join(kept) + text[at:]


def _code(text: str) -> list[tuple[int, int]]:
    """Where the code is: from fence to fence, and inside a paragraph between runs of as many backticks."""
    found: list[tuple[int, int]] = []
    runs: list[tuple[int, re.Match[str]]] = []
    paragraph, fence, start = 0, "", 0
    for mark in _CODE_MARK.finditer(text):
        sign = mark[0]
        if sign[0] == "\n":
            paragraph += 1
        elif len(sign) >= 3 and _begins_line(text, mark.start()):
            line_end = text.find("\n", mark.end())
            rest = text[mark.end() : line_end if line_end >= 0 else len(text)]
            if fence:
                if sign.startswith(fence) and not rest.strip():
                    found.append((start, mark.start()))
                    fence = ""
            elif sign[0] == "~" or "`" not in rest:
                paragraph, fence, start = paragraph + 1, sign, mark.end()
            else:
                runs.append((paragraph, mark))
        elif not fence and sign[0] == "`":
            runs.append((paragraph, mark))
    if fence:
        found.append((start, len(text)))
    return sorted([*found, *_inline_code(runs)])


def _begins_line(text: str, at: int) -> bool:
    earliest = max(0, at - _DEEPEST_FENCE)
    line = text.rfind("\n", earliest, at) + 1
    return (line > 0 or earliest == 0) and bool(_BEFORE_FENCE.fullmatch(text, line, at))


def _inline_code(runs: list[tuple[int, re.Match[str]]]) -> Iterator[tuple[int, int]]:
    # Each run's partner is found from the end: a search forward from each would be quadratic.
    partner: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for number in range(len(runs) - 1, -1, -1):
        paragraph, mark = runs[number]
        key = (paragraph, len(mark[0]))
        if key in last:
            partner[number] = last[key]
        last[key] = number
    number = 0
    while number < len(runs):
        end = partner.get(number)
        if end is not None:
            yield runs[number][1].end(), runs[end][1].start()
        number = number + 1 if end is None else end + 1


def _without_tags(text: str) -> str:
    closed = frozenset(_CLOSING.findall(text))

    def kept(found: re.Match[str]) -> str:
        closing, name, attributes = found.groups()
        glued = found.start() > 0 and text[found.start() - 1].isalnum()
        markup = (
            closing
            or name in closed
            or attributes.endswith("/")
            or "=" in attributes
            or name.lower() in _VOID
            or (name.lower() in _LAYOUT and not glued and not attributes)
        )
        return " " if markup else found[0]

    return _TAG.sub(kept, text)


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


def too_wild(pattern: str) -> bool:
    """Whether a pattern has more wildcards in one name, or crosses folders more often, than can be tried.

    Each further `*` multiplies the ways to match one name: with 25 of them a single file takes hours.
    """
    names = [name for name in pattern.split("/") if name != "**"]
    return pattern.count("**") > 8 or any(name.count("*") > 4 for name in names)


def digest(*parts: str, size: int = 16) -> str:
    """A short stable name for these texts together; the length of each is part of it."""
    hasher = blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()
