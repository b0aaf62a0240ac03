"""Normalize, weight and merge scores: what all fusions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from marklight.answer import Hit, Hits, Why, best_first
from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.query import Query

RETRIEVERS = ("keyword", "semantic", "graph", "code")
"""Retrievers that have a weight in the fusions by scores."""
NORMALIZED = ("semantic", "graph")
"""Retrievers whose scores are in 0 to 1 already: cosines, and shares of the best keyword score."""


def retriever_weights(stage: object) -> dict[str, float]:
    """Return the weights of a fusion, by retriever."""
    return {name: getattr(stage, name) for name in RETRIEVERS}


def check_weights(table: str, weights: Mapping[str, float]) -> None:
    """Raise `SettingsError` if all weights are 0."""
    if not any(weights.values()):
        raise SettingsError(f"{table} has no weight above 0")


def normalized_weights(
    weights: Mapping[str, float], *factors: Mapping[str, float], total: float
) -> dict[str, float]:
    """Return the weights times all factors of their retriever, scaled to this total."""
    products = {
        name: weight * prod(factor.get(name, 1.0) for factor in factors)
        for name, weight in weights.items()
    }
    whole = sum(products.values())
    if whole <= 0:  # a retriever without weight that is the only one with candidates still counts
        return dict.fromkeys(products, total / len(products)) if products else {}
    return {name: product * total / whole for name, product in products.items()}


def best_scores(lists: Mapping[str, Hits]) -> dict[str, float]:
    """Return the divisor of each list's scores: the best score, or 1 where they are normalized already."""
    return {
        name: 1.0 if name in NORMALIZED else max(hit.score for hit in hits) or 1.0
        for name, hits in lists.items()
        if hits
    }


def normalized_scores(lists: Mapping[str, Hits]) -> dict[str, dict[str, float]]:
    """Return scores in 0 to 1 by list and passage id; empty lists are left out."""
    return {
        name: {hit.chunk.id: min(1.0, max(0.0, hit.score) / best) for hit in lists[name]}
        for name, best in best_scores(lists).items()
    }


def with_missing_cosines(
    lists: Mapping[str, Hits], query: Query, tools: Tools
) -> Mapping[str, Hits]:
    """Return the lists, with cosines for the candidates that vector search did not return.

    Without them a passage that contains the query's very words would count as unrelated in meaning.
    """
    near = lists.get("semantic", ())
    if not near or tools.embedder is None or query.hypothesis:
        return lists
    known = {hit.chunk.id for hit in near}
    others = {
        hit.chunk.id: hit.chunk
        for name, hits in lists.items()
        if name != "semantic"
        for hit in hits
        if hit.chunk.id not in known
    }
    embedding = tools.embedder.embed_query(query.text)
    vectors = tools.snapshot.vectors.get(tools.embedder.fingerprint, list(others)) if others else {}
    # Vector search may have used an expanded query, by which none of these was as near as its last.
    lowest = near[-1].score
    cosines = {id: min(lowest, float(vector @ embedding)) for id, vector in vectors.items()}
    more = (Hit(others[id], cosine, (Why("semantic", cosine),)) for id, cosine in cosines.items())
    return {**lists, "semantic": (*near, *best_first(more))}


def weighted_sums(
    scores: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return the weighted sum of each passage's scores, by passage id."""
    sums: dict[str, float] = {}
    for name, by_id in scores.items():
        for id, score in by_id.items():
            sums[id] = sums.get(id, 0.0) + weights[name] * score
    return sums


def sum_formula(names: Iterable[str], weights: Mapping[str, float]) -> str:
    """Return a weighted sum over these names as a formula."""
    return " + ".join(f"{weights[name]:.6g} × {name}" for name in names)


def inputs_by_passage(
    scores: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Return the scores of each passage by list, the other way round."""
    inputs: dict[str, dict[str, float]] = {}
    for name, by_id in scores.items():
        for id, score in by_id.items():
            inputs.setdefault(id, {})[name] = score
    return inputs


def merge_lists(lists: Iterable[Hits]) -> dict[str, Hit]:
    """Return every passage of several lists once, by id, with the traces of all its hits."""
    merged: dict[str, Hit] = {}
    for hits in lists:
        for hit in hits:
            known = merged.get(hit.chunk.id)
            merged[hit.chunk.id] = replace(hit, why=known.why + hit.why) if known else hit
    return merged
