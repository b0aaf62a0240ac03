"""List of documents that match a query: validate the request, refresh the index, list on one snapshot, check the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from marklight.errors import UsageError
from marklight.library.collections import unlisted_notice
from marklight.library.concurrency import repeat_if_lost
from marklight.library.model_selection import IN_BACKGROUND, RUN_INDEX
from marklight.library.refresh import (
    RefreshResult,
    incomplete_notices,
    read_current,
    refresh,
    stale_notice,
)
from marklight.library.search import not_repeated, prepare, run
from marklight.library.validation import Day, SearchRequest, Texts, integer
from marklight.listing import Listing, Sort
from marklight.model import DocumentId
from marklight.place import complete_commands
from marklight.ports import Progress
from marklight.query import Mode, Query
from marklight.search.listing import list_documents as list_matching

if TYPE_CHECKING:
    from marklight.library import Library

MAX_PAGE = 1_000_000
"""Largest page number and page size."""


class ListFlags(TypedDict, total=False):
    """Keywords of `Library.list_documents`; `ListRequest` describes them."""

    limit: int | None
    page: int
    sort: str | None
    mode: str
    min_confidence: float | None
    path: Texts
    tag: Texts
    where: Mapping[str, str] | Texts
    exclude: Texts
    collection: Texts
    after: Day
    before: Day
    refresh: bool
    settings: Mapping[str, Any] | None
    assignments: Sequence[str]
    near: Path | None
    part: Path | None


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Parameters of a list of documents, as a caller gives them."""

    search: SearchRequest
    """The query, which may be empty, and the filters."""
    limit: int | None = None
    """Documents on a page; None for all."""
    page: int = 1
    sort: Sort | None = None
    """None for relevance, and for paths if there is no query."""

    @classmethod
    def of(cls, text: str, flags: ListFlags) -> ListRequest:
        """Validate the parameters that a search does not have."""
        rest: dict[str, Any] = dict(flags)
        limit, page, sort = rest.pop("limit", None), rest.pop("page", 1), rest.pop("sort", None)
        if sort is not None and sort not in list(Sort):
            raise UsageError(f"No such order: {sort!r}", f"Known: {', '.join(Sort)}")
        return cls(
            SearchRequest(text=text, **rest),
            None if limit is None else integer("The limit", limit, 1, MAX_PAGE),
            integer("The page", page, 1, MAX_PAGE),
            Sort(sort) if sort else None,
        )

    def to_query(self, library: Library) -> Query:
        """Validate the query and its filters."""
        search = self.search
        empty = isinstance(search.text, str) and not search.text.strip()
        others = library.shared.other_collections(search.collection) if library.shared else ()
        # A list without a query needs no model.
        checked = replace(search, text="all", mode=Mode.KEYWORD) if empty else search
        query = checked.to_query(library.collections, library.scope, others)
        return replace(query, text="") if empty else query


@repeat_if_lost
def list_documents(
    library: Library,
    request: ListRequest,
    progress: Progress,
    check_cancelled: Callable[[], None],
) -> Listing:
    """Return one page of the documents that match, and the number of all."""
    query, given = request.to_query(library), request.search
    settings = library.settings_with(given.settings, given.assignments)
    pipeline = library.pipeline_of(settings)
    prepared = prepare(library, replace(query, rerank=False), pipeline, check_cancelled)
    fresh = refresh(library, query, progress) if given.refresh else RefreshResult()
    execute = partial(
        list_matching, pipeline, sort=request.sort, page=request.page, limit=request.limit
    )

    def attempt() -> tuple[Listing, list[DocumentId]]:
        denied: set[str] = set()

        def exists(id: DocumentId) -> bool:
            if library.files.exists(id):
                return True
            denied.update(filter(None, [library.files.denied_folder(id)]))
            return False

        rest = IN_BACKGROUND if library.watcher else RUN_INDEX
        with library.threads.search_slot() as alone, library.engine.snapshot() as snapshot:
            listing = run(
                library, prepared, snapshot, execute, alone=alone, exists=exists, rest=rest
            )
            shown = [each.document for each in listing.documents]
            indexed = snapshot.documents.files_of(shown)
            elsewhere = library.shared.elsewhere_notices(indexed) if library.shared else ()
            listing = replace(
                listing,
                notices=[
                    *listing.notices,
                    *map(unlisted_notice, sorted(denied)),
                    *incomplete_notices(snapshot),
                    *elsewhere,
                ],
            )
            return listing, library.files.changed(indexed) if library.indexes_here else []

    refreshing = given.refresh and library.indexes_here
    listing, stale = read_current(library, attempt, progress) if refreshing else attempt()
    return replace(
        listing,
        index=replace(listing.index, unread=fresh.unread),
        notices=[
            complete_commands(notice, library.place.folder)
            for notice in (
                *library.notices(settings),
                *not_repeated(fresh.notices, listing.notices),
                *listing.notices,
                *stale_notice(len(stale)),
                *prepared.first_use_notices(library),
                *library.engine.take_notices(),
            )
        ],
        took_ms=prepared.took_ms,
        several_collections=len(
            {*library.collections, *(each.document.collection for each in listing.documents)}
        )
        > 1,
    )
