"""Snippets: the sentence of a passage that answers a query, and the part of the passage that is shown around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from marklight.lazy import lazy_pattern
from marklight.model import Chunk, Kind
from marklight.text.analyzer import analyze
from marklight.text.lines import sentence_ends
from marklight.text.markdown import readable

_LIST = lazy_pattern(
    r"(?:^[^\n]*:\n)?(?:^[ \t]*(?:[•☐☑]|\d{1,9}[.)])[ \t][^\n]*(?:\n|\Z))+", re.MULTILINE
)
"""The items of a list in readable text, each of which is one line, and the line above that ends with a colon."""
SNIPPET_CHARACTERS = 420
MAX_SOURCE = 20_000
"""Characters of a passage that an excerpt is chosen from; only whole sections are longer."""

Span = tuple[int, int]
"""First character and the one after the last."""
Size = Callable[[str], int]
"""Returns the size of a text, in the unit of a limit: characters, or rows of a terminal."""


class QueryTerms(NamedTuple):
    """The part of a query that an excerpt depends on."""

    terms: frozenset[str]
    languages: Sequence[str]
    has_phrases: bool = False
    """The query quotes a phrase, which may be in boilerplate."""


class Excerpt(NamedTuple):
    """The part of a passage that is shown, and the sentence in it that answers."""

    header: str
    """The first row of a table, above a part that does not contain it; else empty."""
    before: bool
    """True if other text is left out before it."""
    text: str
    """The part and all that follows: what of it has room is shown."""
    sentence: Span
    """First character of the sentence in `text`, and the one after its last; both 0 if no sentence has a term of the query."""


class Snippet(NamedTuple):
    """A short excerpt as text."""

    text: str
    sentence: Span
    """First character of the sentence that answers, and the one after its last; both 0 if there is none."""


def excerpt(chunk: Chunk, query: QueryTerms, limit: int, size: Size = len) -> Excerpt:
    """Return the part of a passage that answers a query: sentences, list items, rows or lines of code up to a size.

    It is the part with the highest sum of squared numbers of query terms, so that one sentence with three terms counts
    more than three with one. In passages that answer the questions of four vaults (139), eight rows hold the answer in
    124 cases, four in 107; with the part that has the most distinct terms 121 and 105. Weights by idf, terms of the
    heading, adjacent terms, a number for "how many" and the like, and the cosine of each sentence (50 ms) change that
    by 3 at most, up on one vault and down on another. A list that fits is shown whole, with the line above it.
    """
    text = readable(chunk.snippet_text(query.has_phrases), reflow=True)[:MAX_SOURCE]
    header = text.partition("\n")[0] if chunk.kind is Kind.TABLE and size(text) > limit else ""
    limit = max(1, limit - size(header)) if header else limit
    spans = _sentences(text, limit, size)
    counts = [_count(text[start:end], query) for start, end in spans]
    part = _best_part(text, spans, counts, limit, size)
    # Of sentences with equally many terms the longest: a heading or a label answers least.
    best = max(part, key=lambda place: (counts[place], spans[place][1] - spans[place][0]))
    first, last = spans[best]
    around = _list_around(text, first) if counts[best] else None
    if around and size(text[slice(*around)]) <= limit:
        part = _best_part(text, spans, counts, limit, size, around)
    start = spans[part[0]][0]
    sentence = (first - start, first - start + len(text[first:last].rstrip()))
    return Excerpt(
        header if start else "", start > 0, text[start:], sentence if counts[best] else (0, 0)
    )


def snippet(chunk: Chunk, query: QueryTerms) -> Snippet:
    """Return the part of a passage that answers a query, cut between words, with ellipses where text is left out."""
    header, is_cut, text, (first, last) = excerpt(chunk, query, SNIPPET_CHARACTERS)
    shown = _cut(text, SNIPPET_CHARACTERS)
    before = f"{header}\n" * bool(header) + "… " * is_cut
    sentence = (len(before) + first, len(before) + min(last, len(shown))) if last else (0, 0)
    return Snippet(f"{before}{shown}{' …' if len(shown) < len(text.rstrip()) else ''}", sentence)


def line_part(line: str, query: QueryTerms, limit: int) -> str:
    """Return a line, or of a long one the part with the most query terms."""
    if len(line) <= limit:
        return line
    spans = _sentences(line, limit, len)
    counts = [_count(line[start:end], query) for start, end in spans]
    text = line[spans[_best_part(line, spans, counts, limit, len)[0]][0] :]
    shown = _cut(text, limit)
    return f"{'… ' if len(text) < len(line) else ''}{shown}{' …' if len(shown) < len(text) else ''}"


def _cut(text: str, limit: int) -> str:
    """Return a text, or of a long one what fits a limit, up to the end of a word."""
    end = len(text)
    if end > limit:
        space = max(text.rfind(mark, limit // 2, limit) for mark in " \n")
        end = space if space >= 0 else limit
    return text[:end].rstrip()


def _count(text: str, query: QueryTerms) -> int:
    terms = (term for language in query.languages for term in analyze(text, language))
    return len(query.terms.intersection(terms))


def _best_part(
    text: str,
    spans: Sequence[Span],
    counts: Sequence[int],
    limit: int,
    size: Size,
    around: Span | None = None,
) -> range:
    """Return the sentences in a row with the highest sum of squared counts that fit a limit; of equals the first.

    One of them has the highest count. With `around`, they contain that part of the text.
    """
    best, most = range(1), (-1, 0)
    end = total = 0
    for begin, (start, _) in enumerate(spans):
        while end < len(spans) and (end == begin or size(text[start : spans[end][1]]) <= limit):
            total += counts[end] ** 2
            end += 1
        contains = not around or (start <= around[0] and around[1] <= spans[end - 1][1])
        if contains and (value := (max(counts[begin:end]), total)) > most:
            best, most = range(begin, end), value
        total -= counts[begin] ** 2
    return best


def _list_around(text: str, position: int) -> Span | None:
    """Return the list that contains a position of a text, with the line above that introduces it."""
    matches = _LIST.finditer(text)
    return next((each.span() for each in matches if each.start() <= position < each.end()), None)


def _sentences(text: str, limit: int, size: Size) -> list[Span]:
    """Return where sentences and lines begin and end, and parts of sentences that are longer than the limit."""
    spans: list[Span] = []
    start = 0
    for end in (*sentence_ends(text, 0, len(text)), len(text)):
        # The number of a list item is no sentence.
        if end == len(text) or any(map(str.isalpha, text[start:end])):
            spans += _parts(text, start, end, limit, size)
            start = end
    return spans


def _parts(text: str, start: int, end: int, limit: int, size: Size) -> list[Span]:
    """Split a sentence that is longer than the limit between words, so that what is shown of it may begin within it."""
    total = size(text[start:end])
    if total <= limit:
        return [(start, end)]
    length = max(1, (end - start) * limit // total // 2)
    starts = [start]
    while starts[-1] + 2 * length < end:
        middle = starts[-1] + length
        space = text.find(" ", middle, middle + length)
        starts.append(middle if space < 0 else space + 1)
    return list(pairwise([*starts, end]))
