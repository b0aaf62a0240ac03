"""Which passages hold a phrase: the index of words tells who may, the texts who does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from marklight.answer import Filters
from marklight.engines.embedded.allowed import Allowed, which
from marklight.engines.embedded.records import unpacked
from marklight.engines.embedded.session import Session
from marklight.text import has_words, matches_phrases, phrase_terms

Holding = Callable[[Sequence[str], Allowed | None], Sequence[int]]
"""The rows of passages that have all of some words in one field, by the index of words."""


def worded(
    session: Session, filters: Filters, may: Allowed | None, holding: Holding
) -> Allowed | None:
    """What of it also holds the phrases, and not those that it may not."""
    phrases = [phrase for phrase in filters.phrases if has_words(phrase)]
    without = [phrase for phrase in filters.without if has_words(phrase)]
    if may and may.nothing:
        return may
    if phrases:
        holders = _holders(session, phrases, may, holding)
        may = Allowed(
            "row", [row for row, said in holders if matches_phrases(phrases, without, said)]
        )
    elif without:
        barred = {
            row
            for phrase in without
            for row, said in _holders(session, [phrase], may, holding)
            if matches_phrases([phrase], [], said)
        }
        may = _but(session, may, barred)
    return may


def _holders(
    session: Session, phrases: Sequence[str], may: Allowed | None, holding: Holding
) -> Iterator[tuple[int, list[str]]]:
    """Passages that may hold these phrases, with their texts: only those are read."""
    for phrase in phrases:
        # Of many phrases each narrows what the next is looked for in.
        if not (may and may.nothing) and (words := phrase_terms(phrase)):
            may = Allowed("row", list(holding(words, may)))
    condition, values = which(may)
    for row, text, title, headings, merged in session.each(
        f"SELECT c.row, c.text, c.title, c.headings, c.merged FROM chunks c WHERE {condition}",
        values,
    ):
        yield row, [text, title, *unpacked(headings), *unpacked(merged)]


def _but(session: Session, may: Allowed | None, barred: set[int]) -> Allowed | None:
    if may is None:
        return Allowed("row", sorted(barred), but=True)
    condition, values = which(may)
    rows = session.all(f"SELECT c.row FROM chunks c WHERE {condition}", values)
    return Allowed("row", [row for (row,) in rows if row not in barred])
