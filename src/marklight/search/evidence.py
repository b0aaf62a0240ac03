"""What speaks for each candidate, and what all of them together say about the question: plain numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import log, log2
from statistics import fmean
from typing import NamedTuple

from marklight.answer import Hits, Query
from marklight.ports import Tools
from marklight.search.wording import (
    NOTHING,
    as_typed,
    forms,
    in_any_spelling,
    length,
    share_in_path,
    shares_of,
)

SEEN = 20
"""Best of a list that a question is judged by: its scores must not hang on how many results are wanted."""
_HUB = 8
"""Documents each way that are counted; a page with more links is no better known."""
_LEAST_SPREAD = 0.05
"""Cosines that are closer than this are as good as equal."""
_LEAST_SCORE = 1e-6
_TELLING = 0.75
"""Power of a question's length in `words`: the more there are the more their agreement tells. Of 0, 0.25,
0.5, 0.75 and 1 this one is the best on sets left out."""
_TAMED = 0.7
"""Power of the keyword score in `words`: that a word stands once more tells little. On the sets 0.5 and 0.7
are as good as 1 or better, 0.35 and 1.4 worse."""
_LEADING = 2
"""Passages that may have more of the question's words than all others: what is asked for may stand twice."""
_LONG = 20
"""Words from which on a question is no longer: the sets have hardly any beyond."""
_OTHER_LETTERS = re.compile(r"[^\W\d_A-Za-z\u00aa-\u024f\u1e00-\u1eff]")
"""All but those of Latin."""
_FEWEST = 25
"""Passages of a library below which nothing was learned of whether it answers, so fewer that pass a filter count as many."""


class Evidence(NamedTuple):
    """What speaks for one passage; what nobody said is 0."""

    meaning: float
    """Ten times its cosine with the question."""
    nearness: float
    """Where its cosine stands between the best of those seen, 1, and the last, 0, whatever the model."""
    keyword: float
    """Its score by words as a part of the best; where that did not reach it, at most that of the last."""
    words: float
    """The same, tamed, times the share of the question's words that it has, or what links have if that is
    more; times how much so many words tell."""
    covered: float
    """That share; a rare word counts more."""
    rare: float
    """What of that share are words that hardly any passage has: where passages are nearly alike, as the days
    of a diary are, one that has such a word is meant, though others may be nearer by a little."""
    literal: float
    """The same for a question of a single word, and nothing for others: who types one word means it.

    So too for what is typed as one word, as `v1.20` is, where the passage holds it so; and for a few
    words that stand there one after the other, divided by the number of documents that hold them.
    """
    title: float
    """The share that stands in its title."""
    path: float
    """The share of them in its document's path, where all count the same: folders are named as well."""
    links: float
    """How many documents its own is linked with, by doublings."""


class Bearing(NamedTuple):
    """What a question and its candidates say about whether there is an answer."""

    best: float
    """The highest cosine, ten times."""
    few: float
    """The mean of the five highest, ten times."""
    spread: float
    """From the highest to the last of those seen, ten times."""
    worded: float
    """The mean of those of the three best by words, ten times: where words and meaning agree, there is an answer."""
    covered: float
    """The largest share of the question's words in one passage, or in its path."""
    lead: float
    """How much more of them a passage or two have than all others: hardly by accident, near or not."""
    near: float
    """Their mean share in the three passages nearest in meaning, else in the three best by words."""
    length: float
    """How many words the question has, by their logarithm; a page of them is no surer of an answer."""
    size: float
    """How many passages pass the filters, likewise: of many one is near to anything."""


def gathered(lists: Mapping[str, Hits], query: Query, tools: Tools) -> dict[str, Evidence]:
    """Of every passage in these lists."""
    chunks = {hit.chunk.id: hit.chunk for hits in lists.values() for hit in hits}
    cosines = {hit.chunk.id: hit.score for hit in lists.get("semantic", ())}
    worded = {hit.chunk.id: hit.score for hit in lists.get("keyword", ())}
    linked = {hit.chunk.id: hit.score for hit in lists.get("graph", ())}
    nearest, farthest = _ends(cosines)
    most, last = _ends(worded)
    most = max(most, _LEAST_SCORE)
    by_words = "keyword" in lists
    spelled = shares_of(query, tools, list(chunks)) if by_words else {}
    covered = in_any_spelling(spelled.values())
    owners = {chunk.document for chunk in chunks.values()} if by_words else ()
    degrees = tools.snapshot.links.degrees(list(owners), _HUB)
    telling = min(length(query.text), _LONG) ** _TELLING
    asked = {form for text in spelled for form in forms(text)}
    held = [as_typed(text, chunks, shares) for text, shares in spelled.items()]
    found, unseen = {}, unembedded(lists, query)
    for id, chunk in chunks.items():
        share, cosine = covered.get(id, NOTHING), cosines.get(id, farthest)
        if id in unseen:  # then it may be as near as its words tell
            cosine += (nearest - farthest) * share.anywhere
        beyond = min(last / most, share.anywhere) if len(worded) >= SEEN else 0.0
        keyword = max(0.0, worded[id]) / most if id in worded else beyond
        found[id] = Evidence(
            meaning=10 * cosine,
            nearness=(cosine - farthest) / max(nearest - farthest, _LEAST_SPREAD),
            keyword=keyword,
            words=telling * max(keyword**_TAMED * share.anywhere, linked.get(id, 0.0)),
            covered=share.anywhere,
            rare=share.rare,
            literal=max((each.get(id, 0.0) for each in held), default=0.0),
            title=share.title,
            path=share_in_path(chunk.path, asked),
            links=log2(1 + degrees.get(chunk.document, 0)),
        )
    return found


def unembedded(lists: Mapping[str, Hits], query: Query) -> set[str]:
    """Passages that have no vector yet; of a hypothesis nobody can tell, its list is not completed."""
    near = lists.get("semantic")
    if not near or query.hypothesis:
        return set()
    return {hit.chunk.id for hits in lists.values() for hit in hits} - {
        hit.chunk.id for hit in near
    }


def told_by_words(lists: Mapping[str, Hits], found: Mapping[str, Evidence], query: Query) -> bool:
    """Whether what has most of the words has no vector yet: then cosines do not tell of an answer."""
    unseen = unembedded(lists, query)
    most = max((each.covered for id, each in found.items() if id not in unseen), default=0.0)
    return any(found[id].covered > most for id in unseen)


def foreign(query: Query) -> bool:
    """Whether most of its letters are others than those of the questions that all was learned from.

    A model that was taught English puts all Chinese close together, an answer or not.
    """
    text = query.hypothesis or query.text
    if text.isascii():
        return False
    return 2 * len(_OTHER_LETTERS.findall(text)) > sum(map(str.isalpha, text))


def bearing(
    lists: Mapping[str, Hits], found: Mapping[str, Evidence], query: Query, tools: Tools
) -> Bearing:
    """Of the best of each list."""
    near = [*(hit.chunk.id for hit in lists.get("semantic", ())), *sorted(unembedded(lists, query))]
    nearest = sorted((found[id] for id in near), key=lambda each: -each.meaning)[:SEEN]
    worded = [found[hit.chunk.id] for hit in lists.get("keyword", ())[:SEEN]]
    best = {hit.chunk.id for hits in lists.values() for hit in hits[:SEEN]}
    cosines = [each.meaning for each in nearest] or [0.0]
    # A page about pancakes in a folder of recipes need not say that it is one; the folder alone is half
    # of `recipe for sushi` too, and tells nothing.
    seen = [max(each.covered, 2 * each.path - 1) for each in (*nearest, *worded)]
    literal = any(each.literal for each in (*nearest, *worded))
    return Bearing(
        best=cosines[0],
        few=fmean(cosines[:5]),
        spread=cosines[0] - cosines[-1],
        worded=fmean(each.meaning for each in worded[:3]) if worded else cosines[-1],
        covered=max(seen, default=0.0),
        lead=_lead([found[id].covered for id in best]),
        near=fmean(seen[:3]) if seen else 0.0,
        length=log(1 + (1 if literal else min(length(query.text), _LONG))),
        size=log(1 + _passages(query, tools)),
    )


def _passages(query: Query, tools: Tools) -> int:
    """Those that are searched: within a filter a library answers as one that has no more would."""
    every = tools.snapshot.status.counts("").chunks
    return (
        min(every, max(_FEWEST, tools.snapshot.metadata.count_matching(query.filters)))
        if query.filters
        else every
    )


def _lead(shares: Iterable[float]) -> float:
    """From the largest to the first that is not among the leading."""
    ordered = sorted(shares, reverse=True)
    return ordered[0] - (ordered[_LEADING] if len(ordered) > _LEADING else 0.0) if ordered else 0.0


def _ends(scores: Mapping[str, float]) -> tuple[float, float]:
    """The best score, and the last of those seen."""
    seen = list(scores.values())[:SEEN] or [0.0]
    return seen[0], seen[-1]
