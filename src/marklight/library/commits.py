"""A question to the history: refreshed, asked and told as a search of documents is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from marklight.answer import Filters, Mode, Query
from marklight.commits import Commits
from marklight.errors import HistoryError, NotFound, Unanswered
from marklight.ingest.history.pipeline import History
from marklight.library.asking import Day, Several, ask_history
from marklight.library.choice import model_for
from marklight.library.compose import History as Limits
from marklight.library.history import Annals, repositories
from marklight.library.parts import MANY, Parts, in_turn
from marklight.ports import Embedder, Progress, Rewrite, Tools, in_haste
from marklight.report import Report
from marklight.search import present
from marklight.search.pipeline import Pipeline
from marklight.search.refine.per_document import PerDocument

LEFT_OUT = ("alive", "same_text", "near_text", "same_meaning")
"""Stages that do not look at commits: they have no file, and two that say the same are two all the same."""


def annals(parts: Parts, embedder: Embedder | None) -> tuple[Annals, list[str]]:
    """The history of a library, and what hinders; NotFound where no collection is in a repository."""
    found, refused = parts.repositories, dict[str, HistoryError]()
    if not found:
        found, refused = repositories(parts.collections)
        # Found once, they stay; one that is refused may be allowed meanwhile.
        parts.repositories = {} if refused else found
    if refused and not found:
        raise next(iter(refused.values()))
    if not found:
        folders = ", ".join(map(str, parts.collections.values()))
        raise NotFound(f"there is no git repository around {folders}", "`git init` makes one")
    limits = parts.settings.build(Limits, "history")
    history = History(parts.commits_engine, found, embedder, limits.diff_lines, frozenset(refused))
    kept = Annals(history, parts.limits, limits.read_seconds, parts.embedding_commits)
    return kept, [str(error) for error in refused.values()]


def ask_commits(
    parts: Parts,
    text: str,
    *,
    limit: int,
    files: Several,
    author: Several,
    after: Day,
    before: Day,
    mode: str,
    min_confidence: float | None,
    max_tokens: int | None,
    rerank: bool | None,
    explain: bool,
    refresh: bool,
    settings: Mapping[str, Any] | None,
    assignments: Sequence[str],
    progress: Progress,
    going_on: Callable[[], None],
) -> Commits:
    """Find commits by the passages of their messages and diffs, one result for each."""
    began = time.perf_counter()
    query = ask_history(
        text,
        limit=limit,
        mode=mode,
        min_confidence=min_confidence,
        max_tokens=max_tokens,
        rerank=rerank,
        files=files,
        author=author,
        after=after,
        before=before,
    )
    pipeline = of_commits(parts.pipeline_with(settings or {}, assignments))
    reranker = parts.reranker_for(query, pipeline)
    wanted = parts.embedder if query.mode in (Mode.HYBRID, Mode.SEMANTIC) else None
    kept, notices = annals(parts, wanted)
    if (whole := kept.meant(query.text)) != query.text:
        query = replace(query, text=whole, asked=query.text)
    if refresh:
        notices += kept.refresh(query, progress)
    notices += kept.notices()
    with parts.at_work() as alone, parts.commits_engine.snapshot() as reader:
        counts = reader.counts(parts.model_problem()[0])
        embedder, said = model_for(query, reader, wanted, parts.model_named)
        tools = Tools(
            reader,
            in_haste(embedder, parts.settings["model.query_seconds"]),
            reranker,
            now=time.time(),
            say=said.append,
            together=parts.together if alone and counts.chunks >= MANY else in_turn,
            going_on=going_on,
        )
        try:
            answer = pipeline(query, tools)
        except Unanswered as error:
            if query.mode is Mode.SEMANTIC:
                raise
            said.append(f"answered by words alone: {error}")
            answer = pipeline(query, replace(tools, embedder=None))
        known = kept.commits(reader, [hit.chunk.document for hit in answer.hits])
        modified = reader.modified(known)
    said += parts.sent_to(embedding=wanted is not None, reranking=reranker is not None)
    notices += [*said, *parts.commits_engine.news()]
    answer = present.within_budget(replace(answer, index=counts, modified=modified))
    if answer.notices:
        shorter = f"the answer is cut to stay within {max_tokens} tokens"
        notices.append(f"{shorter}; `git show` shows a commit whole")
    answer = replace(
        answer,
        notices=tuple(notices),
        explain=explain,
        several_collections=len(kept.history.repositories) > 1,
        took_ms=(time.perf_counter() - began) * 1000,
    )
    return Commits(
        **{each.name: getattr(answer, each.name) for each in fields(answer)}, known=known
    )


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
    parts: Parts, wanted: bool | None, progress: Progress, *, rebuild: bool
) -> Report | None:
    """Read and embed all of the history where that is wanted, or was asked before."""
    if wanted is None:
        with parts.commits_engine.snapshot() as reader:
            wanted = reader.generation > 0
    if not wanted:
        return None
    try:
        kept, hindered = annals(parts, parts.embedder)
        report = kept.run(progress, rebuild=rebuild)
    except (HistoryError, NotFound) as error:
        return Report(notices=(str(error),))
    return replace(report, notices=(*hindered, *report.notices))


def told_status(parts: Parts, fingerprint: str) -> dict[str, Any]:
    """What is known of the history; nothing where it was never asked."""
    with parts.commits_engine.snapshot() as reader:
        counts, failures = reader.counts(fingerprint), reader.failures()
        remarks = reader.remarks()
    if not counts.generation:
        return {}
    told = {
        "commits": counts.documents,
        "chunks": counts.chunks,
        "embedded": counts.embedded,
        "pending": counts.pending,
        "failed": [{"commit": one.document.path, "reason": one.reason} for one in failures],
        "remarks": [{"commit": id.path, "remark": said} for id, said in remarks],
        "sizes": dict(parts.commits_engine.sizes()),
    }
    return {"history": told}
