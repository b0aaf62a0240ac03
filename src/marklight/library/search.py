"""Search and list documents: refresh the index, run the pipeline on one snapshot, verify files and checksums, answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.answer import Answer, Hit, Hits, Level, Ranking
from marklight.errors import HistoryError, Message, NotFound, UsageError
from marklight.lazy import dataclass
from marklight.library.configuration import Model
from marklight.library.model_selection import (
    EMBEDDING_MODES,
    IN_BACKGROUND,
    RUN_INDEX,
    choose_embedder,
)
from marklight.library.refresh import (
    MAX_ATTEMPTS,
    ExistenceCheck,
    RefreshResult,
    incomplete_notices,
    index_again,
    outdated_notices,
    repeat_if_lost,
    stale_notice,
)
from marklight.library.refresh import refresh as refresh_index
from marklight.library.validation import document_query
from marklight.model import Counts, DocumentId
from marklight.place import complete_commands
from marklight.ports import Embedder, Progress, Reranker, Snapshot, Tools
from marklight.query import Mode, Query, result_limit
from marklight.search.compose import compose, omission_notices
from marklight.search.context import OpenDocuments, levels
from marklight.search.pipeline import GONE, Pipeline
from marklight.text.languages import documents_by_language, query_languages

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.results import Listing, Sort
    from marklight.settings import Settings

DEPTH_STEP, MAX_DEPTH = 4, 16
"""Factor by which each deeper search multiplies the number of candidates, and its maximum."""
FEW_CANDIDATES = 20
"""With fewer candidates than this, a deeper search would find no more."""
DAMAGED = "The passages that match are damaged in the index"
UNREADABLE = "The documents that match cannot be read (permission denied)"


class Page(NamedTuple):
    """One page of a list of documents."""

    sort: Sort | None
    number: int
    limit: int | None
    lines: bool
    """Return the lines that match."""


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A validated query with the pipeline and the models that answer it."""

    query: Query
    pipeline: Pipeline
    embedder: Embedder | None
    reranker: Reranker | None
    check_cancelled: Callable[[], None]
    explain: bool
    page: Page | None
    """Documents to list; None to search for passages."""
    started: float

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
    library: Library,
    query: Query,
    pipeline: Pipeline,
    check_cancelled: Callable[[], None],
    *,
    explain: bool = False,
    page: Page | None = None,
) -> PreparedSearch:
    """Load the models that a query needs, so that a missing one is reported before any other work."""
    started = time.perf_counter()
    reranker = library.models.reranker_for(query, pipeline)
    embedder = library.models.embedder if query.mode in EMBEDDING_MODES else None
    return PreparedSearch(
        query, pipeline, embedder, reranker, check_cancelled, explain, page, started
    )


def search(
    library: Library,
    query: str,
    *,
    queries: Sequence[str | Mapping[str, Any]] = (),
    **options: Any,
) -> Answer:
    """Return the best passages for a query, or for several phrasings of it."""
    if queries:
        return fused_search(library, query, queries, **options)
    return search_once(library, query, **options)


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
    pipeline = library.pipeline_of(used)
    prepared = prepare(library, checked, pipeline, check_cancelled, explain=explain)
    fresh = refresh_index(library, checked, progress) if refresh else RefreshResult()
    refreshing = progress if refresh and library.indexes_here else None
    found, reading = read_current(library, prepared, refreshing)
    assert isinstance(found, FoundPassages)
    ranking = found.ranking
    if reading.denied and ranking.abstained == GONE:
        ranking = ranking._replace(abstained=UNREADABLE)
    stale = {*found.damaged, *reading.changed}
    ranking = ranking.without({id for id in stale if not library.files.is_here(id)}, GONE)
    shown = {hit.chunk.document for hit in ranking.passages}
    notices = [
        *reading.notices,
        *_empty_notices(library, reading.index, refreshing),
        *stale_notice(len(shown & stale)),
        *reading.elsewhere,
        *_damage_notices(reading.repaired - found.damaged, found.damaged),
    ]
    notices = all_notices(library, used, prepared, fresh, notices)
    several = several_collections(library, shown)
    notices += found.omissions
    commits = None
    if with_history:
        from marklight.library.history import search_beside_documents

        try:
            commits = search_beside_documents(library, prepared, refreshing)
        except (HistoryError, NotFound) as error:  # the documents are shown all the same
            notices.append(str(error))
    return Answer(
        *ranking,
        index=replace(reading.index, unread=fresh.unread),
        notices=notices,
        modified=found.modified,
        dates=found.dates,
        levels=found.levels,
        took_ms=prepared.took_ms,
        explain=explain,
        several_collections=several,
        commits=commits,
    )


@repeat_if_lost
def list_documents(
    library: Library,
    query: str | None,
    *,
    sort: str | None,
    limit: int | None,
    page: int,
    lines: bool,
    refresh: bool,
    settings: Mapping[str, Any] | None,
    assignments: Sequence[str],
    progress: Progress,
    check_cancelled: Callable[[], None],
    **options: Any,
) -> Listing:
    """Return one page of the documents that match, and the number of all."""
    from marklight.results import Listing, Sort

    text = (query or "").strip()
    if not text:
        options["mode"] = Mode.KEYWORD  # needs no model
    checked = document_query(library, text or "all", rerank=False, **options)
    checked = checked if text else replace(checked, text="")
    used = library.settings_with(settings, assignments)
    wanted = Page(Sort(sort) if sort else None, page, limit, lines)
    pipeline = library.pipeline_of(used)
    prepared = prepare(library, checked, pipeline, check_cancelled, page=wanted)
    fresh = refresh_index(library, checked, progress) if refresh else RefreshResult()
    refreshing = progress if refresh and library.indexes_here else None
    listing, reading = read_current(library, prepared, refreshing)
    assert isinstance(listing, Listing)
    notices = [*reading.notices, *reading.elsewhere, *stale_notice(len(reading.changed))]
    return replace(
        listing,
        index=replace(reading.index, unread=fresh.unread),
        notices=all_notices(library, used, prepared, fresh, notices),
        took_ms=prepared.took_ms,
        several_collections=several_collections(library, listing.shown),
    )


class FoundPassages(NamedTuple):
    """A ranking, and what an answer shows about its passages and documents."""

    ranking: Ranking
    damaged: set[DocumentId]
    """Documents that were left out because they do not match their checksums."""
    modified: Mapping[DocumentId, int]
    dates: Mapping[DocumentId, float]
    levels: Mapping[str, tuple[Level, ...]]
    omissions: Sequence[str]
    """Notices about results that are left out."""

    @property
    def shown(self) -> set[DocumentId]:
        """Return the documents of the passages."""
        return {hit.chunk.document for hit in self.ranking.passages}


def find_passages(library: Library, search: OpenSearch) -> FoundPassages:
    """Run the pipeline, leave out passages that are damaged in the index, and compose the answer within its budget."""
    ranking, snapshot = search_deep_enough(search), search.tools.snapshot
    damaged = _damaged_documents(ranking, snapshot)
    if damaged:
        ranking = ranking.without(damaged, DAMAGED)
    query, documents = ranking.query, OpenDocuments(snapshot)
    several = several_collections(library, {hit.chunk.document for hit in ranking.passages})
    composed = compose(ranking.passages, query, several, documents)
    shown = {hit.chunk.document for hit in composed.shown}
    return FoundPassages(
        ranking.with_passages(composed.shown),
        damaged,
        snapshot.documents.modified_times(shown),
        snapshot.documents.dates(shown),
        levels((hit.chunk for hit in composed.shown), documents),
        omission_notices(composed, query.max_tokens, several),
    )


@dataclass(slots=True)
class Reading:
    """State of the index and of the files that a result was read from."""

    index: Counts
    notices: list[str]
    denied: bool
    """True if the files of some documents cannot be read."""
    changed: list[DocumentId]
    """Shown documents whose files changed since they were indexed."""
    elsewhere: Sequence[str]
    """Notices about files on other machines."""
    repaired: set[DocumentId]
    """Documents that were damaged in the index and indexed again."""


def read_current(
    library: Library, prepared: PreparedSearch, progress: Progress | None
) -> tuple[FoundPassages | Listing, Reading]:
    """Execute a query on one snapshot, and again after stale and damaged documents were indexed again.

    A scan with a time limit may not have reached their files. Without a progress nothing is indexed.
    """
    repaired: set[DocumentId] = set()
    for attempts_left in reversed(range(MAX_ATTEMPTS + 1 if progress else 1)):
        existing = ExistenceCheck(library.files)
        with library.searches, library.engine.snapshot() as snapshot:
            search = open_search(library, prepared, snapshot, existing)
            found: FoundPassages | Listing
            if prepared.page is None:
                found = find_passages(library, search)
            else:
                from marklight.search.listing import list_matching

                found = list_matching(prepared.pipeline, search.query, search.tools, *prepared.page)
            notices = [*search.notices(), *existing.notices(), *incomplete_notices(snapshot)]
            files = snapshot.documents.files_of(found.shown)
        changed = library.files.changed(files) if library.indexes_here else []
        damaged: set[DocumentId] = found.damaged if isinstance(found, FoundPassages) else set()
        stale = [*damaged, *changed]
        if not (attempts_left and progress and index_again(library, stale, progress)):
            break
        repaired |= damaged
    elsewhere = library.shared.elsewhere_notices(files) if library.shared else ()
    return found, Reading(
        search.counts, notices, bool(existing.denied), changed, elsewhere, repaired
    )


class OpenSearch(NamedTuple):
    """A query with everything that its stages need on one snapshot of an index."""

    pipeline: Pipeline
    query: Query
    tools: Tools
    counts: Counts
    given: list[str]

    def notices(self) -> list[str]:
        """Return the notices given so far, each once: a deeper search repeats those of the first one."""
        return list(dict.fromkeys(self.given))


def open_search(
    library: Library,
    prepared: PreparedSearch,
    snapshot: Snapshot,
    exists: Callable[[DocumentId], bool] = lambda _: True,
) -> OpenSearch:
    """Choose the languages of a query and the models that know them and have vectors in a snapshot."""
    counts = snapshot.status.counts(library.models.fingerprint()[0])
    of_documents = documents_by_language(snapshot.metadata.languages(), counts.documents)
    languages = query_languages(prepared.query.text, of_documents)
    query = prepared.query
    if languages != query.languages:
        query = replace(query, languages=languages)
    later = library.watcher or library.embeds_later
    rest = IN_BACKGROUND if later else RUN_INDEX
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
        explain=prepared.explain,
    )
    return OpenSearch(prepared.pipeline, query, tools, counts, notices)


def search_deep_enough(search: OpenSearch) -> Ranking:
    """Search with more candidates while duplicates and deleted files leave too few results."""
    pipeline, query, tools, *_ = search
    ranking, depth = pipeline(query, tools), 1
    while _is_crowded(ranking) and depth < MAX_DEPTH:
        depth *= DEPTH_STEP
        deeper = pipeline(query, tools, depth)
        if deeper.stats["original_count"] == ranking.stats["original_count"]:
            break  # there are no other candidates
        ranking = deeper
    return ranking


def _is_crowded(ranking: Ranking) -> bool:
    """Return true if most candidates were duplicates or deleted files, and fewer results are left than the limit.

    If the confidence threshold removed some, candidates further down would be below it too.
    """
    left = {step.stage: step.count for step in ranking.steps}
    fused = left["fuse"]
    existing = left.get("existing_files", fused)
    if len(ranking.hits) >= ranking.query.limit or fused < FEW_CANDIDATES:
        return False
    if left.get("confidence", existing) < existing:
        return False
    return 2 * ranking.stats["after_same_meaning"] < fused


def _damaged_documents(ranking: Ranking, snapshot: Snapshot) -> set[DocumentId]:
    """Return the documents of hits that do not match their checksums: of the passages, or of all that is shown around them."""
    query = ranking.query
    if query.parents or query.context or query.expand_context:
        return snapshot.status.damaged_documents({hit.chunk.document for hit in ranking.passages})
    return snapshot.status.damaged_chunks([hit.chunk.id for hit in ranking.passages])


def several_collections(library: Library, shown: Iterable[DocumentId]) -> bool:
    """Return true if paths need their collection as a prefix to be unambiguous."""
    return len({*library.collections, *(id.collection for id in shown)}) > 1


def all_notices(
    library: Library,
    settings: Settings,
    prepared: PreparedSearch,
    fresh: RefreshResult,
    own: Sequence[str],
) -> list[str]:
    """Return the notices of a result between those about settings, the refresh, models and the engine."""
    notices = (
        *library.notices(settings),
        *_not_repeated(fresh.notices, own),
        *own,
        *outdated_notices(library, IN_BACKGROUND if library.watcher else RUN_INDEX),
        *prepared.first_use_notices(library),
        *library.engine.take_notices(),
    )
    return [complete_commands(notice, library.place.folder) for notice in notices]


def _empty_notices(library: Library, index: Counts, progress: Progress | None) -> list[str]:
    """Return the notice that a library has no documents, or that it is not indexed yet."""
    watcher = library.watcher
    # While a library is indexed for the first time, the notice about its progress, or its problem, is enough.
    if index.documents or (watcher and (watcher.is_reading or watcher.problem)):
        return []
    folder = library.place.folder
    # Without a refresh the documents may be on the disk all the same.
    if progress:
        return [f"There are no documents in {folder}"]
    statement = f"{folder} is not indexed yet"
    return [Message(f"{statement}: run `marklight index`", statement)]


def _damage_notices(repaired: set[DocumentId], left_out: set[DocumentId]) -> list[str]:
    """Return notices about documents that were damaged in the index: those that were read again, and those left out."""
    notices = []
    if repaired:
        names = ", ".join(sorted(id.path for id in repaired))
        notices.append(f"Damaged in the index and read again from the disk: {names}")
    if left_out:
        names = ", ".join(sorted(id.path for id in left_out))
        statement = f"Damaged in the index and left out: {names}"
        notices.append(Message(f"{statement}; `marklight doctor` repairs it", statement))
    return notices


def _not_repeated(notices: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the notices whose reason is not among the others: one failure is reported once."""
    reasons = {_reason(notice) for notice in others}
    return [notice for notice in notices if _reason(notice) not in reasons]


def _reason(notice: str) -> str:
    return notice.partition(": ")[2] or notice


QUERY_TYPES = ("hybrid", "keyword", "semantic", "hypothesis")


def fused_search(
    library: Library,
    query: str,
    queries: Sequence[str | Mapping[str, Any]],
    *,
    limit: int | None,
    max_tokens: int | None,
    **options: Any,
) -> Answer:
    """Return the best passages for a query and further phrasings of it; facts of the answer are those of the query.

    A passage has the score of the phrasing that it answers best (CombMAX): scores are probabilities, so they can be compared.
    """
    phrasings = [_read(phrasing) for phrasing in queries]
    most = result_limit(limit, max_tokens)
    # All answers together keep to the token budget.
    options |= {"limit": most, "max_tokens": None}
    answers = [search_once(library, query, **options)]
    for kind, text in phrasings:
        changed = {**options, "refresh": False, "with_history": False}
        if kind == "hypothesis":
            answers.append(search_once(library, query, **{**changed, "hypothesis": text}))
        else:
            answers.append(search_once(library, text, **{**changed, "mode": kind}))
    settings = library.settings_with(options["settings"], options["assignments"])
    per_document: int = settings["search.per_document.max_passages"]
    first = answers[0]
    hits = _best([answer.hits for answer in answers], most, per_document)
    nearest = () if hits else _best([answer.nearest for answer in answers], most, per_document)
    budgeted = replace(
        first.query,
        limit=most,
        max_tokens=max_tokens,
        fills_budget=limit is None and max_tokens is not None,
    )
    several = first.several_collections
    with library.searches, library.engine.snapshot() as snapshot:
        composed = compose(hits or nearest, budgeted, several, OpenDocuments(snapshot))
    notices = dict.fromkeys(note for answer in answers for note in answer.notices)
    return replace(
        first,
        query=budgeted,
        hits=composed.shown if hits else (),
        nearest=() if hits else composed.shown,
        abstained=None if hits else first.abstained,
        stats={**first.stats, "after_same_meaning": len(hits), "after_doc_limit": len(hits)},
        modified=_merged(answer.modified for answer in answers),
        levels=_merged(answer.levels for answer in answers),
        dates=_merged(answer.dates for answer in answers),
        notices=(*notices, *omission_notices(composed, max_tokens, several)),
        took_ms=sum(answer.took_ms for answer in answers),
    )


def _read(phrasing: str | Mapping[str, Any]) -> tuple[str, str]:
    """Return the type and the text of a phrasing; a string is a query of type hybrid."""
    if isinstance(phrasing, str):
        return QUERY_TYPES[0], phrasing
    kind = phrasing.get("type", QUERY_TYPES[0])
    text = phrasing.get("query", phrasing.get("text"))
    if kind not in QUERY_TYPES:
        allowed = f"Allowed: {', '.join(QUERY_TYPES)}"
        raise UsageError(f"A query cannot have the type {str(kind)[:100]!r}", allowed)
    if not isinstance(text, str) or not text.strip():
        raise UsageError("Every one of 'queries' needs a query", "Give its text as query")
    return kind, text


def _best(lists: Sequence[Hits], limit: int, per_document: int) -> Hits:
    """Return the best results of several lists, each passage once, at most so many of a document."""
    best: dict[str, Hit] = {}
    counts = Counter(hit.chunk.id for hits in lists for hit in hits)
    for hit in (hit for hits in lists for hit in hits):
        before = best.get(hit.chunk.id)
        if before is None or hit.score > before.score:
            best[hit.chunk.id] = hit
    merged = {similar.chunk_id for hit in best.values() for similar in hit.similar}
    ordered = sorted(best.values(), key=lambda hit: (-hit.score, -counts[hit.chunk.id]))
    documents: Counter[Any] = Counter()
    chosen: list[Hit] = []
    for hit in ordered:
        if documents[hit.chunk.document] < per_document and hit.chunk.id not in merged:
            documents[hit.chunk.document] += 1
            chosen.append(hit)
    return tuple(chosen[:limit])


def _merged(parts: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}
