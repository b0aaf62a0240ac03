"""Chunking: cut a document into passages along its headings, merge small sections, split long ones, group parents.

Text that is longer than a passage may be is split between blocks first, then rows, sentences and words.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import NamedTuple

from marklight.ingest.boilerplate import PassageTexts
from marklight.ingest.parse import ParsedText, Title
from marklight.ingest.recipe import Chunker
from marklight.lazy import dataclass
from marklight.model import Chunk, Document, Entry, Kind, Section, digest, without_spans
from marklight.text.lines import sentence_ends
from marklight.text.markdown import embedding_digest

_HAS_CONTENT = re.compile(r"[^\s\-*_=#|:.+<>/]")
"""A text of nothing but horizontal rules and dividers is no passage."""
_SPACE, _LINE_BREAK = re.compile(r"\s+"), re.compile(r"\n")
_SENTENCE, _WORD, _CHARACTER = 1000, 1001, 1002
"""Ranks of split points inside a block, worse than any block's depth; between blocks the rank is the depth of the block that follows."""


Spans = tuple[tuple[int, int], ...]
"""Offsets of parts of a text."""


class Span(NamedTuple):
    """A slice of a document's text."""

    start: int
    end: int


@dataclass(slots=True)
class HeadingNode:
    """A heading in the tree of headings; the root is the document and the text before its first heading."""

    title: Title | None
    path: tuple[str, ...]
    anchors: tuple[str, ...]
    top: int
    """Index of the heading of level 1 above it, -1 for none."""
    whole: Span
    """From the heading to the end of its last subsection, without trailing whitespace."""
    own: Span
    """Its own text, between its heading and the next one."""
    below: list[HeadingNode] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return self.title.anchor if self.title else ""

    @property
    def level(self) -> int:
        return self.title.level if self.title else 0

    @property
    def titles(self) -> Iterator[Title]:
        """Return its heading and all headings below it."""
        if self.title and self.title.text:
            yield self.title
        for node in self.below:
            yield from node.titles


@dataclass(frozen=True, slots=True)
class Draft:
    """The passages of one section, or of several small ones merged, before they have ids."""

    headings: tuple[str, ...]
    node: HeadingNode
    spans: list[Span]
    merged: tuple[Title, ...] = ()
    """The headings of the merged sections."""
    text: str | None = None
    """The text to search where a document has none of its own."""


def chunk(
    document: Document,
    parsed: ParsedText,
    sizes: Chunker,
    shared: Collection[int] = frozenset(),
) -> Entry:
    """Return a document with its passages; `shared` are the digests of blocks that are boilerplate.

    Passages are in the order of the text; every document has at least one.
    """
    root = heading_tree(parsed)
    drafts = list(_section(parsed, root, sizes))
    if not drafts:
        whole = Span(0, len(document.text.rstrip()))
        drafts = [Draft((), root, [whole], text=document.description or document.title)]
    return _entry(document, parsed, drafts, sizes, shared)


def heading_tree(parsed: ParsedText) -> HeadingNode:
    """Return the root of the tree of headings."""
    text, starts, titles = parsed.text, parsed.starts, parsed.titles
    ends = [*(starts[title.line] for title in titles), len(text)]
    body = parsed.body_start
    body_text = trimmed(text, body, ends[0])
    root = HeadingNode(None, (), (), -1, Span(body, body_text.end), body_text)
    above = [root]
    for index, (title, end) in enumerate(zip(titles, ends[1:], strict=True)):
        while above[-1].level >= title.level:
            above.pop()
        parent = above[-1]
        start = starts[title.line]
        # A heading that was shortened keeps its line in the text, so that no word is lost.
        after = start if title.text.endswith("…") else starts[title.end]
        body_text = trimmed(text, after, end)
        last = max(body_text.end, start + len(text[start:after].rstrip()))
        node = HeadingNode(
            title,
            (*parent.path, title.text) if title.text else parent.path,
            (*parent.anchors, title.anchor),
            index if title.level == 1 else parent.top,
            Span(start, last),
            body_text,
        )
        parent.below.append(node)
        above.append(node)
        for outer in above[:-1]:
            outer.whole = Span(outer.whole.start, last)
    return root


def _section(parsed: ParsedText, node: HeadingNode, sizes: Chunker) -> Iterator[Draft]:
    """Return the passages of a section and of its subsections."""
    text, subsections = parsed.text, node.below
    if _HAS_CONTENT.search(text, *node.own):
        if first := _short_beginning(parsed, node, sizes):
            span = Span(node.own.start, first.whole.end)
            yield _draft(parsed, node, node.path, span, sizes, tuple(first.titles))
            subsections = subsections[1:]
        else:
            yield _draft(parsed, node, node.path, node.own, sizes)
    elif not node.below and node.title:
        # A heading without text is a passage by itself.
        yield _draft(parsed, node, node.path, node.whole, sizes)
    small: list[HeadingNode] = []
    for below in subsections:
        skipped = sizes.skips(below.title)
        if not (skipped or below.below) and _length(parsed, [below]) < sizes.min_chars:
            small.append(below)
            continue
        yield from _merge_small(parsed, node, small, sizes)
        small = []
        if not skipped:
            yield from _section(parsed, below, sizes)
    yield from _merge_small(parsed, node, small, sizes)


def _short_beginning(parsed: ParsedText, node: HeadingNode, sizes: Chunker) -> HeadingNode | None:
    """Return the first subsection if the text before it is too short for a passage, and one passage has room for both."""
    if not node.below or parsed.size(*node.own) >= sizes.min_chars:
        return None
    first = node.below[0]
    fits = parsed.size(node.own.start, first.whole.end) <= sizes.max_chars
    return first if fits and not (first.below or sizes.skips(first.title)) else None


def _merge_small(
    parsed: ParsedText, parent: HeadingNode, small: Sequence[HeadingNode], sizes: Chunker
) -> Iterator[Draft]:
    """Merge adjacent small siblings into passages of at least `min_chars`.

    Only siblings without subsections: text under different headings stays apart.
    """
    groups: list[list[HeadingNode]] = []
    for node in small:
        if groups and _length(parsed, groups[-1]) < sizes.min_chars:
            groups[-1].append(node)
        else:
            groups.append([node])
    if len(groups) > 1 and _length(parsed, groups[-1]) < sizes.min_chars:
        last = groups.pop()
        groups[-1].extend(last)
    for group in groups:
        first = group[0]
        if len(group) == 1:
            yield from _section(parsed, first, sizes)
            continue
        titles = tuple(title for node in group for title in node.titles)
        span = Span(first.whole.start, group[-1].whole.end)
        yield _draft(parsed, first, parent.path, span, sizes, titles)


def _length(parsed: ParsedText, group: Sequence[HeadingNode]) -> int:
    return parsed.size(group[0].whole.start, group[-1].whole.end)


def _draft(
    parsed: ParsedText,
    node: HeadingNode,
    headings: tuple[str, ...],
    span: Span,
    sizes: Chunker,
    merged: tuple[Title, ...] = (),
) -> Draft:
    trimmed_span = trimmed(parsed.text, *span)
    spans = split(parsed, trimmed_span, sizes.max_chars, sizes.min_chars, sizes.overlap_chars)
    return Draft(headings, node, spans, merged)


def _entry(
    document: Document,
    parsed: ParsedText,
    drafts: Sequence[Draft],
    sizes: Chunker,
    shared: Collection[int],
) -> Entry:
    """Group passages into parents and give them their ids."""
    groups: list[list[tuple[Draft, int]]] = []
    extent, top = (0, 0), -1
    for draft in drafts:
        for number, span in enumerate(draft.spans):
            fits = parsed.size(extent[0], span.end) <= sizes.parent_chars
            # A parent that is long enough ends at a heading of level 1 or 2; none spans two headings of level 1.
            ended = (
                number == 0 and draft.node.level <= 2 and parsed.size(*extent) >= sizes.max_chars
            )
            if groups and top == draft.node.top and fits and not ended:
                groups[-1].append((draft, number))
                extent = (extent[0], span.end)
            else:
                groups.append([(draft, number)])
                extent, top = (_start(draft, number), span.end), draft.node.top
    chunks: list[Chunk] = []
    sections: list[Section] = []
    passages = PassageTexts(parsed, shared if sizes.boilerplate else ())
    for group in groups:
        _add_parent(document, passages, group, sizes, chunks, sections)
    if all(passage.is_boilerplate for passage in chunks):
        first = chunks[0]  # gets a digest, so that the title of the document is found
        own_digest = embedding_digest(first.title, first.headings, first.own_text)
        chunks[0] = replace(first, digest=own_digest)
    blocks = parsed.text_blocks if sizes.boilerplate else ()
    digests = {block.digest: block.digest in shared for block in blocks if block.digest}
    return Entry(document, tuple(chunks), tuple(sections), digests)


def _add_parent(
    document: Document,
    passages: PassageTexts,
    group: Sequence[tuple[Draft, int]],
    sizes: Chunker,
    chunks: list[Chunk],
    sections: list[Section],
) -> None:
    """Append a parent and its passages."""
    parsed = passages.parsed
    starts = parsed.starts
    first, number = group[0]
    start = _start(first, number)
    end = group[-1][0].spans[group[-1][1]].end
    parent = digest("section", *document.id, *first.node.anchors, str(number), size=8)
    shared = first.headings
    for draft, _ in group:
        while shared != draft.headings[: len(shared)]:
            shared = shared[:-1]
    sections.append(
        Section(parent, shared, first.node.anchor, lines_of(starts, start, end), (start, end))
    )
    for draft, place in group:
        span = draft.spans[place]
        text, boilerplate = (
            passages.of(span.start, span.end) if draft.text is None else (draft.text, ())
        )
        kind, code, languages = _kind_and_code(parsed, span)
        # The heading of merged sections is part of the text, and the title belongs to all passages.
        title = draft.node.title.text if draft.node.title else ""
        is_first = place == 0 and not draft.merged and title != document.title
        heading = draft.node.whole.start if draft.node.title else None
        own_text = without_spans(text, boilerplate)
        hidden = boilerplate and passages.is_shared(own_text, heading if is_first else None)
        header = _repeated_header(parsed, span.start, sizes.max_chars)
        if header and parsed.size(*header) + parsed.size(*span) <= sizes.max_chars:
            text, boilerplate = _below(passages.of(*header), text, boilerplate)
            own_text = without_spans(text, boilerplate)
        chunks.append(
            Chunk(
                id=digest(*document.id, *draft.node.anchors, str(place), size=8),
                document=document.id,
                ordinal=len(chunks),
                title=document.title,
                headings=draft.headings,
                anchor=draft.node.anchor,
                lines=lines_of(starts, span.start, span.end),
                kind=kind,
                text=text,
                parent=parent,
                digest="" if hidden else embedding_digest(document.title, draft.headings, own_text),
                merged=passages.own_headings(draft.merged),
                code=code,
                languages=languages,
                boilerplate=boilerplate,
            )
        )


def _repeated_header(parsed: ParsedText, offset: int, max_chars: int) -> Span | None:
    """Return the header of the table in whose rows an offset is, unless it takes more than half of a passage."""
    header = parsed.table_header(offset)
    return Span(*header) if header and parsed.size(*header) <= max_chars // 2 else None


def _below(header: tuple[str, Spans], text: str, boilerplate: Spans) -> tuple[str, Spans]:
    """Return the text of rows below the header of their table, with the places of boilerplate in it."""
    above, shared = header
    size = len(above)
    return above + text, (*shared, *((start + size, end + size) for start, end in boilerplate))


def _start(draft: Draft, number: int) -> int:
    """Return where the text of a passage starts in its parent: the first of a section at its heading."""
    start = draft.spans[number].start
    return start if number else min(start, draft.node.whole.start)


def lines_of(starts: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """Return the first and last line of a slice, counted from 1."""
    first = bisect_right(starts, start, 0, len(starts) - 1)
    return first, max(first, bisect_left(starts, end, 0, len(starts) - 1))


def _kind_and_code(parsed: ParsedText, span: Span) -> tuple[Kind, str, tuple[str, ...]]:
    """Return the kind of block that fills most of a span, its code, and the languages of the code."""
    starts, blocks, code_blocks = parsed.block_starts, parsed.blocks, parsed.code
    sizes: dict[Kind, int] = defaultdict(int)
    index = max(0, bisect_right(starts, span.start) - 1)
    while index < len(blocks) and (start := starts[index]) < span.end:
        end = starts[index + 1] if index + 1 < len(blocks) else span.end
        sizes[blocks[index].kind] += min(end, span.end) - max(start, span.start)
        index += 1
    kind = max(sizes, key=lambda kind: sizes[kind]) if sizes else Kind.PROSE
    if not code_blocks or Kind.CODE not in sizes:
        return kind, "", ()
    first, last = lines_of(parsed.starts, span.start, span.end)
    code: list[str] = []
    languages: dict[str, None] = {}
    index = bisect_left(code_blocks, first, key=lambda block: block.end)
    while index < len(code_blocks) and (block := code_blocks[index]).line < last:
        code.append("\n".join(block.lines[max(0, first - 1 - block.line) : last - block.line]))
        if block.language:
            languages[block.language] = None
        index += 1
    return kind, "\n\n".join(filter(None, code)), tuple(languages)


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
    parsed: ParsedText, span: Span, max_chars: int, min_chars: int, overlap_chars: int
) -> list[Span]:
    """Split a span into parts of at most `max_chars`; each but the first repeats the end of the one before.

    A part that begins in the rows of a table has room for the header of the table instead.
    """
    text = parsed.text
    if parsed.size(*span) <= max_chars:
        return [span]
    points = list(_split_points(parsed, span, max_chars))
    parts: list[Span] = []
    start = span.start
    first = 0
    while first < len(points):
        header = _repeated_header(parsed, start, max_chars)
        room = max_chars - (parsed.size(*header) if header else 0)
        if parsed.size(start, span.end) <= room:
            break
        last = first + 1  # a long row may have no room for the header
        while last < len(points) and parsed.size(start, points[last].at) <= room:
            last += 1
        fitting = range(first, last)
        good = [
            index
            for index in fitting
            if parsed.size(start, points[index].at) >= room // 2
            and parsed.size(points[index].at, span.end) >= min_chars
        ]
        best = min(good or fitting, key=lambda index: (points[index].rank, -index))
        parts.append(trimmed(text, start, points[best].at))
        start, first = points[best].at, best + 1
    parts.append(trimmed(text, start, span.end))
    kept = [part for part in parts if part.end > part.start]
    return [kept[0], *_overlapping(parsed, kept, max_chars, overlap_chars)]


def _split_points(parsed: ParsedText, span: Span, max_chars: int) -> Iterator[_SplitPoint]:
    """Return the split points inside a span, in order, no two further apart than `max_chars`."""
    starts, blocks = parsed.block_starts, parsed.blocks
    first, last = bisect_right(starts, span.start), bisect_left(starts, span.end)
    edges = [_SplitPoint(starts[index], blocks[index].depth) for index in range(first, last)]
    edges.append(_SplitPoint(span.end, 0))
    # A unit that fits is never split, so only the points around it count.
    unit_start = span.start
    nested: list[_SplitPoint] = []
    for edge in edges:
        if edge.rank == 0:
            if parsed.size(unit_start, edge.at) > max_chars:
                yield from _inside_unit(parsed, unit_start, nested, edge.at, max_chars)
            if edge.at < span.end:
                yield edge
            unit_start, nested = edge.at, []
        else:
            nested.append(edge)


def _inside_unit(
    parsed: ParsedText, start: int, nested: Sequence[_SplitPoint], end: int, max_chars: int
) -> Iterator[_SplitPoint]:
    """Return the split points inside a top-level unit that is too long: its nested blocks, and points inside long ones."""
    offset = start
    for point in (*nested, _SplitPoint(end, 0)):
        if parsed.size(offset, point.at) > max_chars:
            index = bisect_right(parsed.block_starts, offset) - 1
            kind = parsed.blocks[index].kind if index >= 0 else Kind.PROSE
            yield from _inside_block(parsed, offset, point.at, max_chars, kind)
        if point.at < end:
            yield point
        offset = point.at


def _inside_block(
    parsed: ParsedText, start: int, end: int, max_chars: int, kind: Kind
) -> Iterator[_SplitPoint]:
    """Return the split points inside a block: rows of code and tables, else sentences; words inside long ones."""
    text = parsed.text
    if kind in (Kind.CODE, Kind.TABLE):
        breaks = (match.end() for match in _LINE_BREAK.finditer(text, start, end))
        ends = [offset for offset in breaks if offset not in parsed.header_breaks]
    else:
        ends = sentence_ends(text, start, end)
    offset = start
    for sentence in (*ends, end):
        if parsed.size(offset, sentence) > max_chars:
            for word in (
                *(match.end() for match in _SPACE.finditer(text, offset, sentence)),
                sentence,
            ):
                while parsed.size(offset, word) > max_chars:
                    offset += max_chars
                    yield _SplitPoint(offset, _CHARACTER)
                if word < sentence:
                    yield _SplitPoint(word, _WORD)
                offset = word
        if sentence < end:
            yield _SplitPoint(sentence, _SENTENCE)
        offset = sentence


def _overlapping(
    parsed: ParsedText, parts: Sequence[Span], max_chars: int, overlap_chars: int
) -> Iterator[Span]:
    """Return all parts but the first, each extended to the left by the overlap."""
    text, starts, blocks = parsed.text, parsed.block_starts, parsed.blocks
    for before, part in pairwise(parts):
        overlap = min(overlap_chars, max_chars - parsed.size(*part))
        offset = max(before.start + 1, part.start - overlap)
        index = bisect_right(starts, offset) - 1
        block_end = starts[index + 1] if index + 1 < len(blocks) else len(text)
        block_start = starts[index] if index >= 0 else 0
        if index >= 0 and blocks[index].kind is Kind.TABLE:
            offset = part.start  # rows have the header as their context
        elif index >= 0 and blocks[index].kind is Kind.CODE:
            # Half a fence is no context: repeat whole lines of a split block, else nothing.
            whole = block_end - block_start <= max_chars
            offset = (
                block_end if whole else text.find("\n", offset - 1, part.start) + 1 or part.start
            )
        else:
            space = _SPACE.search(text, offset - 1, part.start)
            offset = space.end() if space else part.start
        yield Span(trimmed(text, min(offset, part.start), part.end).start, part.end)
