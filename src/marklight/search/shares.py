"""What every fusion does: lists made one, how much each counts, and the scores of all on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from marklight.answer import Hit, Hits, Query, Why, best_first
from marklight.errors import SettingsError
from marklight.ports import Tools

RETRIEVERS = ("keyword", "semantic", "graph", "code")
"""Whose weights are fields of a fusion by scores."""


def weights_of(stage: object) -> dict[str, float]:
    """A fusion's own weights, by retriever."""
    return {name: getattr(stage, name) for name in RETRIEVERS}


def demand_weights(table: str, weights: Mapping[str, float]) -> None:
    """A weight is 0 to 1, and not all of them are 0."""
    for name, weight in weights.items():
        if not 0 <= weight <= 1:
            raise SettingsError(f"{table}.{name} must be 0 to 1, but is {weight}")
    if not any(weights.values()):
        raise SettingsError(f"{table} has no weight above 0")


def shares(
    weights: Mapping[str, float], *factors: Mapping[str, float], total: float
) -> dict[str, float]:
    """Weights times every factor that is given for their retriever, brought to this sum."""
    raised = {
        name: weight * prod(each.get(name, 1.0) for each in factors)
        for name, weight in weights.items()
    }
    whole = sum(raised.values())
    if whole <= 0:  # what has no weight and answers alone still answers
        return dict.fromkeys(raised, total / len(raised)) if raised else {}
    return {name: each * total / whole for name, each in raised.items()}


def on_one_scale(lists: Mapping[str, Hits]) -> dict[str, dict[str, float]]:
    """Scores in 0 to 1 by list and passage; a list that found nothing is left out.

    Cosines are so already, and so is what links lead to: a part of what the words that it was found
    by have of their best. All others are divided by the best.
    """
    best = {name: max(hit.score for hit in hits) for name, hits in lists.items() if hits}
    measure = {**best, "semantic": 1.0, "graph": 1.0}
    return {
        name: {
            hit.chunk.id: min(1.0, max(0.0, hit.score) / (measure[name] or 1.0))
            for hit in lists[name]
        }
        for name in best
    }


def completed(lists: Mapping[str, Hits], query: Query, tools: Tools) -> Mapping[str, Hits]:
    """The same lists, with cosines for what others found and search by meaning did not reach.

    Else a passage that holds the very word asked for would count as one that means nothing like it.
    """
    near = lists.get("semantic", ())
    if not near or tools.embedder is None or query.hypothesis:
        return lists
    reached = {hit.chunk.id for hit in near}
    others = {
        hit.chunk.id: hit.chunk
        for name, hits in lists.items()
        if name != "semantic"
        for hit in hits
        if hit.chunk.id not in reached
    }
    question = tools.embedder.embed_query(query.text)
    known = tools.snapshot.vectors.get(tools.embedder.fingerprint, list(others)) if others else {}
    # The question may have been expanded there: none of these was as near as the last of the list.
    least = near[-1].score
    cosines = {id: min(least, float(vector @ question)) for id, vector in known.items()}
    more = (Hit(others[id], cosine, (Why("semantic", cosine),)) for id, cosine in cosines.items())
    return {**lists, "semantic": (*near, *best_first(more))}


def summed(
    scores: Mapping[str, Mapping[str, float]], share: Mapping[str, float]
) -> dict[str, float]:
    """By passage, its score in each list times the share of that list."""
    sums: dict[str, float] = {}
    for name, each in scores.items():
        for id, score in each.items():
            sums[id] = sums.get(id, 0.0) + share[name] * score
    return sums


def merged(lists: Iterable[Hits]) -> dict[str, Hit]:
    """Every passage of several lists once, by id, remembering all that was said of it."""
    found: dict[str, Hit] = {}
    for hits in lists:
        for hit in hits:
            known = found.get(hit.chunk.id)
            found[hit.chunk.id] = replace(hit, why=known.why + hit.why) if known else hit
    return found
