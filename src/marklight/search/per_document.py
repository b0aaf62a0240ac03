"""Choose the passages of a document that are shown: those with text of their own first, and a limit of their number."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from math import inf, log
from typing import Annotated

from marklight.answer import Hit, Hits, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.duplicates import QueryTerms
from marklight.settings import Within

VISIBLE_HITS = 5
"""Hits that are seen with the default limit: with more, a replaced passage would often not be shown."""
RARE_SHARE = 0.1
"""Share of the hits that contain a rare term, at most: that a common one is missing says little. Hand-set; not measured."""
PROSE_WEIGHT, ENOUGH_CHARS = 8.0, 200
"""By how much the log-odds of a passage with enough text may be lower, and the characters above which more text makes no difference.
Hand-set; not measured."""
MIN_ODDS = 1e-9
"""Keeps the logarithm of a score of 0 or 1 finite."""
_LINK = re.compile(r"\[\[[^\[\]\n]{1,500}\]\]|\[[^\[\]]{0,500}\]\([^()\s]{0,2000}\)")


@dataclass(frozen=True, slots=True)
class Prose:
    """Give the higher scores of a document to its passages with more text, whose own words were compared with the query.

    The embedding of a passage begins with title and headings. Of a passage with hardly any other text, such as a line at the end
    of a note, it is the embedding of the title, and nearer to a query about the note than the passage that answers it.
    Links do not count as text, so that a table of contents is shown only where there is nothing else. Documents keep
    their ranks: only passages of one document exchange scores.
    """

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        groups: dict[DocumentId, list[Hit]] = {}
        for hit in hits:
            groups.setdefault(hit.chunk.document, []).append(hit)
        changed: dict[str, Hit] = {}
        for group in groups.values():
            if len(group) > 1:
                for hit, score in zip(
                    sorted(group, key=_preference), [member.score for member in group], strict=True
                ):
                    if hit.score != score:
                        changed[hit.chunk.id] = hit.rescored(
                            score, "prose", "score_of_the_document", score_of_the_document=score
                        )
        if not changed:
            return hits
        return best_first(changed.get(hit.chunk.id, hit) for hit in hits)


def _preference(hit: Hit) -> tuple[float, str]:
    share = min(1.0, prose_length(hit.chunk.own_text) / ENOUGH_CHARS)
    return -(_log_odds(hit.score) + PROSE_WEIGHT * share), hit.chunk.id


def prose_length(text: str) -> int:
    """Return the number of characters outside of links."""
    return len(_LINK.sub("", text)) if "[" in text else len(text)


def _log_odds(score: float) -> float:
    return log(max(score, MIN_ODDS) / max(1 - score, MIN_ODDS))


@dataclass(frozen=True, slots=True)
class PerDocument:
    """Keep the best passages of each document, up to a limit.

    If only a few documents match (for example, a diary kept in one file), a document's lowest-ranked kept passage
    gives way to one that contains a rare query term missing from all kept passages.
    """

    max_passages: Annotated[int, Within(1)] = 2
    """Maximum number of passages per document."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        counts: Counter[DocumentId] = Counter()
        kept: list[Hit] = []
        rest: list[Hit] = []
        for hit in hits:
            counts[hit.chunk.document] += 1
            (kept if counts[hit.chunk.document] <= self.max_passages else rest).append(hit)
        if rest and self.max_passages > 1 and len(kept) <= VISIBLE_HITS:
            kept = with_rare_term(kept, rest, QueryTerms(query))
        return tuple(kept)


def with_rare_term(kept: list[Hit], rest: list[Hit], terms: QueryTerms) -> list[Hit]:
    """Replace the last passage of a document by one with a rare query term that all kept ones lack."""
    missing = terms.missing(kept)
    if not missing:
        return kept
    every = (*kept, *rest)
    frequency = Counter(chain.from_iterable(map(terms.possible_in, every)))

    def rarest_term(hit: Hit) -> float:
        return min((frequency[term] for term in terms.possible_in(hit) & missing), default=inf)

    candidate = min(rest, key=rarest_term)
    rarity = rarest_term(candidate)
    if rarity > max(1, len(every) * RARE_SHARE):
        return kept
    *_, last = (hit for hit in kept if hit.chunk.document == candidate.chunk.document)
    others = [hit for hit in kept if hit is not last]
    only_in_last = terms.possible_in(last) & terms.missing(others)
    if any(frequency[term] <= rarity for term in only_in_last):
        return kept
    if not terms.occur(missing, candidate):
        return kept
    return list(best_first([*others, candidate]))
