"""List of documents that match a query: validate the request, refresh the index, list on one snapshot, check the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from marklight.errors import UsageError
from marklight.library.collections import ExistenceCheck
from marklight.library.concurrency import repeat_if_lost
from marklight.library.model_selection import IN_BACKGROUND, RUN_INDEX
from marklight.library.refresh import (
    MAX_ATTEMPTS,
    RefreshResult,
    incomplete_notices,
    index_again,
    refresh,
    stale_notice,
)
from marklight.library.search import finished, prepare, run
from marklight.library.validation import FilterFlags, SearchRequest, integer
from marklight.listing import Listing, Sort
from marklight.model import DocumentId
from marklight.ports import Progress
from marklight.query import Mode, Query
from marklight.search.listing import list_documents as list_matching

if TYPE_CHECKING:
    from marklight.library import Library

MAX_PAGE = 1_000_000
"""Largest page number and page size."""


class ListFlags(FilterFlags, total=False):
    """Keywords of `Library.list_documents`; `ListRequest` describes them."""

    limit: int | None
    page: int
    prefix: bool
    sort: str | None


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
        existing = ExistenceCheck(library.files)
        rest = IN_BACKGROUND if library.watcher else RUN_INDEX
        with library.searches, library.engine.snapshot() as snapshot:
            listing = run(library, prepared, snapshot, execute, exists=existing, rest=rest)
            indexed = snapshot.documents.files_of(each.document for each in listing.documents)
            elsewhere = library.shared.elsewhere_notices(indexed) if library.shared else ()
            notices = (*existing.notices(), *incomplete_notices(snapshot), *elsewhere)
            listing = replace(listing, notices=[*listing.notices, *notices])
            return listing, library.files.changed(indexed) if library.indexes_here else []

    refreshing = given.refresh and library.indexes_here
    listing, stale = attempt()
    attempts = 1
    while refreshing and attempts <= MAX_ATTEMPTS and index_again(library, stale, progress):
        listing, stale = attempt()
        attempts += 1
    listing = replace(listing, notices=[*listing.notices, *stale_notice(len(stale))])
    shown = [each.document for each in listing.documents]
    return finished(library, settings, prepared, listing, fresh, shown)
