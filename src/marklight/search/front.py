"""How far back a list of hits is looked at: as far as an answer may reach."""

from __future__ import annotations

from collections.abc import Callable

from marklight.answer import Hits

_FRONT = 2
"""Hits that are looked at first, for each result asked for."""


def thinned(hits: Hits, limit: int, fit: Callable[[Hits], Hits]) -> Hits:
    """Hits without those that are not fit to be shown, as far back as an answer may reach.

    Looking is what costs, and few of the hits are shown: further ones are looked at only until
    there are as many documents as results.
    """
    front = _FRONT * limit
    while True:
        kept = fit(hits[:front])
        if front >= len(hits) or len({hit.chunk.document for hit in kept}) >= limit:
            return (*kept, *hits[front:])
        front *= 2
