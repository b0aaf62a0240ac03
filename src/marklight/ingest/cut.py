"""Where a text that is too long may be cut: between blocks first, then rows, sentences, words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from marklight.ingest.parse.form import Parsed
from marklight.model import Kind
from marklight.text import sentence_ends

_SPACE = re.compile(r"\s+")
_LINE, _WORD, _NOWHERE = 1000, 1001, 1002
"""Ranks of cuts inside a block; between blocks the rank is the depth of the block that follows."""


class Span(NamedTuple):
    """A slice of a document's text."""

    start: int
    end: int


class _Cut(NamedTuple):
    at: int
    rank: int


def trimmed(text: str, start: int, end: int) -> Span:
    """The slice without blank lines before it and blanks after it; indentation is kept."""
    piece = text[start:end]
    end = start + len(piece.rstrip())
    lead = len(piece) - len(piece.lstrip())
    if start + lead >= end:
        return Span(start, start)
    line = text.rfind("\n", start, start + lead)
    return Span(line + 1 if line >= 0 else start, end)


def pieces(
    parsed: Parsed, span: Span, max_chars: int, min_chars: int, overlap_chars: int
) -> list[Span]:
    """The span in pieces of at most `max_chars`; each but the first repeats the end of the one before."""
    text = parsed.document.text
    if span.end - span.start <= max_chars:
        return [span]
    cuts = list(_cuts(parsed, span, max_chars))
    found: list[Span] = []
    start = span.start
    first = 0
    while span.end - start > max_chars:
        last = first
        while last < len(cuts) and cuts[last].at - start <= max_chars:
            last += 1
        fitting = range(first, last)
        good = [
            at
            for at in fitting
            if cuts[at].at - start >= max_chars // 2 and span.end - cuts[at].at >= min_chars
        ]
        best = min(good or fitting, key=lambda at: (cuts[at].rank, -at))
        found.append(trimmed(text, start, cuts[best].at))
        start, first = cuts[best].at, best + 1
    found.append(trimmed(text, start, span.end))
    kept = [piece for piece in found if piece.end > piece.start]
    return [kept[0], *_overlapping(parsed, kept, max_chars, overlap_chars)]


def _cuts(parsed: Parsed, span: Span, max_chars: int) -> Iterator[_Cut]:
    """Every place inside the span, in order, no two further apart than `max_chars`."""
    starts, blocks = parsed.starts, parsed.structure.blocks
    first = max(0, bisect_right(blocks, span.start, key=lambda block: starts[block.line]) - 1)
    last = bisect_left(blocks, span.end, key=lambda block: starts[block.line])
    inside = blocks[first:last]
    edges = [
        _Cut(starts[block.line], block.depth)
        for block in inside
        if span.start < starts[block.line] < span.end
    ]
    edges.append(_Cut(span.end, 0))
    # A unit that fits is never cut inside, so only the places around it count.
    unit_start = span.start
    pending: list[_Cut] = []
    for edge in edges:
        if edge.rank == 0:
            if edge.at - unit_start > max_chars:
                yield from _inside(parsed, unit_start, pending, edge.at, max_chars)
            if edge.at < span.end:
                yield edge
            unit_start, pending = edge.at, []
        else:
            pending.append(edge)


def _inside(
    parsed: Parsed, start: int, nested: Sequence[_Cut], end: int, max_chars: int
) -> Iterator[_Cut]:
    """The places inside one unit that is too long: its blocks, and inside those that are too long."""
    at = start
    for cut in (*nested, _Cut(end, 0)):
        if cut.at - at > max_chars:
            yield from _fine(parsed.document.text, at, cut.at, max_chars, _kind_at(parsed, at))
        if cut.at < end:
            yield cut
        at = cut.at


def _fine(text: str, start: int, end: int, max_chars: int, kind: Kind) -> Iterator[_Cut]:
    if kind in (Kind.CODE, Kind.TABLE):
        ends = list(_line_ends(text, start, end))
    else:
        ends = sentence_ends(text, start, end)
    at = start
    for sentence in (*ends, end):
        if sentence - at > max_chars:
            for word in (*(found.end() for found in _SPACE.finditer(text, at, sentence)), sentence):
                while word - at > max_chars:
                    at += max_chars
                    yield _Cut(at, _NOWHERE)
                if word < sentence:
                    yield _Cut(word, _WORD)
                at = word
        if sentence < end:
            yield _Cut(sentence, _LINE)
        at = sentence


def _line_ends(text: str, start: int, end: int) -> Iterator[int]:
    at = text.find("\n", start, end)
    while at >= 0:
        yield at + 1
        at = text.find("\n", at + 1, end)


def _kind_at(parsed: Parsed, offset: int) -> Kind:
    at = bisect_right(parsed.structure.blocks, offset, key=lambda b: parsed.starts[b.line]) - 1
    return parsed.structure.blocks[at].kind if at >= 0 else Kind.PROSE


def _overlapping(
    parsed: Parsed, found: Sequence[Span], max_chars: int, overlap_chars: int
) -> Iterator[Span]:
    text, starts, blocks = parsed.document.text, parsed.starts, parsed.structure.blocks
    for before, piece in pairwise(found):
        room = min(overlap_chars, max_chars - (piece.end - piece.start))
        at = max(before.start + 1, piece.start - room)
        index = bisect_right(blocks, at, key=lambda block: starts[block.line]) - 1
        block_end = starts[blocks[index + 1].line] if index + 1 < len(blocks) else len(text)
        block_start = starts[blocks[index].line] if index >= 0 else 0
        if index >= 0 and blocks[index].kind in (Kind.CODE, Kind.TABLE):
            # Half a row or half a fence says nothing: take whole lines of a cut block, else none.
            whole = block_end - block_start <= max_chars
            at = block_end if whole else text.find("\n", at - 1, piece.start) + 1 or piece.start
        else:
            space = _SPACE.search(text, at - 1, piece.start)
            at = space.end() if space else piece.start
        yield Span(trimmed(text, min(at, piece.start), piece.end).start, piece.end)
