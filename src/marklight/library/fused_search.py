"""Search with several phrasings of a query: a passage has the score of the one that it answers best (CombMAX).

Scores are probabilities, so they can be compared between queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marklight.answer import Answer, Hit, Hits, within_budget
from marklight.errors import UsageError
from marklight.library.search import search_once

if TYPE_CHECKING:
    from marklight.library import Library

QUERY_TYPES = ("hybrid", "keyword", "semantic", "hypothesis")
NEAREST = 3
"""Closest passages that are returned if every query abstains."""


def fused_search(
    library: Library,
    query: str,
    queries: Sequence[str | Mapping[str, Any]],
    *,
    limit: int,
    max_tokens: int | None,
    **options: Any,
) -> Answer:
    """Return the best passages for a query and further phrasings of it; facts of the answer are those of the query."""
    phrasings = [_read(phrasing) for phrasing in queries]
    # Each answer is cut only by the number of results; all together keep to the token budget.
    options |= {"limit": limit, "max_tokens": None}
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
    hits = _best([answer.hits for answer in answers], limit, per_document)
    nearest = () if hits else _best([answer.nearest for answer in answers], NEAREST, per_document)
    kept, cut = within_budget(hits or nearest, max_tokens, first.several_collections)
    notices = dict.fromkeys(note for answer in answers for note in answer.notices)
    return replace(
        first,
        query=replace(first.query, max_tokens=max_tokens),
        hits=kept if hits else (),
        nearest=() if hits else kept,
        abstained=None if hits else first.abstained,
        stats={**first.stats, "after_same_meaning": len(hits), "after_doc_limit": len(hits)},
        modified=_merged(answer.modified for answer in answers),
        levels=_merged(answer.levels for answer in answers),
        dates=_merged(answer.dates for answer in answers),
        notices=(*notices, cut) if cut else tuple(notices),
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
