"""Context of passages: parent sections, context levels with their sizes, extracts of documents, token budgets, linked documents.

The stages `parents` and `context` show more of a document around a hit; `linked` adds documents that are linked with the best hits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from marklight.answer import Hit, Hits, Level, LinkedDocument, best_first
from marklight.errors import NotFound, UsageError
from marklight.lazy import dataclass, lazy_pattern
from marklight.model import Chunk, Document, DocumentId
from marklight.ports import Snapshot, Tools
from marklight.query import Mode, Query
from marklight.report import Extract
from marklight.settings import Within
from marklight.text.lines import DocumentLines, Lines

if TYPE_CHECKING:
    from marklight.levels import OutlinedPage
    from marklight.model import Unit


COMPARED = 12
"""Characters at the end of a passage that are looked for in its last line."""
_TAG = lazy_pattern(r"\{%[^%]*%\}|<!--.*?-->")


class OpenDocuments(dict[DocumentId, "OutlinedPage | None"]):
    """Documents by id, each read once per answer; None for documents that are not in the index."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def __missing__(self, id: DocumentId) -> OutlinedPage | None:
        from marklight.levels import OutlinedPage

        stored = self.snapshot.documents.text_and_outline(id)
        document = self[id] = OutlinedPage(DocumentLines(stored[0]), stored[1]) if stored else None
        return document

    def lines(self, chunk: Chunk, level: str, count: int = 1) -> Lines:
        """Return the lines of a context level of a passage; at least its own."""
        from marklight.levels import level_lines

        document = self[chunk.document]
        if document is None:
            return chunk.lines
        return level_lines(chunk, level, document, partial(self._parts, chunk, count=count))

    def rest_of_unit(self, chunk: Chunk) -> Unit | None:
        """Return where the list, table or other unit goes on that a passage ends in; None if it is complete."""
        from marklight.text.units import may_end_in_unit

        if not may_end_in_unit(chunk.text) or self._ends_section(chunk):
            return None
        document = self[chunk.document]
        last = chunk.lines[1]
        unit = document.unit(last) if document else None
        if document is None or unit is None:
            return None
        rest = last + (not _ends_inside(document.page.line(last), chunk.text)), unit.lines[1]
        if rest[0] > rest[1] or not any(map(str.isalnum, document.page.between(*rest))):
            return None
        return unit._replace(lines=document.page.trimmed(rest))

    def _ends_section(self, chunk: Chunk) -> bool:
        """Return true for a passage at the end of its section, by its stored levels."""
        stored = self.snapshot.documents.context_levels([chunk.id]).get(chunk.id, ())
        ends = [level.lines[1] for level in stored if level.name in ("section", "document")]
        return chunk.lines[1] >= min(ends, default=chunk.lines[1] + 1)

    def levels(self, chunk: Chunk) -> tuple[Level, ...]:
        """Return the context levels of a passage with their sizes, smallest first."""
        from marklight.levels import base_level, context_levels

        document = self[chunk.document]
        if document is None:
            return (Level(base_level(chunk), chunk.lines, len(chunk.text)),)
        return context_levels(chunk, document, partial(self._parts, chunk))

    def _parts(self, chunk: Chunk, level: str, count: int = 1) -> Sequence[Lines]:
        if level == "neighbours":
            from marklight.levels import neighbour_lines, neighbour_reach

            reach = neighbour_reach(chunk, count)
            near = self.snapshot.documents.chunks_around(chunk.document, chunk.ordinal, reach)
            return neighbour_lines(chunk, near, count)
        section = self.snapshot.documents.section(chunk.parent)
        return [section[1].lines] if section else []


def parent_passage(chunk: Chunk, documents: OpenDocuments) -> Chunk:
    """Return the parent section of a passage as a chunk; the passage itself if it has none."""
    from marklight.text.markdown import embedding_digest

    stored, document = documents.snapshot.documents.section(chunk.parent), documents[chunk.document]
    if stored is None or document is None:
        return chunk
    section = stored[1]
    text = document.page.text[slice(*section.span)]
    text = document.page.below_header(section.lines, text)
    return replace(
        chunk,
        id=section.id,
        headings=section.headings,
        anchor=section.anchor,
        lines=section.lines,
        text=text,
        digest=embedding_digest(chunk.title, section.headings, text),
        merged=(),
        boilerplate=(),
    )


def levels(chunks: Iterable[Chunk], documents: OpenDocuments) -> dict[str, tuple[Level, ...]]:
    """Return the context levels of passages or sections by id, smallest first.

    A level that adds nothing to the one before it is left out. A hit may include context already: its levels
    are those of the passage in the index.
    """
    shown = {chunk.id: chunk for chunk in chunks}
    stored = documents.snapshot.documents.context_levels(list(shown))
    return {
        id: stored.get(id) or documents.levels(parent_passage(chunk, documents))
        for id, chunk in shown.items()
    }


def _ends_inside(line: str, text: str) -> bool:
    """Return true if a passage ends inside its last line, and not at tags of a template or comments, which it is without."""
    _, found, after = line.rpartition(text.rstrip()[-COMPARED:])
    return bool(found) and any(map(str.isalnum, _TAG.sub("", after)))


def with_rests(hits: Hits, documents: OpenDocuments) -> Hits:
    """Return hits with the place where the list, table or other unit goes on that they end in."""
    rests = [documents.rest_of_unit(hit.chunk) for hit in hits]
    return tuple(
        replace(hit, continues=rest) if rest else hit for hit, rest in zip(hits, rests, strict=True)
    )


def expand(chunk: Chunk, level: str, documents: OpenDocuments, count: int = 1) -> Extract:
    """Return a context level of a passage as an extract of the document."""
    from marklight.levels import LEVELS, base_level

    if level not in LEVELS:
        raise UsageError(f"No such level: {level!r}", f"Choose from: {', '.join(LEVELS)}")
    document = documents[chunk.document]
    if document is None:
        raise NotFound(f"{chunk.path} is not in the index")
    lines = documents.lines(chunk, level, count)
    text = document.page.between(*lines)
    if level in ("passage", base_level(chunk)):
        text = chunk.text
    return Extract(chunk.document, chunk.title, chunk.headings, lines, text, chunk.id)


@dataclass(frozen=True, slots=True)
class Parents:
    """Return each section once, with the score of its best passage; only with `--parents`."""

    adds_passages: ClassVar[bool] = True
    """Returns passages with the ids of sections."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.parents:
            return hits
        documents = OpenDocuments(tools.snapshot)
        sections: dict[str, Hit] = {}
        for hit in tools.read(hits):
            section = parent_passage(hit.chunk, documents)
            sections.setdefault(section.id, hit.with_chunk(section))
        return best_first(sections.values())


@dataclass(frozen=True, slots=True)
class Context:
    """Add neighbours on both sides, or the whole section, as `--context` and `--expand-context` request."""

    max_characters: ClassVar[int] = 20_000
    """Maximum length of a result with context; a longer section is cut around the passage."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.context and not query.expand_context:
            return hits
        documents = OpenDocuments(tools.snapshot)
        shown: list[Hit] = []
        cut = 0
        for index, hit in enumerate(tools.read(hits)):
            if len(shown) == query.limit:
                shown += hits[index:]
                break
            if any(_contains(other, hit) for other in shown):
                continue
            expanded, complete = self._expanded(query, hit, documents)
            shown.append(expanded)
            cut += not complete
        if cut:
            results = "1 result is" if cut == 1 else f"{cut} results are"
            tools.notify(f"{results} cut to {self.max_characters:,} characters around the passage")
        return tuple(shown)

    def _expanded(self, query: Query, hit: Hit, documents: OpenDocuments) -> tuple[Hit, bool]:
        """Return the hit with its context, and True if the context is complete."""
        chunk, document = hit.chunk, documents[hit.chunk.document]
        if document is None:
            return hit, True
        page = document.page
        level = "section" if query.expand_context else "neighbours"
        wanted = documents.lines(chunk, level, query.context)
        lines = _within(page, wanted, chunk.lines, self.max_characters)
        text = page.below_header(lines, page.between(*lines))
        if len(text) > max(self.max_characters, len(chunk.text)):
            return hit, False  # a part of a very long line
        expanded = replace(chunk, lines=lines, text=text, boilerplate=())
        return hit.with_chunk(expanded), lines == wanted


def _contains(shown: Hit, hit: Hit) -> bool:
    """Return True if the text of a passage is part of a shown one of the same document, which has whole lines."""
    outer, inner = shown.chunk, hit.chunk
    if outer.document != inner.document:
        return False
    if outer.lines == inner.lines:  # parts of one very long line
        return inner.text in outer.text
    return outer.lines[0] <= inner.lines[0] and inner.lines[1] <= outer.lines[1]


def _within(page: DocumentLines, wanted: Lines, own: Lines, most: int) -> Lines:
    """Return as many of the wanted lines as fit, as much before the passage as after it."""
    if page.length(wanted) <= most:
        return wanted
    before = page.start(own[0]) - page.start(wanted[0])
    after = page.length((own[1], wanted[1])) - page.length((own[1], own[1]))
    available = max(0, most - page.length(own))
    left = min(before, max(available // 2, available - after))
    first, last = own
    while first > wanted[0] and page.start(own[0]) - page.start(first - 1) <= left:
        first -= 1
    while last < wanted[1] and page.length((first, last + 1)) <= most:
        last += 1
    return first, last


MAX_LISTED = 20
"""Headings that an error lists. Hand-set; not measured."""


def passage_extract(id: str, snapshot: Snapshot) -> Extract | None:
    """Return the passage or section with this id; None if there is none."""
    for chunk in snapshot.documents.chunks([id]):
        return _passage(chunk, snapshot)
    section = _section(id, snapshot)
    return _passage(section, snapshot) if section else None


def document_extract(
    document: Document, lines: tuple[int, int] | None = None, fragment: str = ""
) -> Extract:
    """Return a document, some of its lines, or the section or block that a fragment names."""
    if lines is not None:
        return _lines_of(document, *lines)
    if fragment:
        return _fragment(document, fragment)
    return _lines_of(document, 1, len(DocumentLines(document.text)))


def extract_at_level(extract: Extract, level: str, snapshot: Snapshot, count: int = 1) -> Extract:
    """Return a context level of the passage that an extract is, or of the first passage at its lines."""
    id, line = extract.chunk_id, extract.lines[0]
    below = (
        chunk for chunk in snapshot.documents.chunks_of(extract.document) if chunk.lines[1] >= line
    )
    chunk = (
        next(iter(snapshot.documents.chunks([id])), None)
        or _section(id, snapshot)
        or next(below, None)
    )
    if chunk is None:
        raise NotFound(f"No passage at {extract.document.path}:{line}")
    # If the reference names a heading above the passage, wider levels include it.
    first = chunk.lines[0] if level == "passage" else min(line, chunk.lines[0])
    wanted = replace(chunk, lines=(first, chunk.lines[1]))
    return replace(expand(wanted, level, OpenDocuments(snapshot), count), levels=extract.levels)


def _passage(chunk: Chunk, snapshot: Snapshot) -> Extract:
    documents = OpenDocuments(snapshot)
    return replace(expand(chunk, "passage", documents), levels=levels([chunk], documents)[chunk.id])


def _section(id: str, snapshot: Snapshot) -> Chunk | None:
    """Return the section of this id as a chunk, as `--parents` shows it."""
    section = snapshot.documents.section(id)
    chunks = snapshot.documents.chunks_of(section[0]) if section else []
    child = next((chunk for chunk in chunks if chunk.parent == id), None)
    return parent_passage(child, OpenDocuments(snapshot)) if child else None


def _lines_of(document: Document, first: int, last: int) -> Extract:
    lines = DocumentLines(document.text)
    if first < 1 or last < first:
        raise UsageError(
            f"{first}-{last} is not a range of lines", "Lines count from 1: guide.md:10-40"
        )
    if first > len(lines):
        raise NotFound(
            f"{document.id.path} has only {len(lines)} lines", "Give a range within them"
        )
    last = min(last, len(lines))
    above = (part for part in document.outline if part.lines[0] <= first <= part.lines[1])
    headings = tuple(heading.text for heading in above)
    return Extract(document.id, document.title, headings, (first, last), lines.between(first, last))


def _fragment(document: Document, fragment: str) -> Extract:
    """Return the block (`^id`) or section of a document that a fragment names."""
    if fragment.startswith("^"):
        line = document.blocks.get(fragment[1:].lower())
        if line is not None:
            return _lines_of(document, line, line)
        raise NotFound(f"{document.id.path} has no block {fragment}")
    wanted = fragment.strip().lower()
    # Anchors are unique, texts of headings are not.
    anchors = {heading.anchor.lower(): heading for heading in reversed(document.outline)}
    texts = {heading.text.lower(): heading for heading in reversed(document.outline)}
    if heading := anchors.get(wanted) or texts.get(wanted):
        return _lines_of(document, *heading.lines)
    raise NotFound(
        f"{document.id.path} has no heading {fragment!r}", _heading_hint(document, fragment)
    )


def _heading_hint(document: Document, fragment: str) -> str:
    from marklight.text.suggestions import similar_keys

    anchors = {
        name: heading.anchor
        for heading in document.outline
        for name in (heading.anchor, heading.text)
    }
    if similar := similar_keys(fragment, anchors):
        return f"Did you mean {' or '.join(f'#{anchor}' for anchor in similar)}?"
    listed = [heading.anchor for heading in document.outline[:MAX_LISTED]]
    return f"It has: {', '.join(listed) or 'none'}"


MAX_LINKED = 64
"""Linked documents of one result that are compared with the query, in each direction: bounds the time for an index page.
Hand-set; not measured."""
FOLLOWED = 3
"""Best documents whose links are followed. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Linked:
    """Add documents linked with the best results, in either direction, that are no results themselves; ranking and scores stay.

    They need not share a word with the query: of the linked documents, those with the passage nearest to the query by
    cosine similarity are chosen. Only where the first result is more likely wrong than right.
    """

    max_documents: ClassVar[int] = 3
    """Number of documents to add. Hand-set; not measured."""
    below: Annotated[float, Within(0, 1)] = 0.5
    """Score of the first result below which documents are added; 1 adds them to nearly every answer."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not hits or hits[0].score >= self.below:
            return hits
        if query.mode is Mode.CODE or query.filters.documents:
            return hits
        shown = list(dict.fromkeys(hit.chunk.document for hit in hits[: query.limit]))
        neighbours = tools.snapshot.links.neighbours(shown[:FOLLOWED], MAX_LINKED)
        links = Counter(
            other for others in neighbours.values() for other in others if other not in shown
        )
        existing = [document for document in links if tools.exists(document)]
        passages = _nearest(existing, links, query, tools, self.max_documents)
        linked: dict[DocumentId, list[LinkedDocument]] = {}
        for chunk in passages:
            source = next(one for one in shown if chunk.document in neighbours.get(one, ()))
            one = LinkedDocument(chunk.document, chunk.title, chunk.anchor, chunk.lines)
            linked.setdefault(source, []).append(one)
        # Only the first passage of a document has them.
        return tuple(
            replace(hit, linked=tuple(linked.pop(hit.chunk.document)))
            if hit.chunk.document in linked
            else hit
            for hit in hits
        )


def _nearest(
    documents: list[DocumentId],
    links: Mapping[DocumentId, int],
    query: Query,
    tools: Tools,
    limit: int,
) -> list[Chunk]:
    """Return the nearest passage of each of the best documents; without vectors, the first passage of the best linked ones."""
    if not documents:
        return []
    filters = replace(query.filters, documents=tuple(documents))
    reader = tools.snapshot.documents
    if tools.embedder is not None:
        vector = tools.embedder.embed_query(query.text)
        nearest = tools.snapshot.vectors.best_per_document(
            vector, tools.embedder.fingerprint, filters
        )
        best = sorted(nearest.values(), key=lambda one: (-one.score, one.chunk_id))[:limit]
        return list(reader.chunks([one.chunk_id for one in best]))
    if filters.restrict_passages:
        return []
    passing = tools.snapshot.metadata.matching_documents(filters, len(documents))
    ordered = sorted(passing, key=lambda document: (-links[document], document))[:limit]
    return [chunk for document in ordered for chunk in reader.chunks_around(document, 0, 0)[:1]]
