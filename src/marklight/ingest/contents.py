"""What a slice of a document holds: its lines, what most of it is, and the code in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from marklight.ingest.cut import Span
from marklight.ingest.parse.form import Parsed
from marklight.model import Kind


def lines_of(starts: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """The lines of a slice, counted from 1, both included."""
    first = bisect_right(starts, start, 0, len(starts) - 1)
    return first, max(first, bisect_left(starts, end, 0, len(starts) - 1))


def contents(parsed: Parsed, span: Span) -> tuple[Kind, str, tuple[str, ...]]:
    """What most of a span is, and the code in it."""
    starts, blocks, found = parsed.starts, parsed.structure.blocks, parsed.structure.code
    share: dict[Kind, int] = defaultdict(int)
    at = max(0, bisect_right(blocks, span.start, key=lambda block: starts[block.line]) - 1)
    while at < len(blocks) and (start := starts[blocks[at].line]) < span.end:
        end = starts[blocks[at + 1].line] if at + 1 < len(blocks) else span.end
        share[blocks[at].kind] += min(end, span.end) - max(start, span.start)
        at += 1
    kind = max(share, key=lambda kind: share[kind]) if share else Kind.PROSE
    if not found or Kind.CODE not in share:
        return kind, "", ()
    first, last = lines_of(starts, span.start, span.end)
    code: list[str] = []
    languages: dict[str, None] = {}
    at = bisect_left(found, first, key=lambda block: block.end)
    while at < len(found) and (block := found[at]).line < last:
        code.append("\n".join(block.lines[max(0, first - 1 - block.line) : last - block.line]))
        if block.language:
            languages[block.language] = None
        at += 1
    return kind, "\n\n".join(filter(None, code)), tuple(languages)
