"""Table of results in the interactive session: two lines a result, with a preview of the passage."""

from __future__ import annotations

from collections.abc import Sequence

from marklight.answer import Hit
from marklight.formatting import QUOTE, one_line, place_text
from marklight.model import trail
from marklight.surfaces.cli.output import cut, cut_left, display_width
from marklight.surfaces.render import PLAIN, Style
from marklight.text import analyze, query_terms
from marklight.text.lines import split_sentences
from marklight.text.markdown import readable

MINIMUM_TRAIL = 16
"""Columns; a shorter trail of headings is not shown."""
MINIMUM_PLACE = 12
_PREVIEW_INDENT = " " * 5 + QUOTE


def result_table(
    hits: Sequence[Hit],
    *,
    query: str,
    width: int,
    first: int = 1,
    several_collections: bool = False,
    style: Style = PLAIN,
) -> str:
    """Render two lines a result: rank, score, kind, place and headings; below, a quoted preview."""
    places = [place_text(hit.chunk.document, several_collections, hit.chunk.lines) for hit in hits]
    heads = [
        f"{rank:>3}  {hit.score:.2f}  {hit.chunk.kind:<5}  " for rank, hit in enumerate(hits, first)
    ]
    available = max(MINIMUM_PLACE, width - max(map(len, heads), default=0))
    column = min(available, max(map(display_width, places), default=0))
    terms = set(query_terms(query))
    rows = []
    for head, where, hit in zip(heads, places, hits, strict=True):
        shown = cut_left(where, column)
        left = available - column - 2
        headings = one_line(trail(hit.chunk.title, hit.chunk.headings))
        row = head + style.bold(style.link(shown, hit.chunk.document, hit.chunk.lines[0]))
        if headings and left >= MINIMUM_TRAIL:
            row += " " * (column - display_width(shown) + 2) + cut_left(headings, left)
        similar = f"+{len(hit.similar)} similar · " if hit.similar else ""
        text = hit.chunk.snippet_text(quoted='"' in query)
        line = cut(similar + preview(text, terms), width - len(_PREVIEW_INDENT))
        rows += [row, style.dim(_PREVIEW_INDENT + line)]
    return "\n".join(row.rstrip() for row in rows)


def preview(text: str, terms: set[str]) -> str:
    """Return one line of a passage that starts with the first sentence containing the most query terms."""
    sentences = split_sentences(readable(text))
    if not sentences:
        sentences = [text]
    best = max(
        range(len(sentences)), key=lambda at: (len(terms & set(analyze(sentences[at]))), -at)
    )
    line = " ".join(" ".join(sentences[best:]).split())
    return one_line(f"… {line}" if best else line)
