"""History index: git commits as documents in an index of their own, searched by the same pipeline and models."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.errors import Busy, HistoryError, Message, NotFound, RepositoryOutside, StoreError
from marklight.ingest.git import Repository, find, may_be_in_repository
from marklight.ingest.history import CommitIngest, RepositoryState
from marklight.library.configuration import History
from marklight.library.refresh import (
    SHORT_WAIT_SECONDS,
    embed_for_query,
    embed_for_seconds,
    repeat_if_lost,
)
from marklight.library.search import PreparedSearch, open_search, prepare, search_deep_enough
from marklight.library.validation import commit_query
from marklight.model import Document, DocumentId
from marklight.ports import WRITER_SECONDS, Embedder, Progress, Rewrite, Snapshot, Tools
from marklight.query import DEFAULT_LIMIT, Filters, Query
from marklight.report import Report
from marklight.results import SHORT_HASH, Commit, Commits
from marklight.search.compose import compose
from marklight.search.duplicates import PerDocument
from marklight.search.pipeline import Pipeline

if TYPE_CHECKING:
    from marklight.library import Library

SKIPPED_STAGES = ("existing_files", "exact_duplicates", "near_duplicates", "semantic_duplicates")
"""Stages that do not apply to commits: they have no file, and two commits with the same text are two results."""
_SHORT_HASH = re.compile(r"[0-9a-f]{4,64}")


def repositories(
    collections: Mapping[str, Path],
) -> tuple[dict[str, Repository], dict[str, HistoryError]]:
    """Return the repositories of the collections, each under the name of its first one, and those that git refuses."""
    readable: dict[str, Repository] = {}
    refused: dict[str, HistoryError] = {}
    for name, folder in collections.items():
        try:
            repository = find(folder)
        except HistoryError as error:
            refused[name] = error
            continue
        if repository and repository.store not in {other.store for other in readable.values()}:
            readable[name] = repository
    return readable, refused


def has_repository(library: Library) -> bool:
    """Return true if there may be a repository around a collection; cheap enough for every request."""
    return any(map(may_be_in_repository, library.collections.values()))


def _of_commits(progress: Progress) -> Progress:
    """Return a progress whose phases differ from those of documents."""

    def report(phase: str, done: int, total: int) -> None:
        progress(f"{phase} of commits", done, total)

    return report


def _commit(document: Document, refs: Iterable[str]) -> Commit:
    name, email, *_ = document.metadata["author"]
    return Commit(
        repository=document.id.collection,
        hash=document.id.path,
        subject=document.title,
        name=name,
        email=email,
        date=document.date or "",
        files=tuple(document.metadata["files"]),
        refs=tuple(refs),
    )


def commit_ingest(library: Library, embedder: Embedder | None) -> tuple[CommitIngest, list[str]]:
    """Return the indexing of a library's commits, and errors of repositories; `NotFound` if there is no repository."""
    readable, refused = library.repositories, dict[str, HistoryError]()
    if not readable:
        readable, refused = repositories(library.collections)
        # A repository that git refuses now may be allowed later.
        library.repositories = {} if refused else readable
    if refused and not readable:
        raise next(iter(refused.values()))
    if not readable:
        folders = ", ".join(map(str, library.collections.values()))
        raise NotFound(
            f"There is no git repository around {folders}", "Only folders in git have a history"
        )
    limits = library.settings.build(History, "history")
    # Commits of a repository that cannot be read now stay in the index; those of one that is not the library's do not.
    unreadable = frozenset(
        name for name, error in refused.items() if not isinstance(error, RepositoryOutside)
    )
    ingest = CommitIngest(
        library.commits_engine,
        embedder,
        readable,
        limits.diff_lines,
        unreadable,
        stored=library.stored_vectors,
    )
    return ingest, [str(error) for error in refused.values()]


def refresh_commits(
    library: Library, ingest: CommitIngest, query: Query, progress: Progress
) -> list[str]:
    """Index new commits and embed passages for a time; return notices about what failed."""
    limits, read_seconds = library.limits, library.settings.build(History, "history").read_seconds
    embed_seconds = limits.first_search_seconds
    if library.watcher:  # it goes on in the background
        read_seconds = embed_seconds = max(1.0, library.settings["mcp.wait_seconds"] / 2)
    notices: list[str] = []
    try:
        empty = not ingest.counts().documents
        if ingest.differs():
            wait_seconds = min(WRITER_SECONDS, read_seconds) if empty else SHORT_WAIT_SECONDS
            with ingest.engine.writing(wait_seconds):
                report = ingest.index_text(progress, time.monotonic() + read_seconds)
            notices += report.notices
            notices += (
                f"Commit {failure.document.path[:SHORT_HASH]} cannot be read: {failure.reason}"
                for failure in report.skipped
            )
    except Busy:
        return ["The history is being indexed; results come from the index as it is"]
    except (StoreError, HistoryError) as error:
        if not ingest.counts().documents:
            raise
        return [f"The history index could not be updated: {error}"]
    seconds = embed_seconds if empty else min(embed_seconds, limits.search_seconds)
    notice = embed_for_query(
        ingest, library.embedding_commits, query, _of_commits(progress), seconds
    )
    return [*notices, *filter(None, [notice])]


def repository_notices(ingest: CommitIngest) -> list[str]:
    """Return notices about shallow, damaged and empty repositories."""
    notices: list[str] = []
    with ingest.engine.snapshot() as snapshot:
        manifest = snapshot.status.manifest()
        count = snapshot.status.counts("").documents
    for name, repository in ingest.repositories.items():
        folder, state = repository.folder, RepositoryState.stored(manifest, name)
        if repository.shallow_edge():
            statement = f"{folder} is a shallow clone without older commits"
            notices.append(Message(f"{statement}; `git fetch --unshallow` gets them", statement))
        if state.problem:
            notices.append(f"{folder} is damaged, so some commits cannot be read: {state.problem}")
        if state.diff_problem:
            notices.append(
                f"Diffs in {folder} cannot be read, so only messages are searched: {state.diff_problem}"
            )
        if not count:
            notices.append(f"There are no commits in {folder} yet")
    return notices


def _commits(
    ingest: CommitIngest, snapshot: Snapshot, ids: Iterable[DocumentId]
) -> dict[DocumentId, Commit]:
    """Return the commits with these ids, with the branches and tags that point to them."""
    documents = [document for id in ids if (document := snapshot.documents.get(id))]
    refs: dict[str, list[str]] = {}
    for name, repository in ingest.repositories.items():
        hashes = [document.id.path for document in documents if document.id.collection == name]
        with suppress(HistoryError):
            refs |= repository.refs_at(hashes)
    return {
        document.id: _commit(document, refs.get(document.id.path, [])) for document in documents
    }


def _with_full_hash(prepared: PreparedSearch, ingest: CommitIngest) -> PreparedSearch:
    """Replace the text of a query that is an abbreviated hash by the full one."""
    query, text = prepared.query, prepared.query.text.strip()
    if _SHORT_HASH.fullmatch(text):
        hashes = (repository.full_hash(text) for repository in ingest.repositories.values())
        full = next(filter(None, hashes), "")
        if full and full != query.text:
            return replace(prepared, query=replace(query, text=full, raw_text=query.text))
    return prepared


@repeat_if_lost
def search_commits(
    library: Library,
    query: str,
    *,
    explain: bool,
    refresh: bool,
    settings: Mapping[str, Any] | None,
    assignments: Sequence[str],
    progress: Progress,
    check_cancelled: Callable[[], None],
    **options: Any,
) -> Commits:
    """Return the best commits for a query; new commits are indexed first."""
    used = library.settings_with(settings, assignments)
    pipeline = _commit_pipeline(library.pipeline_of(used))
    checked = commit_query(query, **options)
    prepared = prepare(library, checked, pipeline, check_cancelled, explain=explain)
    answer = _search(library, prepared, progress if refresh else None)
    return replace(answer, notices=(*used.notices, *answer.notices))


def search_beside_documents(
    library: Library, documents: PreparedSearch, progress: Progress | None
) -> Commits:
    """Return the best commits for the query of a search of documents."""
    query, filters = documents.query, documents.query.filters
    plain = Query(
        text=query.text,
        limit=DEFAULT_LIMIT if query.fills_budget else query.limit,
        mode=query.mode,
        min_confidence=query.min_confidence,
        max_tokens=query.max_tokens,
        rerank=query.rerank,
        filters=Filters(after=filters.after, before=filters.before),
    )
    pipeline = _commit_pipeline(documents.pipeline)
    prepared = prepare(
        library, plain, pipeline, documents.check_cancelled, explain=documents.explain
    )
    return _search(library, prepared, progress)


def _search(library: Library, prepared: PreparedSearch, progress: Progress | None) -> Commits:
    """Return commits by the passages of their messages and diffs; without a progress, as indexed."""
    ingest, notices = commit_ingest(library, prepared.embedder)
    query = prepared.query
    prepared = _with_full_hash(prepared, ingest)
    if progress:
        notices += refresh_commits(library, ingest, prepared.query, progress)
        if watcher := library.watcher:
            watcher.wake()  # it reads and embeds what there was no time for
    notices += repository_notices(ingest)
    with library.searches, library.commits_engine.snapshot() as snapshot:
        search = open_search(library, prepared, snapshot)
        ranking = search_deep_enough(search)
        commits = _commits(ingest, snapshot, [hit.chunk.document for hit in ranking.passages])
        modified = snapshot.documents.modified_times(commits)
    notices += [
        *search.notices(),
        *prepared.first_use_notices(library),
        *library.commits_engine.take_notices(),
    ]
    composed = compose(ranking.passages, query, several_collections=False)
    if composed.shown != ranking.passages:
        notices.append(
            f"The answer is cut to {query.max_tokens} tokens; `git show` shows a commit in full"
        )
    # The pipeline words it for passages of documents.
    abstained = ranking.abstained and ranking.abstained.replace("No passage", "No commit")
    ranking = ranking.with_passages(composed.shown)._replace(abstained=abstained)
    return Commits(
        *ranking,
        index=search.counts,
        notices=tuple(notices),
        modified=modified,
        took_ms=prepared.took_ms,
        explain=prepared.explain,
        several_collections=len(ingest.repositories) > 1,
        known=commits,
    )


def _commit_pipeline(pipeline: Pipeline) -> Pipeline:
    """Return the stages of a pipeline that apply to commits, with one result per commit."""
    refine = {name: stage for name, stage in pipeline.refine.items() if name not in SKIPPED_STAGES}
    if "per_document" in refine:
        refine["per_document"] = PerDocument(max_passages=1)
    rewrite = dict(pipeline.rewrite)
    if "operators" in rewrite:
        rewrite["operators"] = _path_as_files(rewrite["operators"])
    return replace(pipeline, rewrite=rewrite, refine=refine)


def _path_as_files(operators: Rewrite) -> Rewrite:
    """Return a stage in which `path:` in a query filters by the files that a commit changed."""

    def rewrite(query: Query, tools: Tools) -> Query:
        query = operators(query, tools)
        filters = query.filters
        if not filters.paths:
            return query
        files = tuple(map(str, filters.paths))
        if filters.files:
            also = Filters(files=files)
            return replace(query, filters=replace(filters, paths=(), also=also))
        return replace(query, filters=replace(filters, paths=(), files=files))

    return rewrite


def index_history(
    library: Library, wanted: bool | None, progress: Progress, *, rebuild: bool
) -> Report | None:
    """Index the whole history if that is wanted, or if it is None and the history was indexed before."""
    if wanted is None:
        with library.commits_engine.snapshot() as snapshot:
            wanted = snapshot.generation > 0
    if not wanted:
        return None
    try:
        ingest, errors = commit_ingest(library, library.models.embedder)
        report = _index_commits(library, ingest, progress, rebuild=rebuild)
    except (HistoryError, NotFound) as error:
        return Report(notices=(str(error),))
    return replace(report, notices=(*errors, *report.notices))


def _index_commits(
    library: Library, ingest: CommitIngest, progress: Progress, *, rebuild: bool
) -> Report:
    """Index everything without a time limit: messages and diffs first, then vectors."""
    started = time.perf_counter()
    with ingest.engine.writing(WRITER_SECONDS):
        report = ingest.index_text(progress, rebuild=rebuild)
    with library.embedding_commits:
        embedded = ingest.embed_missing(_of_commits(progress))
        ingest.drop_unused_vectors()
    return replace(
        report,
        index=ingest.counts(),
        newly_embedded=embedded.passages,
        notices=tuple(repository_notices(ingest)),
        took_ms=(time.perf_counter() - started) * 1000,
    )


def continue_history(library: Library, progress: Progress, seconds: float) -> bool:
    """Read, then embed commits for a time if a history is indexed; return true if there is more to do."""
    with library.commits_engine.snapshot() as snapshot:
        if not snapshot.generation:
            return False
    ingest = CommitIngest(library.commits_engine, library.models.embedder, {}, 0)
    lock, report = library.embedding_commits, _of_commits(progress)
    with suppress(HistoryError, NotFound, Busy):  # the next search reports it
        ingest, _ = commit_ingest(library, ingest.embedder)
        if ingest.differs():
            with ingest.engine.writing(SHORT_WAIT_SECONDS):
                read = ingest.index_text(progress, time.monotonic() + seconds)
            if read.added:
                return True
    return embed_for_seconds(ingest, lock, report, seconds)
