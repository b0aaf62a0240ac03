"""Fuse lists with a linear model over features and calibrated probabilities; weights learned from judged queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from marklight.answer import Hit, Hits, Query, Why, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.search.calibration import (
    ANY_MODEL,
    FusionWeights,
    LogisticCurve,
    Probabilities,
    weights_for,
)
from marklight.search.duplicates import distinct
from marklight.search.features import (
    POOL_SIZE,
    PassageFeatures,
    QueryFeatures,
    filters_cover_query,
    is_non_latin,
    needs_lexical_weights,
    passage_features,
    query_features,
)
from marklight.search.score_normalization import (
    best_scores,
    merge_lists,
    normalized_scores,
    weighted_sums,
    with_missing_cosines,
)

NON_LATIN = "The model and its scores were calibrated in English; for other scripts, rely on matching words more than on scores"


@dataclass(frozen=True, slots=True)
class Learned:
    """Weighted features rank passages; a softmax and logistic curves turn the sums into probabilities.

    The score is the probability that the library contains an answer, times the probability that this
    passage is relevant if it does. It is calibrated: of results with 0.8, about eight of ten are relevant.
    Where no weights were learned, as for code, scores are divided by the best.
    """

    def __call__(self, lists: Mapping[str, Hits], query: Query, tools: Tools) -> Hits:
        return fuse_with(weights_for, lists, query, tools)


def fuse_with(
    weights_for: Callable[[str, str], FusionWeights | None],
    lists: Mapping[str, Hits],
    query: Query,
    tools: Tools,
) -> Hits:
    """Fuse with the weights that a function returns for a mode and a model."""
    has_cosines = bool(lists.get("semantic"))
    mode = "semantic" if has_cosines else "keyword"
    if has_cosines and "keyword" in lists:
        mode = "hybrid"  # even without keyword candidates: that no passage has a term is a strong feature
    model = tools.embedder.fingerprint if tools.embedder and has_cosines else ""
    weights = weights_for(mode, model)
    if weights is None or not (has_cosines or lists.get("keyword")):
        return _by_best_score(lists)
    for_any_model = weights_for(mode, ANY_MODEL) or weights
    non_latin = has_cosines and weights is not for_any_model and is_non_latin(query)
    if non_latin:
        tools.notify(NON_LATIN)
    without_terms = non_latin and mode == "hybrid" and not lists["keyword"]
    lists = with_missing_cosines(lists, query, tools)
    features = passage_features(lists, query, tools)
    if needs_lexical_weights(lists, features, query) or without_terms:
        weights = for_any_model
    return _by_probability(lists, features, query, tools, weights)


def _by_probability(
    lists: Mapping[str, Hits],
    features: Mapping[str, PassageFeatures],
    query: Query,
    tools: Tools,
    weights: FusionWeights,
) -> Hits:
    sums = {id: sum(weights.weighted(one).values()) for id, one in features.items()}
    hits = merge_lists(lists.values())
    of_query = query_features(lists, features, query, tools)
    is_certain = filters_cover_query(query)
    probabilities = weights.probabilities(sums, _rivals(lists, hits, sums), of_query, is_certain)
    trace = Trace(weights, of_query, probabilities, is_certain)
    return best_first(
        Hit(
            hit.chunk,
            probabilities.score(id),
            (*hit.why, *trace.entries(id, features[id], sums[id])),
            answer_probability=probabilities.answer,
            contains_query=bool(weights.features.get("exact_phrase") and features[id].exact_phrase),
        )
        for id, hit in hits.items()
    )


def _rivals(
    lists: Mapping[str, Hits], hits: Mapping[str, Hit], sums: Mapping[str, float]
) -> list[str]:
    """Return the best passage of each document in the pool, best first, and exact duplicates once."""
    pool = {hit.chunk.id for candidates in lists.values() for hit in candidates[:POOL_SIZE]}
    best: dict[DocumentId, str] = {}
    for id in sorted(pool, key=lambda each: (-sums[each], each)):
        best.setdefault(hits[id].chunk.document, id)
    ids = list(best.values())
    return [ids[index] for index in distinct([hits[id].chunk.text for id in ids])]


class Trace:
    """Trace entries from which the score of each passage can be recomputed."""

    def __init__(
        self,
        weights: FusionWeights,
        query: QueryFeatures,
        probabilities: Probabilities,
        is_certain: bool,
    ) -> None:
        self._weights, self._relevance = weights.features, probabilities.relevance
        self._pool = pool = probabilities.softmax
        curve = probabilities.relevance_curve
        self._share = {"base": curve.bias, "slope": curve.weights["log_share"]}
        self._base = _linear(
            "relevance_base", curve.bias, weights.relevance, {**query._asdict(), "gap": pool.gap}
        )
        self._answer = Why("answer", probabilities.answer)
        if not is_certain:
            entry = _linear(
                "answer", probabilities.answer, weights.answer_curve(query), query._asdict()
            )
            self._answer = entry._replace(formula=f"sigmoid({entry.formula})")

    def entries(self, id: str, features: PassageFeatures, weighted_sum: float) -> Iterator[Why]:
        """Yield the weighted features, log share, relevance, answer probability and score."""
        for name, weight in self._weights.items():
            if value := getattr(features, name):
                inputs = {"feature": value, "weight": weight}
                yield Why(name, weight * value, "feature × weight", inputs)
        pool, relevance, answer = self._pool, self._relevance[id], self._answer.value
        log_share = pool.log_share(weighted_sum)
        yield Why(
            "log_share",
            log_share,
            "(sum - best) / temperature - log_total",
            {
                "sum": weighted_sum,
                "best": pool.best,
                "temperature": pool.temperature,
                "log_total": pool.log_total,
            },
        )
        yield self._base
        yield Why(
            "relevance",
            relevance,
            "sigmoid(base + slope × log_share)",
            {**self._share, "log_share": log_share},
        )
        yield self._answer
        yield Why(
            "learned",
            answer * relevance,
            "answer × relevance",
            {"answer": answer, "relevance": relevance},
        )


def _linear(stage: str, value: float, curve: LogisticCurve, features: Mapping[str, float]) -> Why:
    """Return an entry for the logit of a curve, without features that are not known yet."""
    known = {name: features[name] for name in curve.weights if name in features}
    weights = {name: curve.weights[name] for name in known}
    return Why(stage, value, LogisticCurve(curve.bias, weights).formula(), known)


def _by_best_score(lists: Mapping[str, Hits]) -> Hits:
    """Average the scores of the lists, each divided by its best."""
    scores, best = normalized_scores(lists), best_scores(lists)
    sums = weighted_sums(scores, dict.fromkeys(scores, 1 / max(1, len(scores))))
    terms = " + ".join(f"{name} / {divisor:.6g}" for name, divisor in best.items())
    formula = f"min(1, ({terms}) / {len(best)})"
    raw = {name: {hit.chunk.id: hit.score for hit in lists[name]} for name in best}
    return best_first(
        hit.rescored(
            min(1.0, sums[id]),
            "learned",
            formula,
            **{name: max(0.0, raw[name].get(id, 0.0)) for name in best},
        )
        for id, hit in merge_lists(lists.values()).items()
    )
