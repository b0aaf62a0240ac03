"""Fuse lists by all the evidence there is, with weights learned from questions whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from marklight.answer import Hit, Hits, Query, Why, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.search.evidence import SEEN, Evidence, bearing, foreign, gathered, told_by_words
from marklight.search.filters import filters_cover_query
from marklight.search.likelihood import ANY, Weights, weights_for
from marklight.search.likeness import distinct
from marklight.search.shares import completed, merged, on_one_scale, summed

STRANGE = "the model and its scores were measured in English; in other letters go by the words, less by the scores"


@dataclass(frozen=True, slots=True)
class Learned:
    """A sum of evidence puts passages in order; two curves make a probability of it.

    The score is the probability that the library answers the question at all, times the probability
    that this passage does if it does. It means the same for every question: of results with 0.8, about
    eight of ten are relevant. Where nothing was learned, as for code, scores are parts of the best.
    """

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        return fused(lists, query, tools, weights_for)


def fused(
    lists: Mapping[str, Hits],
    query: Query,
    tools: Tools,
    weights_for: Callable[[str, str], Weights | None],
) -> Hits:
    """By the weights for a mode and a model, wherever they were learned."""
    by_meaning = bool(lists.get("semantic"))
    mode = "semantic" if by_meaning else "keyword"
    if by_meaning and "keyword" in lists:
        mode = "hybrid"  # also where no passage has any of the words: that tells much
    model = tools.embedder.fingerprint if tools.embedder and by_meaning else ""
    weights = weights_for(mode, model)
    if weights is None or not (by_meaning or lists.get("keyword")):
        return _by_best(lists)
    for_any = weights_for(mode, ANY) or weights
    strange = by_meaning and weights is not for_any and foreign(query)
    unworded = strange and mode == "hybrid" and not lists["keyword"]
    if strange:
        tools.notify(STRANGE)
    lists = completed(lists, query, tools)
    found = gathered(lists, query, tools)
    if told_by_words(lists, found, query) or unworded:
        weights = for_any
    return _weighed(lists, found, query, tools, weights)


def _weighed(
    lists: Mapping[str, Hits],
    found: Mapping[str, Evidence],
    query: Query,
    tools: Tools,
    weights: Weights,
) -> Hits:
    parts = {id: weights.parts(one) for id, one in found.items()}
    sums = {id: sum(each.values()) for id, each in parts.items()}
    hits = merged(lists.values())
    answer, likely = weights.likelihoods(
        sums,
        _rivals(lists, hits, sums),
        bearing(lists, found, query, tools),
        filters_cover_query(query),
    )
    # In keyword search the evidence is that score itself, which its retriever told already.
    said = [name for name in weights.evidence if name not in lists]
    return best_first(
        Hit(hit.chunk, likely[id], (*hit.why, *_told(parts[id], said, answer, likely[id])))
        for id, hit in hits.items()
    )


def _rivals(
    lists: Mapping[str, Hits], hits: Mapping[str, Hit], sums: Mapping[str, float]
) -> list[str]:
    """The best passage of each document, best first, and of copies in several documents one.

    Of those among the best of a list: a score must not hang on how many results are wanted.
    """
    seen = {hit.chunk.id for each in lists.values() for hit in each[:SEEN]}
    rivals: dict[DocumentId, str] = {}
    for id in sorted(seen, key=lambda each: (-sums[each], each)):
        rivals.setdefault(hits[id].chunk.document, id)
    best = list(rivals.values())
    return [best[at] for at in distinct([hits[id].chunk.text for id in best])]


def _told(
    parts: Mapping[str, float], names: Sequence[str], answer: float, likely: float
) -> Iterator[Why]:
    for name in names:
        if parts[name]:
            yield Why(name, parts[name])
    yield Why("answer", answer)
    yield Why("learned", likely)


def _by_best(lists: Mapping[str, Hits]) -> Hits:
    scores = on_one_scale(lists)
    best = summed(scores, dict.fromkeys(scores, 1 / max(1, len(scores))))
    return best_first(
        hit.rescored(min(1.0, best[id]), by="learned") for id, hit in merged(lists.values()).items()
    )
