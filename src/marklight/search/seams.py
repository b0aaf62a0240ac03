"""Words that one writes in one part and another in two: `wifi`, `Wi-Fi`; `dropdown`, `drop down`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from marklight.answer import Filters
from marklight.ports import Snapshot
from marklight.text import analyze, fold, has_cjk, stop_words

MOST_LOOKED = 36
"""Words of a question that are looked at; a pasted text says with these what it is about."""

_RUN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_HYPHENS = r"-‐‑_./"
"""What stands between the parts of a word: `Wi-Fi`, `Node.js`, `TCP/IP`, `drop_down`."""
_LEAST, _MOST = 3, 30
"""Letters of a word that is taken apart."""
_TRIED, _READ = 4, 20
"""Ways to take it apart that are looked for in texts, and the best passages with both parts that are read for it."""
_BOTH = 0.999
"""The share of two words that is both."""


class Part(NamedTuple):
    """A word of a question, or neighbours as one word."""

    start: int
    end: int
    text: str
    word: str
    tight: bool = True
    """Whether no blank is in it."""

    @property
    def plain(self) -> bool:
        """Whether it is made of letters alone and of one word: no number, nor a name such as `getUser`."""
        return self.word.isalpha() and (self.text[1:].islower() or self.text.isupper())


def runs(text: str) -> list[Part]:
    """Words as they stand there; none with an apostrophe, and no signs that are written without spaces."""
    found = islice(_RUN.finditer(text), MOST_LOOKED)
    parts = (Part(each.start(), each.end(), each[0], fold(each[0])) for each in found)
    return [each for each in parts if each.word.isalnum() and not has_cjk(each.word)]


def joints(text: str, runs: Sequence[Part]) -> list[Part]:
    """Three or two of them with a hyphen between them, or two with a blank, as one word each."""
    found = []
    for count in (3, 2):
        for some in zip(*(runs[at:] for at in range(count)), strict=False):
            gaps = [text[one.end : two.start] for one, two in pairwise(some)]
            tight = all(len(gap) == 1 and gap in _HYPHENS for gap in gaps)
            loose = gaps == [" "] and all(map(_is_word, some))
            word = "".join(each.word for each in some)
            if (tight or loose) and analyze(word) and all(_seam(*two) for two in pairwise(some)):
                start, end = some[0].start, some[-1].end
                found.append(Part(start, end, text[start:end], word, tight))
    return found


def _is_word(part: Part) -> bool:
    """One that may be half of another: `index of` is not `indexof`, nor `take n` `taken`."""
    return len(part.word) > 1 and part.word not in stop_words()


def _seam(one: Part, two: Part) -> bool:
    """`1.20` is another number than `120`."""
    return not (one.word[-1].isdigit() and two.word[0].isdigit())


def apart(parts: Iterable[Part]) -> list[Part]:
    """Those that share no place with one before them."""
    found: list[Part] = []
    for each in parts:
        if all(each.end <= one.start or one.end <= each.start for one in found):
            found.append(each)
    return found


def known(asked: Iterable[str], snapshot: Snapshot) -> set[str]:
    """Words that stand somewhere in the library, in whatever form; stop words are everywhere."""
    stems = {word: set(analyze(word)) for word in asked}
    there = snapshot.lexical.existing_terms(list(set().union(*stems.values())))
    return {word for word, own in stems.items() if own <= there}


def stands(joint: Part, snapshot: Snapshot) -> bool:
    """Whether it stands in the library as it is typed: then it means what it says there.

    With a blank, one passage that has both words is enough. `fine-tuning` would else be looked for as
    `finetuning` too, which some pages write: Anthropic's lost .003 of nDCG@10 by that.
    """
    if joint.tight:
        one, two, *_ = _RUN.findall(fold(joint.text.replace("_", " ")))
        return bool(_side_by_side(one, two, snapshot))
    stems = analyze(joint.text)
    best = [
        each.chunk_id for each in snapshot.lexical.search(stems, {"whole": 1.0}, Filters(), _READ)
    ]
    return any(
        each.anywhere > _BOTH for each in snapshot.lexical.term_coverage(stems, best).values()
    )


def in_parts(word: str, snapshot: Snapshot) -> str:
    """As the library writes it in two parts; empty where it does not."""
    if not _LEAST <= len(word) <= _MOST:
        return ""
    ways = [
        (word[:at], word[at:])
        for at in range(1, len(word))
        if not (word[at - 1].isdigit() and word[at].isdigit())
    ]
    there = known((part for way in ways for part in way), snapshot)
    likely = sorted(
        (way for way in ways if there.issuperset(way)), key=lambda way: -min(map(len, way))
    )
    found = (_side_by_side(one, two, snapshot) for one, two in likely[:_TRIED])
    return next(filter(None, found), "")


def _side_by_side(one: str, two: str, snapshot: Snapshot) -> str:
    """As they stand in one of the best passages with both, with one sign between them; the second in any form.

    A stop word is a part of another only by a hyphen: `sign-in`, but not `a part`.
    """
    stems = [*analyze(one), *analyze(two)]
    if not stems:
        return ""
    blank = "" if stop_words().intersection((one, two)) else r"\s"
    pattern = re.compile(rf"(?<![^\W_]){re.escape(one)}[{_HYPHENS}{blank}]([^\W_]+)")
    best = snapshot.lexical.search(stems, {"whole": 1.0}, Filters(), _READ)
    for text in _texts([each.chunk_id for each in best], snapshot):
        for match in pattern.finditer(fold(text)):
            if analyze(match[1]) == analyze(two) and (analyze(two) or match[1] == two):
                return " ".join(match[0].split())
    return ""


def _texts(chunks: Sequence[str], snapshot: Snapshot) -> Iterator[str]:
    for chunk in snapshot.documents.chunks(chunks):
        yield "\n\n".join((chunk.title, *chunk.headings, *chunk.merged, chunk.text))
