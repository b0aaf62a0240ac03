"""Hits as a table that fits the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from wcwidth import wcwidth

from marklight.answer import Hit
from marklight.escaping import QUOTE, one_line
from marklight.formatting import place
from marklight.model import trail
from marklight.surfaces.style import PLAIN, Style
from marklight.text import analyze, query_terms, split_sentences, strip_markup

LEAST_TRAIL = 16
"""Columns; a trail of headings with less room than that says nothing."""
LEAST_PLACE = 12
_INDENT = " " * 5 + QUOTE


def listing(
    hits: Sequence[Hit],
    *,
    question: str,
    width: int,
    first: int = 1,
    several_collections: bool = False,
    style: Style = PLAIN,
) -> str:
    """Print two lines a hit: rank, score, kind, place and headings; below, quoted, what fits the question."""
    places = [place(hit.chunk, several_collections) for hit in hits]
    heads = [
        f"{rank:>3}  {hit.score:.2f}  {hit.chunk.kind:<5}  " for rank, hit in enumerate(hits, first)
    ]
    room = max(LEAST_PLACE, width - max(map(len, heads), default=0))
    column = min(room, max(map(columns, places), default=0))
    wanted = set(query_terms(question))
    rows = []
    for head, where, hit in zip(heads, places, hits, strict=True):
        shown = cut_left(where, column)
        left = room - column - 2
        headings = one_line(trail(hit.chunk.title, hit.chunk.headings))
        row = head + style.bold(style.link(shown, hit.chunk.document, hit.chunk.lines[0]))
        if headings and left >= LEAST_TRAIL:
            row += " " * (column - columns(shown) + 2) + cut_left(headings, left)
        rows += [
            row,
            style.dim(_INDENT + cut(preview(hit.chunk.text, wanted), width - len(_INDENT))),
        ]
    return "\n".join(row.rstrip() for row in rows)


def preview(text: str, wanted: set[str]) -> str:
    """One line of a passage, from the first of the sentences that hold most of the words wanted."""
    sentences = split_sentences(strip_markup(text))
    if not sentences:
        sentences = [text]
    best = max(
        range(len(sentences)), key=lambda at: (len(wanted & set(analyze(sentences[at]))), -at)
    )
    line = " ".join(" ".join(sentences[best:]).split())
    return one_line(f"… {line}" if best else line)


def columns(text: str) -> int:
    """What a text takes on a terminal: Chinese signs two columns, accents that join none."""
    return sum(max(0, wcwidth(sign)) for sign in text)


def cut(text: str, width: int) -> str:
    """The beginning of a text, within so many columns."""
    if columns(text) <= width:
        return text
    return f"{_within(text, width - 1)}…"


def cut_left(text: str, width: int) -> str:
    """The end of a text, within so many columns: of a path, and of headings, it tells most."""
    if columns(text) <= width:
        return text
    end = _within(text[::-1], width - 1)[::-1]
    while end and wcwidth(end[0]) == 0:  # an accent whose letter was cut off
        end = end[1:]
    return f"…{end}"


def _within(text: str, width: int) -> str:
    taken = 0
    for at, sign in enumerate(text):
        taken += max(0, wcwidth(sign))
        if taken > width:
            return text[:at]
    return text
