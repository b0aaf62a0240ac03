"""History index: git commits as documents in an index of their own, searched by the same pipeline and models."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from marklight import engines
from marklight.batch import Failure
from marklight.commits import SHORT_HASH, Commit, Commits
from marklight.engines import EngineAddress, ServerSettings
from marklight.errors import (
    Busy,
    HistoryError,
    ModelServerError,
    NotFound,
    RepositoryOutside,
    StoreError,
)
from marklight.ingest.embedding import passages_matching
from marklight.ingest.git import Repository, find
from marklight.ingest.history import CommitIngest, RepositoryState
from marklight.library.concurrency import repeat_if_lost
from marklight.library.refresh import SHORT_WAIT_SECONDS
from marklight.library.search import PreparedSearch, prepare, run
from marklight.library.settings_tables import History, Index
from marklight.library.validation import CommitRequest
from marklight.model import Document, DocumentId
from marklight.ports import Embedder, Engine, Progress, Rewrite, Snapshot, Tools
from marklight.query import Filters, Query
from marklight.report import Report
from marklight.search.context import within_budget
from marklight.search.per_document import PerDocument
from marklight.search.pipeline import Pipeline

if TYPE_CHECKING:
    from marklight.library import Library

FOLDER = "history"
"""Folder of the history index, inside that of the library's index."""
SKIPPED_STAGES = ("existing_files", "exact_duplicates", "near_duplicates", "semantic_duplicates")
"""Stages that do not apply to commits: they have no file, and two commits with the same text are two results."""
_SHORT_HASH = re.compile(r"[0-9a-f]{4,64}")


def open_engine(
    address: EngineAddress,
    settings: ServerSettings | None = None,
    documents: Path | None = None,
) -> Engine:
    """Open the engine of commits beside that of documents."""
    if address.folder is not None:
        address = address._replace(folder=address.folder / FOLDER)
    else:
        address = address.beside(FOLDER)
    return engines.open(address, settings, documents)


def repositories(
    collections: Mapping[str, Path],
) -> tuple[dict[str, Repository], dict[str, HistoryError]]:
    """Return the repositories of the collections, each under the name of its first one, and those that git refuses."""
    found: dict[str, Repository] = {}
    refused: dict[str, HistoryError] = {}
    for name, folder in collections.items():
        try:
            repository = find(folder)
        except HistoryError as error:
            refused[name] = error
            continue
        if repository and repository.store not in {other.store for other in found.values()}:
            found[name] = repository
    return found, refused


@dataclass(frozen=True, slots=True)
class HistoryIndex:
    """The index of the commits of a library: indexing, refresh and lookups."""

    history: CommitIngest
    limits: Index
    read_seconds: float
    embedding: Lock
    """Held by the thread that embeds commits."""

    def run(self, progress: Progress, *, rebuild: bool = False) -> Report:
        """Index everything without a time limit: messages and diffs first, then vectors."""
        started = time.perf_counter()
        with self.history.engine.writing(self.limits.wait_seconds):
            report = self.history.index_text(progress, rebuild=rebuild)
        with self.embedding:
            embedded = self.history.embed_missing(
                _of_commits(progress), wait_seconds=self.limits.wait_seconds
            )
            self.history.drop_unused_vectors()
        after = self.history.counts()
        return replace(
            report,
            index=after,
            newly_embedded=embedded.passages,
            notices=self.notices(),
            took_ms=(time.perf_counter() - started) * 1000,
        )

    def refresh(self, query: Query, progress: Progress) -> list[str]:
        """Index new commits and embed passages for a time; return notices about what failed."""
        history, limits = self.history, self.limits
        notices: list[str] = []
        try:
            empty = not history.counts().documents
            if history.differs():
                with history.engine.writing(limits.wait_seconds if empty else SHORT_WAIT_SECONDS):
                    report = history.index_text(progress, time.monotonic() + self.read_seconds)
                notices += [*report.notices, *map(_unread_notice, report.skipped)]
            if history.has_pending() and self.embedding.acquire(blocking=False):
                seconds = limits.first_search_seconds if empty else limits.search_seconds
                try:
                    self._embed(query, progress, seconds)
                finally:
                    self.embedding.release()
            return notices
        except ModelServerError as error:
            return [*notices, f"New commits could not be embedded: {error}"]
        except Busy:
            return ["Another process is indexing the history; results come from the index as it is"]
        except (StoreError, HistoryError) as error:
            if not history.counts().documents:
                raise
            return [f"The history index could not be updated: {error}"]

    def _embed(self, query: Query, progress: Progress, seconds: float) -> None:
        history, until = self.history, time.monotonic() + seconds
        first = partial(passages_matching, history.engine, query)
        limited = history.with_time_limit(seconds)
        limited.embed_missing(_of_commits(progress), until, first, self.limits.wait_seconds)
        history.drop_unused_vectors()

    def embed_for_seconds(self, progress: Progress, seconds: float) -> bool:
        """Embed commits for a time; return true if there is more to do. A search that embeds goes first."""
        history = self.history
        if not history.has_pending():
            return False
        if not self.embedding.acquire(timeout=SHORT_WAIT_SECONDS):
            return True
        try:
            before = history.counts().embedded
            until = time.monotonic() + seconds
            history.embed_missing(_of_commits(progress), until, wait_seconds=SHORT_WAIT_SECONDS)
            if history.has_pending():
                return history.counts().embedded != before  # else the rest cannot be embedded
            history.drop_unused_vectors()
            return False
        finally:
            self.embedding.release()

    def notices(self) -> tuple[str, ...]:
        """Return notices about the repositories: shallow, damaged or empty ones."""
        notices = []
        with self.history.engine.snapshot() as snapshot:
            manifest = snapshot.status.manifest()
            count = snapshot.status.counts("").documents
        for name, repository in self.history.repositories.items():
            folder, state = repository.folder, RepositoryState.stored(manifest, name)
            if repository.shallow_edge():
                notices.append(
                    f"{folder} is a shallow clone without older commits;"
                    " `git fetch --unshallow` gets them"
                )
            if state.problem:
                notices.append(
                    f"{folder} is damaged, so some commits cannot be read: {state.problem}"
                )
            if state.diff_problem:
                notices.append(
                    f"Diffs in {folder} cannot be read, so only messages are searched: {state.diff_problem}"
                )
            if not count:
                notices.append(f"There are no commits in {folder} yet")
        return tuple(notices)

    def commits(self, snapshot: Snapshot, ids: Iterable[DocumentId]) -> dict[DocumentId, Commit]:
        """Return the commits with these ids, with the branches and tags that point to them."""
        documents = [document for id in ids if (document := snapshot.documents.get(id))]
        refs: dict[str, list[str]] = {}
        for name, repository in self.history.repositories.items():
            hashes = [document.id.path for document in documents if document.id.collection == name]
            with suppress(HistoryError):
                refs |= repository.refs_at(hashes)
        return {
            document.id: _commit(document, refs.get(document.id.path, [])) for document in documents
        }

    def expand_hash(self, text: str) -> str:
        """Return the full hash if a query is an abbreviated one; else the query."""
        if not _SHORT_HASH.fullmatch(text.strip()):
            return text
        for repository in self.history.repositories.values():
            if full := repository.full_hash(text.strip()):
                return full
        return text


def _of_commits(progress: Progress) -> Progress:
    """Return a progress whose phases differ from those of documents."""

    def report(phase: str, done: int, total: int) -> None:
        progress(f"{phase} of commits", done, total)

    return report


def _unread_notice(failure: Failure) -> str:
    return f"Commit {failure.document.path[:SHORT_HASH]} cannot be read: {failure.reason}"


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


def history_index(library: Library, embedder: Embedder | None) -> tuple[HistoryIndex, list[str]]:
    """Return the history index of a library, and errors of repositories; `NotFound` if there is no repository."""
    found, refused = library.repositories, dict[str, HistoryError]()
    if not found:
        found, refused = repositories(library.collections)
        # A repository that git refuses now may be allowed later.
        library.repositories = {} if refused else found
    if refused and not found:
        raise next(iter(refused.values()))
    if not found:
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
        found,
        limits.diff_lines,
        unreadable,
        stored=library.stored_vectors,
    )
    index = HistoryIndex(ingest, library.limits, limits.read_seconds, library.embedding_commits)
    return index, [str(error) for error in refused.values()]


@repeat_if_lost
def search_commits(
    library: Library,
    request: CommitRequest,
    progress: Progress,
    check_cancelled: Callable[[], None],
) -> Commits:
    """Return the best commits for a request; new commits are indexed first."""
    settings = library.settings_with(request.settings, request.assignments)
    pipeline = _commit_pipeline(library.pipeline_of(settings))
    prepared = prepare(library, request.to_query(), pipeline, check_cancelled)
    refreshing = progress if request.refresh else None
    answer = _search(library, prepared, refreshing, explain=request.explain)
    return replace(answer, notices=(*settings.notices, *answer.notices))


def search_beside_documents(
    library: Library, documents: PreparedSearch, progress: Progress | None, *, explain: bool
) -> Commits:
    """Return the best commits for the query of a search of documents."""
    query, filters = documents.query, documents.query.filters
    plain = Query(
        text=query.text,
        limit=query.limit,
        mode=query.mode,
        min_confidence=query.min_confidence,
        max_tokens=query.max_tokens,
        rerank=query.rerank,
        filters=Filters(after=filters.after, before=filters.before),
    )
    pipeline = _commit_pipeline(documents.pipeline)
    prepared = prepare(library, plain, pipeline, documents.check_cancelled)
    return _search(library, prepared, progress, explain=explain)


def _search(
    library: Library, prepared: PreparedSearch, progress: Progress | None, *, explain: bool
) -> Commits:
    """Return commits by the passages of their messages and diffs; without a progress, as indexed."""
    index, notices = history_index(library, prepared.embedder)
    query = prepared.query
    if (full := index.expand_hash(query.text)) != query.text:
        prepared = replace(prepared, query=replace(query, text=full, raw_text=query.text))
    if progress:
        notices += index.refresh(prepared.query, progress)
        if watcher := library.watcher:
            watcher.wake()  # it embeds what there was no time for
    notices += index.notices()
    with library.threads.search_slot(), library.commits_engine.snapshot() as snapshot:
        answer = run(library, prepared, snapshot, prepared.search)
        known = index.commits(snapshot, [hit.chunk.document for hit in answer.passages])
        modified = snapshot.documents.modified_times(known)
    notices += [
        *answer.notices,
        *prepared.first_use_notices(library),
        *library.commits_engine.take_notices(),
    ]
    answer = within_budget(replace(answer, modified=modified, notices=()))
    if answer.notices:
        notices.append(
            f"The answer is cut to {query.max_tokens} tokens; `git show` shows a commit in full"
        )
    answer = replace(
        answer,
        notices=tuple(notices),
        explain=explain,
        several_collections=len(index.history.repositories) > 1,
        took_ms=prepared.took_ms,
        # The pipeline words it for passages of documents.
        abstained=answer.abstained and answer.abstained.replace("No passage", "No commit"),
    )
    return Commits(
        **{field.name: getattr(answer, field.name) for field in fields(answer)}, known=known
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
        index, errors = history_index(library, library.models.embedder)
        report = index.run(progress, rebuild=rebuild)
    except (HistoryError, NotFound) as error:
        return Report(notices=(str(error),))
    return replace(report, notices=(*errors, *report.notices))


def embed_commits_for_seconds(library: Library, progress: Progress, seconds: float) -> bool:
    """Embed commits for a time if a history is indexed; return true if there is more to do."""
    with library.commits_engine.snapshot() as snapshot:
        if not snapshot.generation:
            return False
    limits = library.settings.build(History, "history")
    # Nothing is read, so the repositories are not needed.
    ingest = CommitIngest(library.commits_engine, library.models.embedder, {}, limits.diff_lines)
    index = HistoryIndex(ingest, library.limits, limits.read_seconds, library.embedding_commits)
    return index.embed_for_seconds(progress, seconds)
