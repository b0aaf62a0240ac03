"""The verb search: from what a caller asks to passages of files as they are now, and what to know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from marklight.answer import Answer, Filters, Query
from marklight.errors import HistoryError, NotFound
from marklight.library import validation
from marklight.library.answering import Question, answer, prepare
from marklight.library.commits import also
from marklight.library.files import unlisted
from marklight.library.locate import scope_of, standing
from marklight.library.looking import as_before, as_now, look
from marklight.library.model_selection import IN_BACKGROUND, RUN_INDEX
from marklight.library.parts import Parts
from marklight.library.upkeep import Freshness
from marklight.library.validation import Day, Texts
from marklight.model import DocumentId
from marklight.ports import Progress, Snapshot, nobody_stops, silent
from marklight.search import present, widen
from marklight.search.pipeline import GONE

DAMAGED = "the passages that match are damaged in the index"
CLOSED = "what matched cannot be read (permission denied)"


def search(
    library: Parts,
    text: str,
    *,
    limit: int = 5,
    mode: str = "hybrid",
    min_confidence: float | None = None,
    path: Texts = (),
    tag: Texts = (),
    where: Mapping[str, str] | Texts = (),
    after: Day = None,
    before: Day = None,
    exclude: Texts = (),
    collection: Texts = (),
    max_tokens: int | None = None,
    rerank: bool | None = None,
    parents: bool = False,
    context: int = 0,
    expand_context: bool = False,
    hypothesis: str | None = None,
    with_history: bool = False,
    explain: bool = False,
    refresh: bool = True,
    settings: Mapping[str, Any] | None = None,
    near: Path | None = None,
    part: Path | None = None,
    assignments: Sequence[str] = (),
    progress: Progress = silent,
    going_on: Callable[[], None] = nobody_stops,
) -> Answer:
    """Find passages; the index is compared with the disk first unless told not to.

    `near` is the folder that the asker stands in, `part` a folder that alone is asked, and
    `assignments` are settings as a command line writes them.
    """
    query = Query(
        text=validation.query_text(text),
        limit=validation.integer("The limit", limit, 1, 100),
        mode=validation.search_mode(mode),
        min_confidence=validation.confidence(min_confidence),
        max_tokens=validation.token_budget(max_tokens),
        rerank=rerank,
        parents=parents,
        context=validation.integer("The context", context, 0, 20),
        expand_context=expand_context,
        hypothesis="" if hypothesis is None else validation.query_text(hypothesis, "hypothesis"),
        current_collection=_standing(library, near),
        filters=Filters(
            collections=validation.collections(collection, library.collections),
            paths=validation.globs(path),
            exclude=validation.globs(exclude),
            tags=tuple(one.removeprefix("#") for one in validation.texts(tag)),
            where=validation.pairs(where),
            after=validation.moment(after),
            before=validation.moment(before),
            within=scope_of(library.collections, part) if part else library.scope,
        ),
    )
    question = prepare(library, query, library.pipeline_with(settings, assignments), going_on)
    fresh = look(library, query, progress) if refresh else Freshness()
    found = _found(library, question, progress if refresh else None)
    found = replace(
        found,
        index=replace(found.index, unread=fresh.unread),
        notices=[
            *library.notices(),
            *_unsaid(fresh.notices, found.notices),
            *found.notices,
            *question.sent(library),
            *library.engine.take_notices(),
        ],
        explain=explain,
        several_collections=len(library.collections) > 1,
    )
    found = present.within_budget(found)
    if with_history:
        try:
            commits = also(library, question, progress if refresh else None, explain=explain)
            found = replace(found, commits=commits)
        except (HistoryError, NotFound) as error:  # no reason to hide the documents
            found = replace(found, notices=(*found.notices, str(error)))
    return replace(found, took_ms=question.took_ms)


def _found(library: Parts, question: Question, progress: Progress | None) -> Answer:
    """Passages of files as they are now; without a progress, as they are indexed."""

    following = library.following
    rest = IN_BACKGROUND if following else RUN_INDEX
    # Before a library is read nobody knows; how far that is has been told.
    unknown = following is not None and following.reading
    empty = [] if unknown else [f"there are no documents in {library.place.folder}"]

    damaged: list[set[DocumentId]] = []

    def ask() -> tuple[Answer, list[DocumentId]]:
        denied: set[str] = set()

        def exists(id: DocumentId) -> bool:
            if library.files.has(id):
                return True
            denied.update(filter(None, [library.files.denied(id)]))
            return False

        with library.threads.search_slot() as alone, library.engine.snapshot() as snapshot:
            found = answer(library, question, snapshot, alone=alone, exists=exists, rest=rest)
            damaged.append(_damaged(found, snapshot))
            if damaged[-1]:
                kept = tuple(hit for hit in found.hits if hit.chunk.document not in damaged[-1])
                found = replace(found, hits=kept, abstained=found.abstained if kept else DAMAGED)
            documents = {hit.chunk.document for hit in found.hits}
            found = replace(
                found,
                modified=snapshot.documents.modified_times(documents),
                dates=snapshot.documents.dates(documents),
                levels=widen.levels((hit.chunk for hit in found.hits), widen.Leaves(snapshot)),
                abstained=CLOSED if denied and found.abstained == GONE else found.abstained,
                notices=[
                    *found.notices,
                    *map(unlisted, sorted(denied)),
                    *([] if found.index.documents else empty),
                ],
            )
            return found, [
                *damaged[-1],
                *library.files.changed(snapshot.documents.files_of(documents)),
            ]

    found, stale = as_now(library, ask, progress) if progress else ask()
    found = _without(found, stale, library.files.has) if stale else found
    return replace(found, notices=[*found.notices, *_told_of(damaged)])


def _damaged(found: Answer, snapshot: Snapshot) -> set[DocumentId]:
    """Return the documents of hits that do not match their checksums: of the passages, or of all that is shown around them."""
    query = found.query
    if query.parents or query.context or query.expand_context:
        return snapshot.status.damaged_documents({hit.chunk.document for hit in found.hits})
    return snapshot.status.damaged_chunks([hit.chunk.id for hit in found.hits])


def _told_of(damaged: list[set[DocumentId]]) -> list[str]:
    """Return notices about documents that were damaged in the index: those that were read again, and those left out."""
    left_out = damaged[-1]
    repaired = set().union(*damaged) - left_out
    notices = []
    if repaired:
        named = ", ".join(sorted(id.path for id in repaired))
        notices.append(f"damaged in the index and read again from the disk: {named}")
    if left_out:
        named = ", ".join(sorted(id.path for id in left_out))
        notices.append(f"damaged in the index and left out: {named}; `marklight doctor` repairs it")
    return notices


def _without(
    answer: Answer, stale: Iterable[DocumentId], exists: Callable[[DocumentId], bool]
) -> Answer:
    """An answer without what is gone, that says what was not read since it changed."""
    gone = {id for id in stale if not exists(id)}
    hits = tuple(hit for hit in answer.hits if hit.chunk.document not in gone)
    changed = len({hit.chunk.document for hit in hits}.intersection(stale))
    return replace(
        answer,
        hits=hits,
        abstained=answer.abstained if hits else GONE,
        notices=[*answer.notices, *as_before(changed)],
    )


def _standing(library: Parts, near: Path | None) -> str:
    several = len(library.collections) > 1
    return standing(library.collections, near or Path.cwd()) if several else ""


def _unsaid(notices: Iterable[str], said: Iterable[str]) -> list[str]:
    """Those whose reason was not given already: what could not be done twice is said once."""
    reasons = {_reason(one) for one in said}
    return [one for one in notices if _reason(one) not in reasons]


def _reason(notice: str) -> str:
    return notice.partition(": ")[2] or notice
