"""List of documents that match a query: refresh the index, list on one snapshot, check the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from marklight.library.collections import ExistenceCheck
from marklight.library.concurrency import repeat_if_lost
from marklight.library.model_selection import IN_BACKGROUND, RUN_INDEX
from marklight.library.refresh import (
    MAX_ATTEMPTS,
    RefreshResult,
    incomplete_notices,
    index_again,
    stale_notice,
)
from marklight.library.refresh import refresh as refresh_index
from marklight.library.search import finished, prepare, run
from marklight.library.validation import document_query
from marklight.listing import Listing, Sort
from marklight.model import DocumentId
from marklight.ports import Progress
from marklight.query import Mode
from marklight.search.listing import list_documents as list_matching

if TYPE_CHECKING:
    from marklight.library import Library


@repeat_if_lost
def list_documents(
    library: Library,
    query: str | None,
    *,
    sort: str | None,
    limit: int | None,
    page: int,
    refresh: bool,
    settings: Mapping[str, Any] | None,
    assignments: Sequence[str],
    progress: Progress,
    check_cancelled: Callable[[], None],
    **options: Any,
) -> Listing:
    """Return one page of the documents that match, and the number of all."""
    text = (query or "").strip()
    if not text:
        options["mode"] = Mode.KEYWORD  # needs no model
    checked = document_query(library, text or "all", rerank=False, **options)
    checked = checked if text else replace(checked, text="")
    used = library.settings_with(settings, assignments)
    pipeline = library.pipeline_of(used)
    prepared = prepare(library, checked, pipeline, check_cancelled)
    fresh = refresh_index(library, checked, progress) if refresh else RefreshResult()
    order = Sort(sort) if sort else None
    execute = partial(list_matching, pipeline, sort=order, page=page, limit=limit)

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

    refreshing = refresh and library.indexes_here
    listing, stale = attempt()
    attempts = 1
    while refreshing and attempts <= MAX_ATTEMPTS and index_again(library, stale, progress):
        listing, stale = attempt()
        attempts += 1
    listing = replace(listing, notices=[*listing.notices, *stale_notice(len(stale))])
    shown = [each.document for each in listing.documents]
    return finished(library, used, prepared, listing, fresh, shown)
