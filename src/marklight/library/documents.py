"""Read operations on documents: get, outline, page, links, related, graph, and the list of documents.

Each operation refreshes the index first, and reads a document again if its file changed since it was indexed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from marklight.answer import iso_seconds
from marklight.errors import NotFound, StoreError, UsageError
from marklight.library.concurrency import repeat_if_lost
from marklight.library.model_selection import model_in_use
from marklight.library.references import References, filter_patterns
from marklight.library.refresh import index_again, read_current, refresh_existing, stale_notice
from marklight.library.validation import context_level, globs, integer
from marklight.model import DocumentId
from marklight.ports import IndexedFile, Progress
from marklight.query import Filters
from marklight.report import DocumentList, Extract, Graph, Links, Outline, Page, Related
from marklight.search import relations
from marklight.search.extracts import extract_at_level

if TYPE_CHECKING:
    from marklight.library import Library

MAX_MATCHES = 1000
"""Documents that a glob may mean."""

Result = TypeVar("Result", bound=Extract | Outline | Page | Links | Related)
"""A result about one document."""


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

    def read(references: References) -> Extract:
        extract = replace(references, collection=collection).resolve(ref).extract()
        library.files.check_exists(extract.document)
        return extract_at_level(extract, wanted, references.snapshot, count) if wanted else extract

    return _about_document(library, read, near, progress)


def outline(library: Library, ref: str, near: Path | None, progress: Progress) -> Outline:
    """Return the headings of a document."""

    def read(references: References) -> Outline:
        document = references.resolve(ref).document
        return Outline(document.id, tuple(document.outline))

    return _about_document(library, read, near, progress)


def page(library: Library, ref: str, line: int, near: Path | None, progress: Progress) -> Page:
    """Return a document as safe HTML; of a very long one the part around a line."""
    from marklight.ingest.render import render

    several = library.files.several

    def read(references: References) -> Page:
        snapshot, document = references.snapshot, references.resolve(ref).document
        links = snapshot.links.outgoing(document.id)
        targets = {link.link.keys: link.target.named(several) for link in links if link.target}
        parsers = library.text_ingest.discover.parsers
        rendered = render(document, document.id.named(several), targets.get, line, parsers)
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

    return _about_document(library, read, near, progress)


def links(
    library: Library, ref: str | None, limit: int, near: Path | None, progress: Progress
) -> Links:
    """Return the links to and from a document; without one, unresolved links and orphans of the library."""
    integer("The limit", limit, 1, relations.MAX_BACKLINKS)

    def read(references: References) -> Links:
        snapshot = references.snapshot
        if ref is None:
            return relations.unresolved_and_orphans(snapshot, limit, library.files.exists)
        id = references.resolve(ref).document.id
        return relations.links(id, snapshot, limit, library.files.exists)

    return _about_document(library, read, near, progress)


def related(
    library: Library, ref: str, limit: int, near: Path | None, progress: Progress
) -> Related:
    """Return the documents most related to a document: by links, shared tags and embeddings, each with the reasons."""
    integer("The limit", limit, 1, 100)

    def read(references: References) -> Related:
        snapshot, document = references.snapshot, references.resolve(ref).document
        model = ""
        if library.settings["model.name"] != "none":
            model = model_in_use(snapshot, lambda: library.models.fingerprint()[0])
        return relations.related(document, snapshot, model, limit, library.files.exists)

    return _about_document(library, read, near, progress)


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
    integer("The depth", depth, 1, relations.MAX_DEPTH)
    integer("The limit", limit, 1, relations.MAX_NODES)
    notices = refresh_existing(library, progress)
    with library.engine.snapshot() as snapshot:
        if ref is None:
            result = relations.graph_of_best_linked(snapshot, limit, library.files.exists)
        else:
            references = References(library.files, snapshot, near)
            id = references.resolve(ref).document.id
            result = relations.graph_around(id, snapshot, depth, limit, library.files.exists)
    return replace(result, several_collections=library.files.several, notices=notices)


@repeat_if_lost
def resolve(library: Library, ref: str, near: Path | None, progress: Progress) -> DocumentList:
    """Return the document that a reference means, or all documents that match a glob."""
    refresh_existing(library, progress)
    with library.engine.snapshot() as snapshot:
        try:
            ids = [References(library.files, snapshot, near).resolve(ref).document.id]
        except NotFound:
            if not set(ref) & set("*?["):
                raise
            patterns = filter_patterns(globs([ref]), library.collections, (), near)
            ids = snapshot.metadata.matching_documents(Filters(paths=patterns), MAX_MATCHES)
            if not ids:
                raise
        files = snapshot.documents.files_of(ids)
    documents = tuple((id, files[id].file) for id in ids)
    return DocumentList(documents, len(ids), several_collections=library.files.several)


@repeat_if_lost
def _about_document(
    library: Library,
    read: Callable[[References], Result],
    near: Path | None,
    progress: Progress,
) -> Result:
    """Return what `read` finds about a document, after its file was indexed again if it changed."""
    notices = refresh_existing(library, progress)
    unindexed: list[DocumentId] = []
    damaged: list[DocumentId] = []
    elsewhere: list[str] = []

    def attempt() -> tuple[Result, list[DocumentId]]:
        with library.engine.snapshot() as snapshot:
            references = References(library.files, snapshot, near, unindexed=unindexed.append)
            result = read(references)
            ids = [result.document] if result.document else []
            damaged[:] = snapshot.status.damaged_documents(ids)
            indexed = snapshot.documents.files_of(ids)
            if library.shared:
                elsewhere.extend(library.shared.elsewhere_notices(indexed))
            changed = library.files.changed(indexed) if library.indexes_here else []
            return result, [*damaged, *changed]

    try:
        result, stale = read_current(library, attempt, progress)
    except NotFound as error:
        indexed = index_again(library, unindexed, progress)
        if reason := _refusal(library, unindexed):
            raise NotFound(reason) from error
        if not indexed:
            raise
        result, stale = read_current(library, attempt, progress)
    if damaged:
        raise StoreError(f"{damaged[0].path} is damaged in the index", "Run `marklight doctor`")
    return replace(
        result,
        several_collections=library.files.several,
        notices=(*notices, *elsewhere, *stale_notice(len(stale)), *result.notices),
    )


def _refusal(library: Library, documents: list[DocumentId]) -> str:
    """Return why the file of one of these documents was not indexed; empty if none was refused."""
    if not documents:
        return ""
    with library.engine.snapshot() as snapshot:
        reasons = {failure.document: failure.reason for failure in snapshot.status.failures()}
    return next((f"{id.path} {reasons[id]}" for id in documents if id in reasons), "")


@repeat_if_lost
def list_documents(library: Library, like: str, after: str, limit: int) -> DocumentList:
    """Return indexed documents in order of their ids, paginated; with `like`, the best matches of a text in paths."""
    integer("The limit", limit, 1, 1000)
    with library.engine.snapshot() as snapshot:
        return paginate(snapshot.documents.files(), like, after, limit, library.files.several)


def paginate(
    files: Mapping[DocumentId, IndexedFile],
    like: str,
    after: str,
    limit: int,
    several: bool = False,
) -> DocumentList:
    """Return one page of documents; `after` is the cursor `next` of the page before."""
    if like:
        matches = nsmallest(limit, _path_matches(files, like.lower(), several))
        documents = tuple((id, files[id].file) for _, id in matches)
        return DocumentList(documents, len(files), several_collections=several)
    last = _read_cursor(after) if after else None
    rest = [id for id in files if last is None or id > last]
    ids = nsmallest(limit, rest)
    cursor = json.dumps(ids[-1], ensure_ascii=False) if len(ids) < len(rest) else None
    return DocumentList(tuple((id, files[id].file) for id in ids), len(files), cursor, several)


def _path_matches(
    ids: Iterable[DocumentId], text: str, several: bool
) -> Iterable[tuple[int, DocumentId]]:
    """Yield the documents whose name contains the text, and a rank: name prefix, file name prefix, anywhere."""
    for id in ids:
        at = id.named(several).lower().find(text)
        if at < 0:
            continue
        name = id.path.lower().rpartition("/")[2]
        yield (0 if at == 0 else 1 if name.startswith(text) else 2), id


def _read_cursor(after: str) -> DocumentId:
    try:
        collection, path = json.loads(after)
        return DocumentId(str(collection), str(path))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            "`after` must be the value of `next` of the page before",
            "Leave it out for the first page",
        ) from error
