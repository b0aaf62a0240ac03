"""Read operations on documents: get, outline, page, links, related, graph, and the list of documents.

Each operation refreshes the index first, and reads a document again if its file changed since it was indexed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from marklight.answer import iso_seconds
from marklight.errors import NotFound, StoreError, UsageError
from marklight.library.model_selection import model_in_use
from marklight.library.references import References, Resolved, filter_patterns
from marklight.library.refresh import (
    MAX_ATTEMPTS,
    index_again,
    refresh_existing,
    repeat_if_lost,
    stale_notice,
)
from marklight.library.validation import context_level, globs
from marklight.model import Document, DocumentId
from marklight.ports import Progress, Snapshot
from marklight.query import Filters
from marklight.reference import has_wildcards
from marklight.report import DocumentList, Extract, Graph, Links, ListedFile, Outline, Page, Related
from marklight.search import relations
from marklight.search.context import extract_at_level

if TYPE_CHECKING:
    from marklight.library import Library

MAX_MATCHES = 1000
"""Documents that a glob may mean."""

Result = TypeVar("Result", bound=Extract | Outline | Page | Links | Related | Graph)


class OpenedDocument(NamedTuple):
    """A document as its file is now, and the snapshot of the index that contains it."""

    library: Library
    snapshot: Snapshot
    resolved: Resolved
    notices: tuple[str, ...]

    @property
    def document(self) -> Document:
        return self.resolved.document

    def finish(self, result: Result) -> Result:
        """Return a result with the notices about the document."""
        return _finish(self.library, result, self.notices)


def _finish(library: Library, result: Result, notices: Iterable[str]) -> Result:
    several = library.files.several
    return replace(result, several_collections=several, notices=(*notices, *result.notices))


@contextmanager
def open_document(
    library: Library,
    ref: str,
    near: Path | None,
    progress: Progress,
    collection: str | None = None,
) -> Iterator[OpenedDocument]:
    """Refresh the index and resolve a reference; a file that changed since it was indexed is indexed again first.

    A scan with a time limit may not have reached that file.
    """
    notices = refresh_existing(library, progress)
    unindexed: list[DocumentId] = []
    retried = False
    for attempts_left in reversed(range(MAX_ATTEMPTS + 1)):
        with library.engine.snapshot() as snapshot:
            references = References(library.files, snapshot, near, collection, unindexed.append)
            try:
                resolved = references.resolve(ref)
            except NotFound as error:
                may_retry = attempts_left and not retried
                indexed = may_retry and index_again(library, unindexed, progress)
                if reason := _refusal(library, unindexed):
                    raise NotFound(reason) from error
                if not indexed:
                    raise
                retried = True
                continue
            id = resolved.document.id
            indexed_file = snapshot.documents.files_of([id])
            damaged = snapshot.status.damaged_documents([id])
            changed = library.files.changed(indexed_file) if library.indexes_here else []
            if attempts_left and index_again(library, [*damaged, *changed], progress):
                continue
            if damaged:
                raise StoreError(f"{id.path} is damaged in the index", "Run `marklight doctor`")
            elsewhere = library.shared.elsewhere_notices(indexed_file) if library.shared else ()
            notices = (*notices, *elsewhere, *stale_notice(len(changed)))
            yield OpenedDocument(library, snapshot, resolved, notices)
            return


@repeat_if_lost
def get(
    library: Library,
    ref: str,
    level: str | None,
    context: int | None,
    collection: str | None,
    near: Path | None,
    progress: Progress,
) -> Extract:
    """Return a document or a part of it, with as much context as the level says."""
    wanted, count = context_level(level, context)
    with open_document(library, ref, near, progress, collection) as opened:
        extract = opened.resolved.extract()
        if wanted:
            extract = extract_at_level(extract, wanted, opened.snapshot, count)
        return opened.finish(extract)


@repeat_if_lost
def outline(library: Library, ref: str, near: Path | None, progress: Progress) -> Outline:
    """Return the headings of a document."""
    with open_document(library, ref, near, progress) as opened:
        return opened.finish(Outline(opened.document.id, tuple(opened.document.outline)))


@repeat_if_lost
def page(library: Library, ref: str, line: int, near: Path | None, progress: Progress) -> Page:
    """Return a document as safe HTML; of a very long one the part around a line."""
    from marklight.ingest.render import render
    from marklight.library.media import LibraryNeighbours

    several = library.files.several
    with open_document(library, ref, near, progress) as opened:
        snapshot, document = opened.snapshot, opened.document
        around = LibraryNeighbours(library, snapshot, document.id)
        parsers = library.text_ingest.discover.parsers
        rendered = render(document, document.id.named(several), around, line, parsers)
        page = Page(
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
        return opened.finish(page)


@repeat_if_lost
def links(
    library: Library, ref: str | None, limit: int, near: Path | None, progress: Progress
) -> Links:
    """Return the links to and from a document; without one, unresolved links and orphans of the library."""
    exists = library.files.exists
    if ref is not None:
        with open_document(library, ref, near, progress) as opened:
            result = relations.links(opened.document.id, opened.snapshot, limit, exists)
            return opened.finish(result)
    notices = refresh_existing(library, progress)
    with library.engine.snapshot() as snapshot:
        return _finish(library, relations.unresolved_and_orphans(snapshot, limit, exists), notices)


@repeat_if_lost
def related(
    library: Library, ref: str, limit: int, near: Path | None, progress: Progress
) -> Related:
    """Return the documents most related to a document: by links, shared tags and embeddings, each with the reasons."""
    with open_document(library, ref, near, progress) as opened:
        snapshot, model = opened.snapshot, ""
        if library.settings["model.name"] != "none":
            model = model_in_use(snapshot, lambda: library.models.fingerprint()[0])
        result = relations.related(opened.document, snapshot, model, limit, library.files.exists)
        return opened.finish(result)


@repeat_if_lost
def graph(
    library: Library,
    ref: str | None,
    depth: int,
    limit: int,
    near: Path | None,
    progress: Progress,
) -> Graph:
    """Return the link graph around a document; without one, around the documents with the most links."""
    exists = library.files.exists
    if ref is not None:
        with open_document(library, ref, near, progress) as opened:
            id, snapshot = opened.document.id, opened.snapshot
            return opened.finish(relations.graph_around(id, snapshot, depth, limit, exists))
    notices = refresh_existing(library, progress)
    with library.engine.snapshot() as snapshot:
        return _finish(library, relations.graph_of_best_linked(snapshot, limit, exists), notices)


@repeat_if_lost
def resolve(library: Library, ref: str, near: Path | None, progress: Progress) -> DocumentList:
    """Return the document that a reference means, or all documents that match a glob."""
    refresh_existing(library, progress)
    with library.engine.snapshot() as snapshot:
        try:
            ids = [References(library.files, snapshot, near).resolve(ref).document.id]
        except NotFound:
            if not has_wildcards(ref):
                raise
            patterns = filter_patterns(globs([ref]), library.collections, (), near)
            ids = snapshot.metadata.matching_documents(Filters(paths=patterns), MAX_MATCHES)
            if not ids:
                raise
        files = snapshot.documents.files_of(ids)
    documents = tuple(ListedFile(id, files[id].file) for id in ids)
    return DocumentList(documents, len(ids), several_collections=library.files.several)


def _refusal(library: Library, documents: list[DocumentId]) -> str:
    """Return why the file of one of these documents was not indexed; empty if none was refused."""
    if not documents:
        return ""
    with library.engine.snapshot() as snapshot:
        reasons = {failure.document: failure.reason for failure in snapshot.status.failures()}
    return next((f"{id.path} {reasons[id]}" for id in documents if id in reasons), "")


@repeat_if_lost
def list_documents(library: Library, like: str, after: str, limit: int) -> DocumentList:
    """Return a page of the documents in order of their ids; with `like`, the best matches of a text in paths.

    `after` is the cursor `next` of the page before.
    """
    several = library.files.several
    with library.engine.snapshot() as snapshot:
        files = snapshot.documents.files()
    if like:
        matches = nsmallest(limit, _path_matches(files, like.lower(), several))
        documents = tuple(ListedFile(id, files[id].file) for _, id in matches)
        return DocumentList(documents, len(files), several_collections=several)
    last = _read_cursor(after) if after else None
    rest = [id for id in files if last is None or id > last]
    ids = nsmallest(limit, rest)
    cursor = json.dumps(ids[-1], ensure_ascii=False) if len(ids) < len(rest) else None
    documents = tuple(ListedFile(id, files[id].file) for id in ids)
    return DocumentList(documents, len(files), cursor, several)


def _path_matches(
    ids: Iterable[DocumentId], text: str, several: bool
) -> Iterable[tuple[int, DocumentId]]:
    """Yield the documents whose name contains the text, and a rank: name prefix, file name prefix, anywhere."""
    for id in ids:
        offset = id.named(several).lower().find(text)
        if offset < 0:
            continue
        name = id.path.lower().rpartition("/")[2]
        yield (0 if offset == 0 else 1 if name.startswith(text) else 2), id


def _read_cursor(after: str) -> DocumentId:
    try:
        collection, path = json.loads(after)
        return DocumentId(str(collection), str(path))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            "`after` must be the value of `next` of the page before",
            "Leave it out for the first page",
        ) from error


def tags(library: Library) -> dict[str, int]:
    """Return the number of documents with each tag, or with one nested below it."""
    with library.engine.snapshot() as snapshot:
        return dict(sorted(snapshot.metadata.tags().items()))
