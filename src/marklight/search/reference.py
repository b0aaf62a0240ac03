"""A reference to the piece of a document that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from marklight.answer import Filters
from marklight.errors import NotFound, UsageError
from marklight.model import Chunk, Document, DocumentId, Heading
from marklight.ports import Snapshot
from marklight.report import Extract
from marklight.search import widen
from marklight.search.near import near_keys, near_paths, paths_with
from marklight.text import bounded_key
from marklight.text.lines import DocumentLines

_LINES = re.compile(r"^(?P<path>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?$", re.DOTALL)
_CHUNK_ID = re.compile(r"^[0-9a-f]{16}$")
MOST_COMPARED = 20_000
"""Paths of a library that a name is compared with: some tenths of a second."""
MOST_LISTED = 20

Find = Callable[[str], Document | None]
"""How a document is found by what somebody calls it."""


def follow(reference: str, snapshot: Snapshot, find: Find) -> Extract:
    """`path`, `path#heading`, `path#^block`, `path:10-40` or the id of a passage or a section."""
    if not reference.strip():
        raise UsageError("an empty reference names nothing", "Give a path, such as guide/auth.md")
    if _CHUNK_ID.match(reference):
        for chunk in snapshot.documents.chunks([reference]):
            return _passage(chunk, snapshot)
        if section := _section(reference, snapshot):
            return _passage(section, snapshot)
    whole = find(reference)
    if whole is not None:
        return _lines_of(whole, 1, len(DocumentLines(whole.text)))
    if found := _LINES.match(reference):
        first, last = int(found["first"]), int(found["last"] or found["first"])
        return _lines_of(demand(found["path"], snapshot, find), first, last)
    path, sign, fragment = reference.rpartition("#")
    if sign and path:
        return _part(demand(path, snapshot, find), fragment)
    raise _missing(reference, snapshot)


def widened(extract: Extract, level: str, snapshot: Snapshot, count: int = 1) -> Extract:
    """A level of the passage that an extract is, or of the one that stands where it begins."""
    id, line = extract.chunk_id, extract.lines[0]
    below = (
        each for each in snapshot.documents.chunks_of(extract.document) if each.lines[1] >= line
    )
    chunk = (
        next(iter(snapshot.documents.chunks([id])), None)
        or _section(id, snapshot)
        or next(below, None)
    )
    if chunk is None:
        raise NotFound(f"no passage stands at {extract.document.path}:{line}")
    # A heading above the passage was named: what is wider than the passage holds it too.
    first = chunk.lines[0] if level == "passage" else min(line, chunk.lines[0])
    wanted = replace(chunk, lines=(first, chunk.lines[1]))
    return replace(widen.widen(wanted, level, widen.Leaves(snapshot), count), levels=extract.levels)


def _passage(chunk: Chunk, snapshot: Snapshot) -> Extract:
    leaves = widen.Leaves(snapshot)
    return replace(
        widen.widen(chunk, "passage", leaves), levels=widen.levels([chunk], leaves)[chunk.id]
    )


def _section(id: str, snapshot: Snapshot) -> Chunk | None:
    """What `--parents` shows under this id, in the shape of a passage."""
    found = snapshot.documents.section(id)
    passages = snapshot.documents.chunks_of(found[0]) if found else []
    below = next((each for each in passages if each.parent == id), None)
    return widen.parent(below, widen.Leaves(snapshot)) if below else None


def find_document(name: str, snapshot: Snapshot) -> Document | None:
    """The document of this path, or that a link of this name would lead to, or the only one of this title."""
    key = name.removeprefix("./").strip("/")
    if not _is_text(key):
        return None
    collection, _, path = key.partition("/")
    named = snapshot.documents.find_by_path(key) or [DocumentId(collection, path)]
    if document := snapshot.documents.get(named[0]):
        return document
    found = snapshot.links.resolve((bounded_key(key.lower()),), "")
    if found is None and len(titled := _titled(name, snapshot)) == 1:
        found = titled[0]
    return snapshot.documents.get(found) if found else None


def _titled(name: str, snapshot: Snapshot) -> list[DocumentId]:
    """Documents that are called exactly so, by their title or another of their names."""
    if not _is_text(name):
        return []
    called = [
        one.chunk_id
        for one in snapshot.documents.find_by_title(name, Filters(), MOST_LISTED)
        if one.score == 1.0
    ]
    return sorted(set(snapshot.documents.owners(called).values()))


def _is_text(name: str) -> bool:
    """Bytes that are no text name no document."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def demand(name: str, snapshot: Snapshot, find: Find) -> Document:
    """The document of this name, or an error that offers names like it."""
    document = find(name)
    if document is None:
        raise _missing(name, snapshot)
    return document


def _missing(name: str, snapshot: Snapshot) -> NotFound:
    titled = [id.path for id in _titled(name, snapshot)]
    if len(titled) > 1:
        hint = f"Name one by its path: {', '.join(titled)}"
        return NotFound(f"several documents are called {name!r}", hint)
    paths = [id.path for id in snapshot.documents.files()]
    near = titled or (near_paths(name, paths) if len(paths) < MOST_COMPARED else [])
    near = near or paths_with(name, paths)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`marklight search` finds documents"
    return NotFound(f"no document is called {name!r} in this library", hint)


def _lines_of(document: Document, first: int, last: int, *headings: str) -> Extract:
    page = DocumentLines(document.text)
    if first < 1 or last < first:
        raise UsageError(f"lines {first}-{last} are no range", "Lines count from 1: guide.md:10-40")
    if first > len(page):
        raise NotFound(f"{document.id.path} has only {len(page)} lines", "Ask for fewer")
    last = min(last, len(page))
    trail = headings or _trail(document.outline, first)
    return Extract(document.id, document.title, trail, (first, last), page.between(first, last))


def _part(document: Document, fragment: str) -> Extract:
    if fragment.startswith("^"):
        line = document.blocks.get(fragment[1:].lower())
        if line is not None:
            return _lines_of(document, line, line)
        raise NotFound(f"{document.id.path} has no block {fragment}")
    wanted = fragment.strip().lower()
    for heading in document.outline:
        if wanted in (heading.anchor.lower(), heading.text.lower()):
            return _lines_of(document, *heading.lines)
    called = {name: each.anchor for each in document.outline for name in (each.anchor, each.text)}
    if near := near_keys(fragment, called):
        hint = f"Did you mean {' or '.join(f'#{anchor}' for anchor in near)}?"
    else:
        anchors = [heading.anchor for heading in document.outline]
        hint = f"It has: {', '.join(anchors[:MOST_LISTED]) or 'none'}"
    raise NotFound(f"{document.id.path} has no heading {fragment!r}", hint)


def _trail(outline: Sequence[Heading], line: int) -> tuple[str, ...]:
    """The headings above this line, outermost first."""
    return tuple(
        heading.text for heading in outline if heading.lines[0] <= line <= heading.lines[1]
    )
