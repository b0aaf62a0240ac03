"""Search of documents: refresh the index, run the pipeline on one snapshot, check the files and the checksums of the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from marklight.answer import Answer
from marklight.errors import HistoryError, ModelServerError, NotFound
from marklight.library.collections import ExistenceCheck
from marklight.library.concurrency import repeat_if_lost
from marklight.library.model_selection import (
    EMBEDDING_MODES,
    IN_BACKGROUND,
    RUN_INDEX,
    choose_embedder,
)
from marklight.library.refresh import (
    MAX_ATTEMPTS,
    RefreshResult,
    incomplete_notices,
    index_again,
    outdated_notices,
    stale_notice,
)
from marklight.library.refresh import refresh as refresh_index
from marklight.library.settings_tables import Model
from marklight.library.validation import document_query
from marklight.model import DocumentId
from marklight.place import complete_commands
from marklight.ports import Embedder, Progress, Reranker, Snapshot, Tools
from marklight.query import Mode, Query
from marklight.search.context import OpenDocuments, levels, within_budget
from marklight.search.pipeline import GONE, Pipeline
from marklight.text.languages import documents_by_language, query_languages

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.listing import Listing
    from marklight.settings import Settings

Result = TypeVar("Result", "Answer", "Listing")

DEPTH_STEP, MAX_DEPTH = 4, 16
"""Factor by which each deeper search multiplies the number of candidates, and its maximum."""
FEW_CANDIDATES = 20
"""With fewer candidates than this, a deeper search would find no more."""
DAMAGED = "The passages that match are damaged in the index"
UNREADABLE = "The documents that match cannot be read (permission denied)"


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A validated query with the pipeline and the models that answer it."""

    query: Query
    pipeline: Pipeline
    embedder: Embedder | None
    reranker: Reranker | None
    check_cancelled: Callable[[], None]
    started: float

    def search(self, query: Query, tools: Tools) -> Answer:
        """Run the pipeline, with more candidates while duplicates and deleted files leave too few results."""
        return search_deep_enough(self.pipeline, query, tools)

    @property
    def took_ms(self) -> float:
        """Return the time since the search began."""
        return (time.perf_counter() - self.started) * 1000

    def first_use_notices(self, library: Library) -> list[str]:
        """Return a notice for each remote model server that this search uses for the first time."""
        return library.models.first_use_notices(
            embedding=self.embedder is not None, reranking=self.reranker is not None
        )


def prepare(
    library: Library, query: Query, pipeline: Pipeline, check_cancelled: Callable[[], None]
) -> PreparedSearch:
    """Load the models that a query needs, so that a missing one is reported before any other work."""
    started = time.perf_counter()
    reranker = library.models.reranker_for(query, pipeline)
    embedder = library.models.embedder if query.mode in EMBEDDING_MODES else None
    return PreparedSearch(query, pipeline, embedder, reranker, check_cancelled, started)


def search(
    library: Library,
    query: str,
    *,
    queries: Sequence[str | Mapping[str, Any]] = (),
    **options: Any,
) -> Answer:
    """Return the best passages for a query, or for several phrasings of it."""
    if not queries:
        return search_once(library, query, **options)
    from marklight.library.fused_search import fused_search

    return fused_search(library, query, queries, **options)


@repeat_if_lost
def search_once(
    library: Library,
    query: str,
    *,
    with_history: bool = False,
    explain: bool = False,
    refresh: bool,
    settings: Mapping[str, Any] | None,
    assignments: Sequence[str],
    progress: Progress,
    check_cancelled: Callable[[], None],
    **options: Any,
) -> Answer:
    """Return the best passages for a query, and the best commits too with the history."""
    checked = document_query(library, query, **options)
    used = library.settings_with(settings, assignments)
    prepared = prepare(library, checked, library.pipeline_of(used), check_cancelled)
    fresh = refresh_index(library, checked, progress) if refresh else RefreshResult()
    refreshing = progress if refresh and library.indexes_here else None
    answer = _search_documents(library, prepared, refreshing)
    shown = {hit.chunk.document for hit in answer.passages}
    answer = within_budget(
        replace(finished(library, used, prepared, answer, fresh, shown), explain=explain)
    )
    if with_history:
        from marklight.library.history import search_beside_documents

        try:
            commits = search_beside_documents(library, prepared, refreshing, explain=explain)
            answer = replace(answer, commits=commits)
        except (HistoryError, NotFound) as error:  # the documents are shown all the same
            answer = replace(answer, notices=(*answer.notices, str(error)))
    return replace(answer, took_ms=prepared.took_ms)


def finished(
    library: Library,
    settings: Settings,
    prepared: PreparedSearch,
    answer: Result,
    fresh: RefreshResult,
    shown: Iterable[DocumentId],
) -> Result:
    """Return an answer or a list with everything that is not about its documents: all notices, the state of the index."""
    notices = (
        *library.notices(settings),
        *not_repeated(fresh.notices, answer.notices),
        *answer.notices,
        *outdated_notices(library, IN_BACKGROUND if library.watcher else RUN_INDEX),
        *prepared.first_use_notices(library),
        *library.engine.take_notices(),
    )
    return replace(
        answer,
        index=replace(answer.index, unread=fresh.unread),
        notices=[complete_commands(notice, library.place.folder) for notice in notices],
        took_ms=prepared.took_ms,
        several_collections=len({*library.collections, *(id.collection for id in shown)}) > 1,
    )


def _search_documents(
    library: Library, prepared: PreparedSearch, progress: Progress | None
) -> Answer:
    """Return passages of files as they are now; without a progress, as they are indexed."""
    watcher = library.watcher
    rest = IN_BACKGROUND if watcher else RUN_INDEX
    # While a library is indexed for the first time, the notice about its progress is enough.
    indexing = watcher is not None and watcher.is_reading
    folder = library.place.folder
    # Without a refresh the documents may be on the disk all the same.
    nothing = (
        f"There are no documents in {folder}"
        if progress
        else f"{folder} is not indexed yet: run `marklight index`"
    )
    empty = [] if indexing else [nothing]
    damaged: list[set[DocumentId]] = []
    elsewhere: list[str] = []

    def attempt() -> tuple[Answer, list[DocumentId]]:
        existing = ExistenceCheck(library.files)
        with library.searches, library.engine.snapshot() as snapshot:
            answer = run(
                library,
                prepared,
                snapshot,
                prepared.search,
                exists=existing,
                rest=rest,
            )
            damaged.append(_damaged_documents(answer, snapshot))
            if damaged[-1]:
                answer = _without(answer, damaged[-1], DAMAGED)
            documents = {hit.chunk.document for hit in answer.passages}
            answer = replace(
                answer,
                modified=snapshot.documents.modified_times(documents),
                dates=snapshot.documents.dates(documents),
                levels=levels((hit.chunk for hit in answer.passages), OpenDocuments(snapshot)),
                abstained=UNREADABLE
                if existing.denied and answer.abstained == GONE
                else answer.abstained,
                notices=[
                    *answer.notices,
                    *existing.notices(),
                    *incomplete_notices(snapshot),
                    *([] if answer.index.documents else empty),
                ],
            )
            indexed = snapshot.documents.files_of(documents)
            if library.shared:
                elsewhere.extend(library.shared.elsewhere_notices(indexed))
            changed = library.files.changed(indexed) if library.indexes_here else []
            return answer, [*damaged[-1], *changed]

    answer, stale = attempt()
    attempts = 1
    while progress and attempts <= MAX_ATTEMPTS and index_again(library, stale, progress):
        answer, stale = attempt()
        attempts += 1
    answer = _without_deleted(answer, stale, library.files.is_here) if stale else answer
    return replace(answer, notices=[*answer.notices, *elsewhere, *_damage_notices(damaged)])


def run(
    library: Library,
    prepared: PreparedSearch,
    snapshot: Snapshot,
    execute: Callable[[Query, Tools], Result],
    *,
    exists: Callable[[DocumentId], bool] = lambda _: True,
    rest: str = RUN_INDEX,
) -> Result:
    """Execute a query on a snapshot of an index.

    If a model server fails, keyword search alone answers.
    """
    counts = snapshot.status.counts(library.models.fingerprint()[0])
    of_documents = documents_by_language(snapshot.metadata.languages(), counts.documents)
    languages = query_languages(prepared.query.text, of_documents)
    query = replace(prepared.query, languages=languages)
    embedder, notices = choose_embedder(
        query, snapshot, prepared.embedder, library.models.embedder_named, rest
    )
    second: Embedder | None = None
    if embedder is not None:
        embedder, second, more = library.models.for_language(
            query, snapshot, embedder, of_documents
        )
        notices += more
    tools = Tools(
        snapshot,
        embedder and embedder.with_time_limit(Model.query_seconds),
        second,
        prepared.reranker,
        exists=exists,
        now=time.time(),
        notify=notices.append,
        check_cancelled=prepared.check_cancelled,
    )
    try:
        answer = execute(query, tools)
    except ModelServerError as error:
        if query.mode is Mode.SEMANTIC:
            raise
        notices.append(f"Answered by keyword search alone: {error}")
        answer = execute(query, replace(tools, embedder=None))
    # A deeper search repeats the notices of the first one.
    return replace(answer, index=counts, notices=list(dict.fromkeys(notices)))


def search_deep_enough(pipeline: Pipeline, query: Query, tools: Tools) -> Answer:
    """Search with more candidates while duplicates and deleted files leave too few results."""
    answer, depth = pipeline(query, tools), 1
    while _is_crowded(answer) and depth < MAX_DEPTH:
        depth *= DEPTH_STEP
        deeper = pipeline(query, tools, depth)
        if deeper.stats["original_count"] == answer.stats["original_count"]:
            break  # there are no other candidates
        answer = deeper
    return answer


def _is_crowded(answer: Answer) -> bool:
    """Return true if most candidates were duplicates or deleted files, and fewer results are left than the limit.

    If the confidence threshold removed some, candidates further down would be below it too.
    """
    left = {step.stage: step.count for step in answer.steps}
    fused = left["fuse"]
    existing = left.get("existing_files", fused)
    if len(answer.hits) >= answer.query.limit or fused < FEW_CANDIDATES:
        return False
    if left.get("confidence", existing) < existing:
        return False
    return 2 * answer.stats["after_same_meaning"] < fused


def _damaged_documents(answer: Answer, snapshot: Snapshot) -> set[DocumentId]:
    """Return the documents of hits that do not match their checksums: of the passages, or of all that is shown around them."""
    query = answer.query
    if query.parents or query.context or query.expand_context:
        return snapshot.status.damaged_documents({hit.chunk.document for hit in answer.passages})
    return snapshot.status.damaged_chunks([hit.chunk.id for hit in answer.passages])


def _damage_notices(damaged: list[set[DocumentId]]) -> list[str]:
    """Return notices about documents that were damaged in the index: those that were read again, and those left out."""
    left_out = damaged[-1]
    repaired = set().union(*damaged) - left_out
    notices = []
    if repaired:
        names = ", ".join(sorted(id.path for id in repaired))
        notices.append(f"Damaged in the index and read again from the disk: {names}")
    if left_out:
        names = ", ".join(sorted(id.path for id in left_out))
        notices.append(f"Damaged in the index and left out: {names}; `marklight doctor` repairs it")
    return notices


def _without_deleted(
    answer: Answer, stale: Iterable[DocumentId], exists: Callable[[DocumentId], bool]
) -> Answer:
    """Remove hits of deleted files; add a notice about files that changed and could not be read again."""
    deleted = {id for id in stale if not exists(id)}
    answer = _without(answer, deleted, GONE)
    changed = len({hit.chunk.document for hit in answer.passages}.intersection(stale))
    return replace(answer, notices=[*answer.notices, *stale_notice(changed)])


def _without(answer: Answer, documents: set[DocumentId], reason: str) -> Answer:
    """Return the answer without passages of some documents; `reason` is why none is left."""
    hits, nearest = (
        tuple(hit for hit in passages if hit.chunk.document not in documents)
        for passages in (answer.hits, answer.nearest)
    )
    abstained = answer.abstained if hits or nearest else reason
    return replace(answer, hits=hits, nearest=nearest, abstained=abstained)


def not_repeated(notices: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the notices whose reason is not among the others: one failure is reported once."""
    reasons = {_reason(notice) for notice in others}
    return [notice for notice in notices if _reason(notice) not in reasons]


def _reason(notice: str) -> str:
    return notice.partition(": ")[2] or notice
