"""A question to the history: refreshed, asked and told as a search of documents is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from marklight.answer import Filters, Query
from marklight.commits import Commits
from marklight.errors import HistoryError, NotFound, RepositoryOutside
from marklight.ingest.history.pipeline import CommitIngest
from marklight.library import validation
from marklight.library.answering import Question, answer, prepare
from marklight.library.compose import History as Limits
from marklight.library.history import Annals, repositories
from marklight.library.parts import Parts
from marklight.library.validation import Day, Texts
from marklight.ports import Embedder, Progress, Rewrite, Tools, nobody_stops, silent
from marklight.report import Report
from marklight.search import present
from marklight.search.pipeline import Pipeline
from marklight.search.refine.per_document import PerDocument

LEFT_OUT = ("existing_files", "exact_duplicates", "near_duplicates", "semantic_duplicates")
"""Stages that do not look at commits: they have no file, and two that say the same are two all the same."""


def annals(library: Parts, embedder: Embedder | None) -> tuple[Annals, list[str]]:
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


def commits(
    library: Parts,
    text: str,
    *,
    limit: int = 5,
    files: Texts = (),
    author: Texts = (),
    after: Day = None,
    before: Day = None,
    mode: str = "hybrid",
    min_confidence: float | None = None,
    max_tokens: int | None = None,
    rerank: bool | None = None,
    explain: bool = False,
    refresh: bool = True,
    settings: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    progress: Progress = silent,
    going_on: Callable[[], None] = nobody_stops,
) -> Commits:
    """Find commits of the repositories that hold the collections; new ones are read first.

    `files` are globs of what a commit changed, `author` a part of a name or an address.
    """
    query = Query(
        text=validation.query_text(text),
        limit=validation.integer("The limit", limit, 1, 100),
        mode=validation.search_mode(mode),
        min_confidence=validation.confidence(min_confidence),
        max_tokens=validation.token_budget(max_tokens),
        rerank=rerank,
        filters=Filters(
            files=validation.globs(files),
            authors=tuple(one.strip() for one in validation.texts(author) if one.strip()),
            after=validation.moment(after),
            before=validation.moment(before),
        ),
    )
    pipeline = of_commits(library.pipeline_with(settings, assignments))
    question = prepare(library, query, pipeline, going_on)
    found = answered(library, question, progress if refresh else None, explain=explain)
    return replace(found, notices=(*library.settings.notices, *found.notices))


def also(library: Parts, asked: Question, progress: Progress | None, *, explain: bool) -> Commits:
    """What the history says to a question that was asked of the documents."""
    query, days = asked.query, asked.query.filters
    plain = Query(
        text=query.text,
        limit=query.limit,
        mode=query.mode,
        min_confidence=query.min_confidence,
        max_tokens=query.max_tokens,
        rerank=query.rerank,
        filters=Filters(after=days.after, before=days.before),
    )
    question = prepare(library, plain, of_commits(asked.pipeline), asked.going_on)
    return answered(library, question, progress, explain=explain)


def answered(
    library: Parts, question: Question, progress: Progress | None, *, explain: bool
) -> Commits:
    """Found by the passages of messages and diffs, one result for each; without a progress, as indexed."""
    kept, notices = annals(library, question.embedder)
    query = question.query
    if (whole := kept.meant(query.text)) != query.text:
        question = replace(question, query=replace(query, text=whole, raw_text=query.text))
    if progress:
        notices += kept.refresh(question.query, progress)
        if following := library.following:
            following.wake()  # it makes the vectors that there was no time for
    notices += kept.notices()
    with library.threads.search_slot() as alone, library.commits_engine.snapshot() as snapshot:
        found = answer(library, question, snapshot, alone=alone)
        known = kept.commits(snapshot, [hit.chunk.document for hit in found.hits])
        modified = snapshot.documents.modified_times(known)
    notices += [*found.notices, *question.sent(library), *library.commits_engine.take_notices()]
    found = present.within_budget(replace(found, modified=modified, notices=()))
    if found.notices:
        shorter = f"the answer is cut to stay within {query.max_tokens} tokens"
        notices.append(f"{shorter}; `git show` shows a commit whole")
    found = replace(
        found,
        notices=tuple(notices),
        explain=explain,
        several_collections=len(kept.history.repositories) > 1,
        took_ms=question.took_ms,
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
    library: Parts, wanted: bool | None, progress: Progress, *, rebuild: bool
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


def embed_commits(library: Parts, progress: Progress, seconds: float) -> bool:
    """Vectors for a while, where a history is indexed at all; whether there is more to do."""
    with library.commits_engine.snapshot() as snapshot:
        if not snapshot.generation:
            return False
    limits = library.settings.build(Limits, "history")
    # Nothing is read, so nobody has to ask git which repositories there are.
    history = CommitIngest(library.commits_engine, library.models.embedder, {}, limits.diff_lines)
    kept = Annals(history, library.limits, limits.read_seconds, library.embedding_commits)
    return kept.embed_some(progress, seconds)


def told_status(library: Parts, fingerprint: str) -> dict[str, Any]:
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
