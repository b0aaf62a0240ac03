"""Documents to passages: cut along headings, small siblings together, long sections in pieces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from marklight.ingest.cut import Span, pieces, trimmed
from marklight.ingest.fit import fit
from marklight.ingest.parse.form import Parsed, Title
from marklight.model import Chunk, Entry, Kind, Section
from marklight.text import digest, passage

VERSION = "chunker 1"


@dataclass(frozen=True, slots=True)
class Draft:
    """Passages of one section, or one of several small ones, before they have their ids."""

    title: str
    headings: tuple[str, ...]
    anchor: str
    anchors: tuple[str, ...]
    top: int
    """Index of the outermost heading, so that parents never span two."""
    start: int
    """Where the heading stands; the spans are what follows it."""
    spans: list[Span]
    merged: tuple[str, ...] = ()
    text: str | None = None
    """What is searched where a document has no text of its own."""


@dataclass(slots=True)
class _Node:
    """A heading with its own text and the sections below it."""

    title: Title | None
    path: tuple[str, ...]
    anchors: tuple[str, ...]
    top: int
    start: int
    body: int
    end: int = 0
    whole_end: int = 0
    below: list[_Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chunker:
    """Cuts documents into passages of `min_chars` to `max_chars`, and groups them into parents."""

    min_chars: int = 200
    max_chars: int = 1500
    overlap_chars: int = 100
    parent_chars: int = 2000

    @property
    def fingerprint(self) -> str:
        """Changes whenever a document would be cut differently."""
        sizes = (self.min_chars, self.max_chars, self.overlap_chars, self.parent_chars)
        return digest(VERSION, *map(str, sizes), size=8)

    def __call__(
        self,
        documents: Sequence[Parsed],
        count_tokens: Callable[[Sequence[str]], list[int]] | None = None,
        token_limit: int | None = None,
    ) -> list[Entry]:
        """Entries for many documents, so that tokens are counted in a few large calls."""
        drafts = [self._drafts(parsed) for parsed in documents]
        if count_tokens and token_limit:
            drafts = fit(documents, drafts, count_tokens, token_limit, self.overlap_chars)
        return [self._entry(parsed, made) for parsed, made in zip(documents, drafts, strict=True)]

    def _drafts(self, parsed: Parsed) -> list[Draft]:
        drafts = list(self._under(parsed, _tree(parsed)))
        if drafts:
            return drafts
        document = parsed.document
        end = max(0, len(document.text.rstrip()))
        words = document.description or document.title
        return [Draft(document.title, (), "", (), 0, 0, [Span(0, end)], text=words)]

    def _under(self, parsed: Parsed, node: _Node) -> Iterator[Draft]:
        """The passages of a section and of all below it, in the order of the text."""
        text = parsed.document.text
        span = trimmed(text, node.body, node.end)
        if span.end > span.start:
            yield self._draft(parsed, node, span)
        small: list[_Node] = []
        for below in node.below:
            if below.whole_end - below.start < self.min_chars + 2:
                whole = trimmed(text, below.start, below.whole_end)
                if whole.end - whole.start < self.min_chars:
                    small.append(below)
                    continue
            yield from self._together(parsed, node, small)
            small = []
            yield from self._under(parsed, below)
        yield from self._together(parsed, node, small)

    def _draft(self, parsed: Parsed, node: _Node, span: Span, merged: Sequence[str] = ()) -> Draft:
        cut = pieces(parsed, span, self.max_chars, self.min_chars, self.overlap_chars)
        anchor = node.title.anchor if node.title else ""
        return Draft(
            parsed.document.title, node.path, anchor, node.anchors, node.top, node.start, cut, tuple(merged)
        )  # fmt: skip

    def _together(self, parsed: Parsed, parent: _Node, small: Sequence[_Node]) -> Iterator[Draft]:
        """Small siblings that stand side by side, as few passages as reach the least size."""
        groups: list[list[_Node]] = []
        for node in small:
            if groups and groups[-1][-1].whole_end - groups[-1][0].start < self.min_chars:
                groups[-1].append(node)
            else:
                groups.append([node])
        if len(groups) > 1 and groups[-1][-1].whole_end - groups[-1][0].start < self.min_chars:
            last = groups.pop()
            groups[-1].extend(last)
        text = parsed.document.text
        for group in groups:
            first = group[0]
            if len(group) == 1 and not first.below:
                own = trimmed(text, first.body, first.end)
                if not any(sign.isalnum() for sign in text[own.start : own.end]):
                    own = trimmed(text, first.start, first.end)
                yield self._draft(parsed, first, own)
                continue
            alone = len(group) == 1
            names = [name for node in group for name in _names(node)]
            span = trimmed(text, first.start, group[-1].whole_end)
            anchor = first.title.anchor if first.title else ""
            cut = pieces(parsed, span, self.max_chars, self.min_chars, self.overlap_chars)
            yield Draft(
                parsed.document.title,
                first.path if alone else parent.path,
                anchor,
                first.anchors,
                first.top,
                first.start,
                cut,
                tuple(names[1:] if alone else names),
            )

    def _entry(self, parsed: Parsed, drafts: Sequence[Draft]) -> Entry:
        document = parsed.document
        groups: list[list[tuple[Draft, int]]] = []
        extent, top = (0, 0), -1
        for draft in drafts:
            for number, span in enumerate(draft.spans):
                start = span.start if number else min(draft.start, span.start)
                if groups and top == draft.top and span.end - extent[0] <= self.parent_chars:
                    groups[-1].append((draft, number))
                    extent = (extent[0], span.end)
                else:
                    groups.append([(draft, number)])
                    extent, top = (start, span.end), draft.top
        chunks: list[Chunk] = []
        sections: list[Section] = []
        for group in groups:
            self._family(parsed, group, chunks, sections)
        return Entry(document, tuple(chunks), tuple(sections))

    def _family(
        self,
        parsed: Parsed,
        group: Sequence[tuple[Draft, int]],
        chunks: list[Chunk],
        sections: list[Section],
    ) -> None:
        """A parent and the passages in it."""
        document, starts = parsed.document, parsed.starts
        first, number = group[0]
        begin = first.spans[number].start
        start = begin if number else min(first.start, begin)
        end = group[-1][0].spans[group[-1][1]].end
        parent = digest("section", *document.id, *first.anchors, str(number), size=8)
        shared = first.headings
        for draft, _ in group:
            while shared != draft.headings[: len(shared)]:
                shared = shared[:-1]
        sections.append(
            Section(parent, shared, first.anchor, _lines(starts, start, end), (start, end))
        )
        for draft, place in group:
            span = draft.spans[place]
            text = document.text[span.start : span.end] if draft.text is None else draft.text
            kind, code, languages = _contents(parsed, span)
            chunks.append(
                Chunk(
                    id=digest(*document.id, *draft.anchors, str(place), size=8),
                    document=document.id,
                    ordinal=len(chunks),
                    title=draft.title,
                    headings=draft.headings,
                    anchor=draft.anchor,
                    lines=_lines(starts, span.start, span.end),
                    kind=kind,
                    text=text,
                    parent=parent,
                    digest=digest(passage(draft.title, draft.headings, text)),
                    merged=draft.merged,
                    code=code,
                    languages=languages,
                )
            )


def _tree(parsed: Parsed) -> _Node:
    starts, titles = parsed.starts, parsed.structure.titles
    body = starts[min(parsed.body, len(starts) - 1)]
    root = _Node(None, (), (), -1, body, body)
    open_nodes = [root]
    for index, title in enumerate(titles):
        start = starts[title.line]
        open_nodes[-1].end = start
        while len(open_nodes) > 1 and open_nodes[-1].title.level >= title.level:  # type: ignore[union-attr]
            open_nodes.pop().whole_end = start
        above = open_nodes[-1]
        # A heading that was shortened keeps its line in the text, so that no word is lost.
        after = start if title.text.endswith("…") else starts[title.end]
        path = (*above.path, title.text) if title.text else above.path
        top = index if above is root else above.top
        node = _Node(title, path, (*above.anchors, title.anchor), top, start, after)
        above.below.append(node)
        open_nodes.append(node)
    end = len(parsed.document.text)
    open_nodes[-1].end = end
    for node in open_nodes:
        node.whole_end = end
    return root


def _names(node: _Node) -> list[str]:
    own = [node.title.text] if node.title and node.title.text else []
    return own + [name for below in node.below for name in _names(below)]


def _lines(starts: Sequence[int], start: int, end: int) -> tuple[int, int]:
    first = bisect_right(starts, start, 0, len(starts) - 1)
    return first, max(first, bisect_left(starts, end, 0, len(starts) - 1))


def _contents(parsed: Parsed, span: Span) -> tuple[Kind, str, tuple[str, ...]]:
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
    first, last = _lines(starts, span.start, span.end)
    code: list[str] = []
    languages: dict[str, None] = {}
    at = bisect_left(found, first, key=lambda block: block.end)
    for block in found[at:]:
        if block.line >= last:
            break
        lines = block.text.split("\n")[max(0, first - 1 - block.line) : last - block.line]
        code.append("\n".join(lines).rstrip("\n"))
        if block.language:
            languages[block.language] = None
    return kind, "\n\n".join(filter(None, code)), tuple(languages)
