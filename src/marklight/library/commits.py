"""A question to the history: refreshed, asked and told as a search of documents is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from marklight.answer import Filters, Query
from marklight.commits import Commits
from marklight.errors import HistoryError, NotFound, RepositoryOutside
from marklight.ingest.history.pipeline import CommitIngest
from marklight.library.compose import History as Limits
from marklight.library.history import Annals, repositories
from marklight.library.search import PreparedSearch, prepare, run
from marklight.library.validation import CommitRequest
from marklight.ports import Embedder, Progress, Rewrite, Tools
from marklight.report import Report
from marklight.search import context
from marklight.search.pipeline import Pipeline
from marklight.search.refine.per_document import PerDocument

if TYPE_CHECKING:
    from marklight.library import Library

LEFT_OUT = ("existing_files", "exact_duplicates", "near_duplicates", "semantic_duplicates")
"""Stages that do not look at commits: they have no file, and two that say the same are two all the same."""


def annals(library: Library, embedder: Embedder | None) -> tuple[Annals, list[str]]:
    """The history of a library, and what hinders; NotFound where no collection is in a repository."""
    found, refused = library.repositories, dict[str, HistoryError]()
    if not found:
        found, refused = repositories(library.collections)
        # Found once, they stay; one that is refused may be allowed meanwhile.
        library.repositories = {} if refused else found
    if refused and not found:
        raise next(iter(refused.values()))
    if not found:
        folders = ", ".join(map(str, library.collections.values()))
        raise NotFound(
            f"there is no git repository around {folders}", "Only what is kept in git has a history"
        )
    limits = library.settings.build(Limits, "history")
    # Commits of a repository that cannot be read now stay in the index; those of one that is not the library's do not.
    kept_unread = frozenset(
        name for name, error in refused.items() if not isinstance(error, RepositoryOutside)
    )
    history = CommitIngest(library.commits_engine, embedder, found, limits.diff_lines, kept_unread)
    kept = Annals(history, library.limits, limits.read_seconds, library.embedding_commits)
    return kept, [str(error) for error in refused.values()]


def search_commits(
    library: Library,
    request: CommitRequest,
    progress: Progress,
    check_cancelled: Callable[[], None],
) -> Commits:
    """Return the best commits for a request; new commits are indexed first."""
    settings = library.settings_with(request.settings, request.assignments)
    pipeline = of_commits(library.pipeline_of(settings))
    prepared = prepare(library, request.to_query(), pipeline, check_cancelled)
    refreshing = progress if request.refresh else None
    answer = _search(library, prepared, refreshing, explain=request.explain)
    return replace(answer, notices=(*settings.notices, *answer.notices))


def search_beside_documents(
    library: Library, documents: PreparedSearch, progress: Progress | None, *, explain: bool
) -> Commits:
    """Return the best commits for the query of a search of documents."""
    query, days = documents.query, documents.query.filters
    plain = Query(
        text=query.text,
        limit=query.limit,
        mode=query.mode,
        min_confidence=query.min_confidence,
        max_tokens=query.max_tokens,
        rerank=query.rerank,
        filters=Filters(after=days.after, before=days.before),
    )
    prepared = prepare(library, plain, of_commits(documents.pipeline), documents.check_cancelled)
    return _search(library, prepared, progress, explain=explain)


def _search(
    library: Library, prepared: PreparedSearch, progress: Progress | None, *, explain: bool
) -> Commits:
    """Found by the passages of messages and diffs, one result for each; without a progress, as indexed."""
    kept, notices = annals(library, prepared.embedder)
    query = prepared.query
    if (whole := kept.meant(query.text)) != query.text:
        prepared = replace(prepared, query=replace(query, text=whole, raw_text=query.text))
    if progress:
        notices += kept.refresh(prepared.query, progress)
        if following := library.following:
            following.wake()  # it makes the vectors that there was no time for
    notices += kept.notices()
    with library.threads.search_slot() as alone, library.commits_engine.snapshot() as snapshot:
        found = run(library, prepared, snapshot, alone=alone)
        known = kept.commits(snapshot, [hit.chunk.document for hit in found.hits])
        modified = snapshot.documents.modified_times(known)
    notices += [
        *found.notices,
        *prepared.first_use_notices(library),
        *library.commits_engine.take_notices(),
    ]
    found = context.within_budget(replace(found, modified=modified, notices=()))
    if found.notices:
        shorter = f"the answer is cut to stay within {query.max_tokens} tokens"
        notices.append(f"{shorter}; `git show` shows a commit whole")
    found = replace(
        found,
        notices=tuple(notices),
        explain=explain,
        several_collections=len(kept.history.repositories) > 1,
        took_ms=prepared.took_ms,
    )
    return Commits(**{each.name: getattr(found, each.name) for each in fields(found)}, known=known)


def of_commits(pipeline: Pipeline) -> Pipeline:
    """The same stages, as far as they make sense of commits, and each commit once."""
    refine = {name: stage for name, stage in pipeline.refine.items() if name not in LEFT_OUT}
    if "per_document" in refine:
        refine["per_document"] = PerDocument(most=1)
    rewrite = dict(pipeline.rewrite)
    if "operators" in rewrite:
        rewrite["operators"] = _by_files(rewrite["operators"])
    return replace(pipeline, rewrite=rewrite, refine=refine)


def _by_files(operators: Rewrite) -> Rewrite:
    """`path:` in a question means the files that a commit changed."""

    def rewritten(query: Query, tools: Tools) -> Query:
        found = operators(query, tools)
        asked = found.filters
        if not asked.paths:
            return found
        if asked.files:
            return replace(found, filters=replace(asked, paths=(), also=Filters(files=asked.paths)))
        return replace(found, filters=replace(asked, paths=(), files=asked.paths))

    return rewritten


def keep_commits(
    library: Library, wanted: bool | None, progress: Progress, *, rebuild: bool
) -> Report | None:
    """Read and embed all of the history where that is wanted, or was asked before."""
    if wanted is None:
        with library.commits_engine.snapshot() as snapshot:
            wanted = snapshot.generation > 0
    if not wanted:
        return None
    try:
        kept, hindered = annals(library, library.models.embedder)
        report = kept.run(progress, rebuild=rebuild)
    except (HistoryError, NotFound) as error:
        return Report(notices=(str(error),))
    return replace(report, notices=(*hindered, *report.notices))


def embed_commits(library: Library, progress: Progress, seconds: float) -> bool:
    """Vectors for a while, where a history is indexed at all; whether there is more to do."""
    with library.commits_engine.snapshot() as snapshot:
        if not snapshot.generation:
            return False
    limits = library.settings.build(Limits, "history")
    # Nothing is read, so nobody has to ask git which repositories there are.
    history = CommitIngest(library.commits_engine, library.models.embedder, {}, limits.diff_lines)
    kept = Annals(history, library.limits, limits.read_seconds, library.embedding_commits)
    return kept.embed_some(progress, seconds)


def told_status(library: Library, fingerprint: str) -> dict[str, Any]:
    """What is known of the history; nothing where it was never asked."""
    with library.commits_engine.snapshot() as snapshot:
        counts, failures = snapshot.status.counts(fingerprint), snapshot.status.failures()
        remarks = snapshot.status.remarks()
    if not counts.generation:
        return {}
    told = {
        "commits": counts.documents,
        "chunks": counts.chunks,
        "embedded": counts.embedded,
        "pending": counts.pending,
        "failed": [{"commit": one.document.path, "reason": one.reason} for one in failures],
        "remarks": [{"commit": id.path, "remark": said} for id, said in remarks],
        "sizes": dict(library.commits_engine.sizes()),
    }
    return {"history": told}
