"""Split text that is longer than a passage may be: between blocks first, then rows, sentences and words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from marklight.ingest.parse import Parsed
from marklight.model import Kind
from marklight.text.lines import sentence_ends

_SPACE = re.compile(r"\s+")
_SENTENCE, _WORD, _CHARACTER = 1000, 1001, 1002
"""Ranks of split points inside a block, worse than any block's depth; between blocks the rank is the depth of the block that follows."""


class Span(NamedTuple):
    """A slice of a document's text."""

    start: int
    end: int


class _SplitPoint(NamedTuple):
    at: int
    rank: int
    """Lower is better."""


def trimmed(text: str, start: int, end: int) -> Span:
    """Return a slice without blank lines before it and whitespace after it; indentation is kept."""
    part = text[start:end]
    end = start + len(part.rstrip())
    lead = len(part) - len(part.lstrip())
    if start + lead >= end:
        return Span(start, start)
    line = text.rfind("\n", start, start + lead)
    return Span(line + 1 if line >= 0 else start, end)


def split(
    parsed: Parsed, span: Span, max_chars: int, min_chars: int, overlap_chars: int
) -> list[Span]:
    """Split a span into parts of at most `max_chars`; each but the first repeats the end of the one before."""
    text = parsed.text
    if span.end - span.start <= max_chars:
        return [span]
    points = list(_split_points(parsed, span, max_chars))
    parts: list[Span] = []
    start = span.start
    first = 0
    while span.end - start > max_chars:
        last = first
        while last < len(points) and points[last].at - start <= max_chars:
            last += 1
        fitting = range(first, last)
        earliest, latest = start + max_chars // 2, span.end - min_chars
        good = [at for at in fitting if earliest <= points[at].at <= latest]
        best = min(good or fitting, key=lambda at: (points[at].rank, -at))
        parts.append(trimmed(text, start, points[best].at))
        start, first = points[best].at, best + 1
    parts.append(trimmed(text, start, span.end))
    kept = [part for part in parts if part.end > part.start]
    return [kept[0], *_overlapping(parsed, kept, max_chars, overlap_chars)]


def _split_points(parsed: Parsed, span: Span, max_chars: int) -> Iterator[_SplitPoint]:
    """Return the split points inside a span, in order, no two further apart than `max_chars`."""
    starts, blocks = parsed.starts, parsed.structure.blocks
    first = max(0, bisect_right(blocks, span.start, key=lambda block: starts[block.line]) - 1)
    last = bisect_left(blocks, span.end, key=lambda block: starts[block.line])
    edges = [
        _SplitPoint(starts[block.line], block.depth)
        for block in blocks[first:last]
        if span.start < starts[block.line] < span.end
    ]
    edges.append(_SplitPoint(span.end, 0))
    # A unit that fits is never split, so only the points around it count.
    unit_start = span.start
    nested: list[_SplitPoint] = []
    for edge in edges:
        if edge.rank == 0:
            if edge.at - unit_start > max_chars:
                yield from _inside_unit(parsed, unit_start, nested, edge.at, max_chars)
            if edge.at < span.end:
                yield edge
            unit_start, nested = edge.at, []
        else:
            nested.append(edge)


def _inside_unit(
    parsed: Parsed, start: int, nested: Sequence[_SplitPoint], end: int, max_chars: int
) -> Iterator[_SplitPoint]:
    """Return the split points inside a top-level unit that is too long: its nested blocks, and points inside long ones."""
    at = start
    for point in (*nested, _SplitPoint(end, 0)):
        if point.at - at > max_chars:
            kind = _kind_at(parsed, at)
            yield from _inside_block(parsed.text, at, point.at, max_chars, kind)
        if point.at < end:
            yield point
        at = point.at


def _inside_block(
    text: str, start: int, end: int, max_chars: int, kind: Kind
) -> Iterator[_SplitPoint]:
    """Return the split points inside a block: rows of code and tables, else sentences; words inside long ones."""
    unit_ends = _line_ends if kind in (Kind.CODE, Kind.TABLE) else sentence_ends
    ends = list(unit_ends(text, start, end))
    at = start
    for sentence in (*ends, end):
        if sentence - at > max_chars:
            for word in (*(match.end() for match in _SPACE.finditer(text, at, sentence)), sentence):
                while word - at > max_chars:
                    at += max_chars
                    yield _SplitPoint(at, _CHARACTER)
                if word < sentence:
                    yield _SplitPoint(word, _WORD)
                at = word
        if sentence < end:
            yield _SplitPoint(sentence, _SENTENCE)
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
    parsed: Parsed, parts: Sequence[Span], max_chars: int, overlap_chars: int
) -> Iterator[Span]:
    """Return all parts but the first, each extended to the left by the overlap."""
    text, starts, blocks = parsed.text, parsed.starts, parsed.structure.blocks
    for before, part in pairwise(parts):
        overlap = min(overlap_chars, max_chars - (part.end - part.start))
        at = max(before.start + 1, part.start - overlap)
        index = bisect_right(blocks, at, key=lambda block: starts[block.line]) - 1
        block_end = starts[blocks[index + 1].line] if index + 1 < len(blocks) else len(text)
        block_start = starts[blocks[index].line] if index >= 0 else 0
        if index >= 0 and blocks[index].kind in (Kind.CODE, Kind.TABLE):
            # Half a row or half a fence is no context: repeat whole lines of a split block, else nothing.
            whole = block_end - block_start <= max_chars
            at = block_end if whole else text.find("\n", at - 1, part.start) + 1 or part.start
        else:
            space = _SPACE.search(text, at - 1, part.start)
            at = space.end() if space else part.start
        yield Span(trimmed(text, min(at, part.start), part.end).start, part.end)
