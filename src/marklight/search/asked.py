"""Which words of a question a passage has: what nothing before it has makes it more than a copy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from marklight.answer import Hit, Query
from marklight.model import Chunk
from marklight.text import fold, query_terms, surface_prefixes

_CHANGING = "ie"
"""Ends of a stem that its word may lack: `happi` of happy, `hope` of hoping."""


class Asked:
    """The words of a question, looked for in few passages.

    To take a passage apart takes many times as long as to look for the beginnings of words in it, so
    that is done only for one which seems to have what no other has.
    """

    def __init__(self, query: Query) -> None:
        self._text = query.text
        self._seeming: dict[str, frozenset[str]] = {}

    def adds(self, hit: Hit, to: Iterable[Hit]) -> bool:
        """Whether a passage has a word of the question that all of these lack."""
        own = self.seeming(hit)
        for other in to:
            if not own:
                return False  # as a rule after the first, and the others need not be looked at
            own -= self.seeming(other)
        return bool(own) and self.has(hit, own)

    def has(self, hit: Hit, words: frozenset[str]) -> bool:
        """Whether any of these words stands in a passage."""
        return not words.isdisjoint(query_terms(_said(hit.chunk)))

    def lacking(self, hits: Iterable[Hit]) -> frozenset[str]:
        """Words of the question that none of these has."""
        return frozenset(self._beginnings).difference(*map(self.seeming, hits))

    def seeming(self, hit: Hit) -> frozenset[str]:
        """All words of the question that a passage has, and those that another word in it holds."""
        id = hit.chunk.id
        if id not in self._seeming:
            said = fold(_said(hit.chunk))
            found = (
                word
                for word, ways in self._beginnings.items()
                if any(beginning in said for beginning in ways)
            )
            self._seeming[id] = frozenset(found)
        return self._seeming[id]

    @cached_property
    def _beginnings(self) -> dict[str, list[str]]:
        asked = dict.fromkeys(query_terms(self._text))
        return {
            word: surface_prefixes(word[:-1] if word[-1] in _CHANGING else word) for word in asked
        }


def _said(chunk: Chunk) -> str:
    """Its text, its headings and its path: of a day, the date stands there alone."""
    return "\n".join((chunk.path, chunk.title, *chunk.headings, *chunk.merged, chunk.text))
