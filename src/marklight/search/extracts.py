"""Extract parts of documents: lines, sections, blocks, and the context levels of passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marklight.errors import NotFound, UsageError
from marklight.model import Chunk, Document, Heading
from marklight.ports import Snapshot
from marklight.report import Extract
from marklight.search import context
from marklight.text.lines import DocumentLines

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
    return replace(
        context.expand(wanted, level, context.OpenDocuments(snapshot), count), levels=extract.levels
    )


def _passage(chunk: Chunk, snapshot: Snapshot) -> Extract:
    documents = context.OpenDocuments(snapshot)
    return replace(
        context.expand(chunk, "passage", documents),
        levels=context.levels([chunk], documents)[chunk.id],
    )


def _section(id: str, snapshot: Snapshot) -> Chunk | None:
    """Return the section of this id as a chunk, as `--parents` shows it."""
    section = snapshot.documents.section(id)
    chunks = snapshot.documents.chunks_of(section[0]) if section else []
    child = next((chunk for chunk in chunks if chunk.parent == id), None)
    return context.parent_passage(child, context.OpenDocuments(snapshot)) if child else None


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
    headings = _headings_at(document.outline, first)
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


def _headings_at(outline: Sequence[Heading], line: int) -> tuple[str, ...]:
    """Return the headings above this line, outermost first."""
    return tuple(
        heading.text for heading in outline if heading.lines[0] <= line <= heading.lines[1]
    )
