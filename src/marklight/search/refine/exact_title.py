"""Put first what is called exactly as the question: a document by its title, alias or file name, a section by its heading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, NamedTuple

from marklight.answer import Hit, Hits, Mode, Query, best_first
from marklight.model import Chunk
from marklight.ports import Tools
from marklight.search.keyed import with_keyed
from marklight.settings import demand_within
from marklight.text import normalize

_READ = 200
"""Names that are looked at: a heading such as `Examples` may stand in every document."""
_CROWDED = 0.9
"""Scores above it move into half the room while something is named, to make place for that."""

_HEADING, _OTHER_NAME, _TITLE = 3 / 6, 4 / 6, 5 / 6
"""Where each sort of name begins in the room above the others, as a share of it."""
_SPREAD = 1 / 7
"""How far their own scores set those of one sort apart: less than the sixth that is theirs."""


@dataclass(frozen=True, slots=True)
class ExactTitle:
    """Brings in what is called so where no retriever did, and lifts it above the rest.

    A document by its title comes before one by another of its names, and that before a section. What has
    the question among the keywords of its frontmatter comes into the first five.
    """

    invents: ClassVar[bool] = True
    """The first passage of what is called so, where the hits have none of it."""

    most: int = 3
    """How many are put first; of more that are called so the best ones."""

    def __post_init__(self) -> None:
        demand_within("search.exact_title", self, most=(1, inf))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.mode is Mode.CODE:
            return hits
        called = called_so(query, hits, tools)[: self.most]
        return with_keyed(query, _with_called(hits, called), tools)


class Called(NamedTuple):
    """What is called so, by its best passage among the hits or else its first."""

    share: float
    """Of the room between the best score and 1."""
    hit: Hit


def _with_called(hits: Hits, called: Sequence[Called]) -> Hits:
    if not called:
        return hits
    lifted = {one.hit.chunk.id for one in called}
    others = [_squeezed(hit) for hit in hits if hit.chunk.id not in lifted]
    # Their own scores count as well: what is lifted must not end lower than it was.
    best = max(hit.score for hit in (*others, *(_squeezed(one.hit) for one in called)))
    return best_first(
        (
            *others,
            *(one.hit.rescored(best + (1.0 - best) * one.share, "exact_title") for one in called),
        )
    )


def called_so(query: Query, hits: Hits, tools: Tools) -> list[Called]:
    """Documents, and sections of other documents, the strongest name and the best passage first."""
    wanted = {normalize(name) for name in query.title_candidates}
    found = [
        one
        for name in query.title_candidates
        for one in tools.snapshot.documents.find_by_title(name, query.filters, _READ)
    ]
    whole = {one.chunk_id for one in found if one.score == 1.0}
    chunks = tools.snapshot.documents.chunks(list(dict.fromkeys(one.chunk_id for one in found)))
    documents = {chunk.document for chunk in chunks if chunk.id in whole}
    called: dict[str, Called] = {}
    for chunk in chunks:
        if chunk.id in whole:
            hit, floor = _best(hits, chunk, ()), _OTHER_NAME
            if normalize(chunk.title) in wanted:
                floor = _TITLE
        elif chunk.document not in documents:
            hit, floor = _best(hits, chunk, _part(chunk, wanted)), _HEADING
        else:
            continue
        if tools.exists(chunk.document):
            share = floor + _SPREAD * min(1.0, max(0.0, hit.score))
            called.setdefault(hit.chunk.id, Called(share, hit))
    return sorted(called.values(), key=lambda one: (-one.share, one.hit.chunk.id))


def _best(hits: Hits, first: Chunk, part: tuple[str, ...]) -> Hit:
    """The best hit of this document below these headings, or its first passage."""
    for hit in hits:
        own = hit.chunk.document == first.document
        if own and (hit.chunk.headings[: len(part)] == part or hit.chunk.id == first.id):
            return hit
    return Hit(first, 0.0)


def _part(chunk: Chunk, wanted: set[str]) -> tuple[str, ...]:
    """The headings down to the one that is wanted; all and one more where it was merged into another."""
    for depth, heading in enumerate(chunk.headings, 1):
        if normalize(heading) in wanted:
            return chunk.headings[:depth]
    return (*chunk.headings, "")


def _squeezed(hit: Hit) -> Hit:
    """Without a word in its `why`, which tells those that are called so from the others."""
    if hit.score <= _CROWDED:
        return hit
    return replace(hit, score=_CROWDED + (hit.score - _CROWDED) / 2)
