"""Documents whose frontmatter has the question among its keywords, lifted into the first five."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import nextafter

from marklight.answer import Hit, Hits, Query, best_first
from marklight.ports import Tools

_LEAST, _SPREAD = 2 / 6, 1 / 7
"""The score that such a document has at the least, which is enough to be an answer, and what its own adds.

Without it, of FastAPI's pages with two words of other pages for a keyword, 2 of 155 were found by these: most such
questions seem to have no answer, as what the author says of a page stands nowhere in its text.
"""
_BEFORE, _MOST = 3, 2
"""Hits that stay before them, and how many are lifted."""
_LISTED = 200
"""Documents that are looked at: a word such as `howto` may be a keyword of all."""


def with_keyed(query: Query, hits: Hits, tools: Tools) -> Hits:
    """The best of them behind the first hits at worst, the others where they are."""
    lifted: dict[str, Hit] = {}
    for hit in islice(_keyed(query, hits, tools), _MOST):
        score = max(hit.score, _LEAST + _SPREAD * max(0.0, hit.score))
        if len(hits) > _BEFORE and score < hits[_BEFORE].score:
            score = nextafter(hits[_BEFORE].score, 1.0)
        lifted[hit.chunk.id] = hit if score == hit.score else hit.rescored(score, by="exact_title")
    if not lifted:
        return hits
    return best_first((*lifted.values(), *(hit for hit in hits if hit.chunk.id not in lifted)))


def _keyed(query: Query, hits: Hits, tools: Tools) -> Iterator[Hit]:
    """Each by its best hit, best first; then those without one by their first passage."""
    if not tools.snapshot.metadata.has_key("keywords"):
        return
    given = query.filters
    asked = [(*given.where, ("keywords", name)) for name in query.title_candidates]
    found = (
        tools.snapshot.metadata.matching_documents(replace(given, where=each), _LISTED)
        for each in asked
    )
    left = {id: None for ids in found for id in ids if tools.exists(id)}
    for hit in hits:
        if hit.chunk.document in left:
            del left[hit.chunk.document]
            yield hit
    # Where filters choose among passages, nobody knows whether the first one passes.
    for id in left if not given.restrict_passages else ():
        yield from (Hit(first, 0.0) for first in tools.snapshot.documents.chunks_around(id, 0, 0))
