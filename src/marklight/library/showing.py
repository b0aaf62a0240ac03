"""Verbs that show one document: get, outline and page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from marklight.answer import iso_seconds
from marklight.errors import NotFound, StoreError
from marklight.library.looking import as_before, as_now, look_at_known, reread
from marklight.library.parts import Parts
from marklight.library.validation import context_level
from marklight.model import DocumentId
from marklight.ports import Progress, Snapshot, silent
from marklight.report import Extract, Links, Outline, Page, Related
from marklight.search import reference
from marklight.search.reference import FindDocument

About = TypeVar("About", bound=Extract | Outline | Page | Links | Related)
"""What is told about one document."""


def get(
    library: Parts,
    ref: str,
    *,
    level: str | None = None,
    context: int | None = None,
    collection: str | None = None,
    near: Path | None = None,
    progress: Progress = silent,
) -> Extract:
    """A document or a part of it: path or title, path#heading, path:10-40 or a passage's id.

    A path is one below its collection, or one from the folder `near`. With a level, such as
    `section`, that much around the passage that the reference names. Where a collection is
    named a path is exactly one of its own, and no name of a document will do.
    """
    wanted, count = context_level(level, context)

    def read(snapshot: Snapshot, find: FindDocument) -> Extract:
        if collection is not None:
            find = library.files.exactly(snapshot, collection)
        extract = reference.resolve_reference(ref, snapshot, find)
        library.files.demand(extract.document)
        return reference.extract_at_level(extract, wanted, snapshot, count) if wanted else extract

    return about(library, read, near, progress)


def outline(
    library: Parts, path: str, *, near: Path | None = None, progress: Progress = silent
) -> Outline:
    """A document's headings."""

    def read(snapshot: Snapshot, find: FindDocument) -> Outline:
        document = reference.require_document(path, snapshot, find)
        return Outline(document.id, tuple(document.outline))

    return about(library, read, near, progress)


def page(
    library: Parts,
    path: str,
    *,
    line: int = 1,
    near: Path | None = None,
    progress: Progress = silent,
) -> Page:
    """A document as safe HTML; of a very long one the part around a line."""
    # The parser is heavy, and nothing else shows HTML.
    from marklight.ingest.render import render

    several = len(library.collections) > 1

    def read(snapshot: Snapshot, find: FindDocument) -> Page:
        document = reference.require_document(path, snapshot, find)
        links = snapshot.links.outgoing(document.id)
        leads = {each.link.keys: each.target.named(several) for each in links if each.target}
        parsers = library.reading.discover.parsers
        rendered = render(document, document.id.named(several), leads.get, line, parsers)
        return Page(
            document=document.id,
            title=document.title,
            html=rendered.html,
            lines=rendered.lines,
            of_lines=document.text.count("\n") + 1,
            headings=document.outline,
            blocks=document.blocks,
            tags=document.tags,
            date=document.date,
            dated=iso_seconds(snapshot.documents.dates([document.id])[document.id]),
        )

    return about(library, read, near, progress)


def about(
    library: Parts,
    read: Callable[[Snapshot, FindDocument], About],
    near: Path | None,
    progress: Progress,
) -> About:
    """What is asked about one document, of the file as it is now, though no look came to it yet."""
    notices = look_at_known(library, progress)
    missed: list[DocumentId] = []
    damaged: list[DocumentId] = []

    def ask() -> tuple[About, list[DocumentId]]:
        with library.engine.snapshot() as snapshot:
            found = read(snapshot, library.files.near(snapshot, near, missed.append))
            asked = [found.document] if found.document else []
            damaged[:] = snapshot.status.damaged_documents(asked)
            return found, [*damaged, *library.files.changed(snapshot.documents.files_of(asked))]

    try:
        found, stale = as_now(library, ask, progress)
    except NotFound as error:
        again = reread(library, missed, progress)
        if reason := _refused(library, missed):
            raise NotFound(reason) from error
        if not again:
            raise
        found, stale = as_now(library, ask, progress)
    if damaged:
        raise StoreError(f"{damaged[0].path} is damaged in the index", "Run `marklight doctor`")
    return replace(found, notices=(*notices, *as_before(len(stale)), *found.notices))


def _refused(library: Parts, documents: list[DocumentId]) -> str:
    """Return why the file of one of these documents was not indexed; empty if none was refused."""
    if not documents:
        return ""
    with library.engine.snapshot() as snapshot:
        reasons = {each.document: each.reason for each in snapshot.status.failures()}
    return next((f"{id.path} {reasons[id]}" for id in documents if id in reasons), "")
