"""Which words of a question a few passages have, asked of tantivy in as few questions as it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import tantivy
from tantivy import Occur, Query

from marklight.engines.embedded.passages import rows_at, schema
from marklight.engines.lexical import WHOLE, coverage, distinct_terms, rare_term_weight, term_weight
from marklight.ports import TermCoverage

AT_ONCE = 12
"""Words in one question: each has two bits of a score, and its numbers have 24."""
_ANYWHERE = (1 << AT_ONCE) - 1
"""The lower bits of a score; those above are of words in the title."""


def covered(
    searcher: tantivy.Searcher, words: Sequence[str], chunks: Mapping[int, str]
) -> dict[str, TermCoverage]:
    """By id, of the passages with these rows."""
    wanted = distinct_terms(words)
    rarities = {
        word: term_weight(searcher.num_docs, searcher.doc_freq(WHOLE, word)) for word in wanted
    }
    rare = rare_term_weight(searcher.num_docs)
    held: dict[int, int] = {}
    titled: dict[int, int] = {}
    for at in range(0, len(wanted), AT_ONCE):
        for row, bits in _bits(searcher, wanted[at : at + AT_ONCE], list(chunks)):
            held[row] = held.get(row, 0) | (bits & _ANYWHERE) << at
            titled[row] = titled.get(row, 0) | (bits >> AT_ONCE) << at

    @cache  # most passages have one of a few choices of the words
    def share(held: int, titled: int) -> TermCoverage:
        return coverage(rarities, _named(wanted, held), _named(wanted, titled), rare)

    return {chunks[row]: share(found, titled[row]) for row, found in held.items()}


def _bits(
    searcher: tantivy.Searcher, words: Sequence[str], rows: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """For each of these passages that has any of the words, which: a score is their sum."""
    form = schema()
    # Asked for one by one: a set of terms is found by walking over all of them, twice as slow.
    these = Query.boolean_query(
        [(Occur.Should, Query.term_query(form, "row", row)) for row in rows]
    )
    any_word = Query.boolean_query(
        [
            (
                Occur.Should,
                Query.const_score_query(Query.term_query(form, field, word), float(1 << bit)),
            )
            for place, word in enumerate(words)
            for field, bit in ((WHOLE, place), ("title", place + AT_ONCE))
        ]
    )
    query = Query.boolean_query(
        [(Occur.Must, any_word), (Occur.Must, Query.const_score_query(these, 0.0))]
    )
    hits = searcher.search(query, limit=len(rows), count=False).hits
    found = rows_at(searcher, [address for _, address in hits])
    return zip(found, (int(score) for score, _ in hits), strict=True)


def _named(words: Sequence[str], bits: int) -> list[str]:
    return [word for place, word in enumerate(words) if bits >> place & 1]
