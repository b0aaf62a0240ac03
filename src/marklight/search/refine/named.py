"""Put first what is called exactly as the question: a document by its title, alias or file name, a section by its heading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from marklight.answer import Hit, Hits, Mode, Query, best_first
from marklight.errors import SettingsError
from marklight.model import Chunk
from marklight.ports import Tools
from marklight.search.likeness import flat

_READ = 200
"""Names that are looked at: a heading such as `Examples` may stand in every document."""
_CROWDED = 0.9
"""Scores above it move into half the room while something is named, to make place for that."""


@dataclass(frozen=True, slots=True)
class Named:
    """Brings in what is called so where no retriever did, and lifts it above the rest."""

    invents: ClassVar[bool] = True
    """The first passage of what is called so, where the hits have none of it."""

    most: int = 3
    """How many are lifted, documents before sections; of more that are called so the best ones."""

    def __post_init__(self) -> None:
        if self.most < 1:
            raise SettingsError(f"search.named.most must be at least 1, but is {self.most}")

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.mode is Mode.CODE:
            return hits
        documents, sections = called_so(query, hits, tools)
        documents = documents[: self.most]
        sections = sections[: self.most - len(documents)]
        lifted = {hit.chunk.id for hit in (*documents, *sections)}
        if not lifted:
            return hits
        others = [_squeezed(hit) for hit in hits if hit.chunk.id not in lifted]
        best = max((hit.score for hit in others), default=0.0)
        half = (best + 1.0) / 2
        return best_first((*others, *_above(best, half, sections), *_above(half, 1.0, documents)))


def called_so(query: Query, hits: Hits, tools: Tools) -> tuple[Hits, Hits]:
    """Documents, and sections of others, by their best passage among the hits or else their first."""
    names = dict.fromkeys((query.text, query.asked or query.text))
    found = [one for name in names for one in tools.reader.named(name, query.filters, _READ)]
    wanted = {flat(name) for name in names}
    documents: dict[str, Hit] = {}
    sections: dict[str, Hit] = {}
    titled = {one.chunk for one in found if one.score == 1.0}
    chunks = tools.reader.chunks(list(dict.fromkeys(one.chunk for one in found)))
    whole = {chunk.document for chunk in chunks if chunk.id in titled}
    for chunk in chunks:
        if not tools.exists(chunk.document):
            continue
        if chunk.document not in whole:
            hit = _best(hits, chunk, _part(chunk, wanted))
            sections[hit.chunk.id] = hit
        elif chunk.id in titled:
            hit = _best(hits, chunk, ())
            documents[hit.chunk.id] = hit
    return best_first(documents.values()), best_first(sections.values())


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
        if flat(heading) in wanted:
            return chunk.headings[:depth]
    return (*chunk.headings, "")


def _squeezed(hit: Hit) -> Hit:
    if hit.score <= _CROWDED:
        return hit
    return hit.rescored(_CROWDED + (hit.score - _CROWDED) / 2, by="named")


def _above(low: float, high: float, hits: Sequence[Hit]) -> Hits:
    """Into the upper half between these, in the order that they have."""
    middle = (low + high) / 2
    return tuple(
        hit.rescored(middle + (high - middle) * min(1.0, max(0.0, hit.score)), by="named")
        for hit in hits
    )
