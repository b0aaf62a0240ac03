"""Resolve references (path, path#heading, path#^block, path:10-40, passage id) to extracts of documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from marklight.errors import NotFound, UsageError
from marklight.model import Chunk, Document, DocumentId, Heading
from marklight.ports import Snapshot
from marklight.query import Filters
from marklight.report import Extract
from marklight.search import context
from marklight.text import bounded_key
from marklight.text.lines import DocumentLines

MAX_LISTED = 20
"""Documents of one title, or headings, that an error lists. Hand-set; not measured."""

_LINES = re.compile(r"^(?P<path>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?$", re.DOTALL)
_CHUNK_ID = re.compile(r"^[0-9a-f]{16}$")

FindDocument = Callable[[str], Document | None]
"""Find a document by its path, link name or title."""


def resolve_reference(reference: str, snapshot: Snapshot, find: FindDocument) -> Extract:
    """Return the extract that a reference names; raise NotFound with suggestions if there is none."""
    if not reference.strip():
        raise UsageError("The reference is empty", "Give a path, such as guide/auth.md")
    if _CHUNK_ID.match(reference):
        for chunk in snapshot.documents.chunks([reference]):
            return _passage(chunk, snapshot)
        if section := _section(reference, snapshot):
            return _passage(section, snapshot)
    document = find(reference)
    if document is not None:
        return _lines_of(document, 1, len(DocumentLines(document.text)))
    if match := _LINES.match(reference):
        first, last = int(match["first"]), int(match["last"] or match["first"])
        return _lines_of(require_document(match["path"], snapshot, find), first, last)
    path, hash_sign, fragment = reference.rpartition("#")
    if hash_sign and path:
        return _fragment(require_document(path, snapshot, find), fragment)
    raise _not_found(reference, snapshot)


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


def find_document(name: str, snapshot: Snapshot) -> Document | None:
    """Return the document with this path, else the target of a link of this name, else the only one of this title."""
    key = name.removeprefix("./").strip("/")
    if not _is_unicode(key):
        return None
    collection, _, path = key.partition("/")
    ids = snapshot.documents.find_by_path(key) or [DocumentId(collection, path)]
    if document := snapshot.documents.get(ids[0]):
        return document
    id = snapshot.links.resolve((bounded_key(key.lower()),), "")
    if id is None and len(titled := _titled(name, snapshot)) == 1:
        id = titled[0]
    return snapshot.documents.get(id) if id else None


def _titled(name: str, snapshot: Snapshot) -> list[DocumentId]:
    """Return the documents with exactly this title or alias."""
    if not _is_unicode(name):
        return []
    candidates = snapshot.documents.find_by_title(name, Filters(), MAX_LISTED)
    exact = [candidate.chunk_id for candidate in candidates if candidate.score == 1.0]
    return sorted(set(snapshot.documents.owners(exact).values()))


def _is_unicode(name: str) -> bool:
    """Return false for undecodable bytes of the command line (surrogates), which no document has in its name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_document(name: str, snapshot: Snapshot, find: FindDocument) -> Document:
    """Return the document of this name; raise NotFound with suggestions if there is none."""
    document = find(name)
    if document is None:
        raise _not_found(name, snapshot)
    return document


def _not_found(name: str, snapshot: Snapshot) -> NotFound:
    from marklight.text.suggestions import MAX_COMPARED, paths_with_words, similar_paths

    titled = [id.path for id in _titled(name, snapshot)]
    if len(titled) > 1:
        hint = f"Give the path of one: {', '.join(titled)}"
        return NotFound(f"Several documents are called {name!r}", hint)
    paths = [id.path for id in snapshot.documents.files()]
    suggestions = titled or (similar_paths(name, paths) if len(paths) < MAX_COMPARED else [])
    suggestions = suggestions or paths_with_words(name, paths)
    hint = "Use `marklight search` to find documents"
    if suggestions:
        hint = f"Did you mean {' or '.join(suggestions)}?"
    return NotFound(f"No document is called {name!r} in this library", hint)


def _lines_of(document: Document, first: int, last: int, *headings: str) -> Extract:
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
    headings = headings or _headings_at(document.outline, first)
    return Extract(document.id, document.title, headings, (first, last), lines.between(first, last))


def _fragment(document: Document, fragment: str) -> Extract:
    """Return the block (`^id`) or section of a document that a fragment names."""
    if fragment.startswith("^"):
        line = document.blocks.get(fragment[1:].lower())
        if line is not None:
            return _lines_of(document, line, line)
        raise NotFound(f"{document.id.path} has no block {fragment}")
    wanted = fragment.strip().lower()
    for heading in document.outline:
        if wanted in (heading.anchor.lower(), heading.text.lower()):
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
