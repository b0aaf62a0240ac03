"""Score candidates with a linear model and calibrated probabilities, and give any ranking of them these probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from marklight.answer import Hit, Hits, Why, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query
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
    merge_lists,
    needs_lexical_weights,
    passage_features,
    query_features,
    with_missing_cosines,
)

NON_LATIN = "The model and its scores were calibrated in English; for other scripts, rely on matching words more than on scores"
TIE_BREAK = 1e-9
"""Difference between the scores of passages that share a probability, so that their order stays."""
RETRIEVER_OF = {
    "cosine": "semantic",
    "standard_cosine": "semantic",
    "lexical": "keyword",
    "relative_bm25": "keyword",
}
"""Features that come from a retriever whose weight users can change."""

WeightsFor = Callable[[str, str], FusionWeights | None]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of a query by id, with their features, sums of weighted features and probabilities."""

    hits: Mapping[str, Hit]
    features: Mapping[str, PassageFeatures]
    sums: Mapping[str, float]
    weights: FusionWeights
    probabilities: Probabilities
    query: QueryFeatures
    is_certain: bool

    def ranked(self, factors: Mapping[str, float]) -> Hits:
        """Return the candidates by their sums, with factors on the weights of retrievers."""
        if all(factor == 1.0 for factor in factors.values()):
            return self.with_probabilities()
        sums = {id: self._sum(one, factors) for id, one in self.features.items()}
        order = sorted(sums, key=lambda each: (-sums[each], each))
        return self.in_order(order)

    def _sum(self, features: PassageFeatures, factors: Mapping[str, float]) -> float:
        weighted = self.weights.weighted(features)
        return sum(
            factors.get(RETRIEVER_OF.get(name, ""), 1.0) * one for name, one in weighted.items()
        )

    def with_probabilities(self, ranking: Mapping[str, Hit] | None = None) -> Hits:
        """Return the candidates with their probabilities as scores, best first; the trace of a ranking precedes theirs."""
        trace = Trace(self.weights, self.query, self.probabilities, self.is_certain)
        hits = {**self.hits, **ranking} if ranking else self.hits
        stage = "probability" if ranking else "learned"
        return best_first(
            Hit(
                hit.chunk,
                self.probabilities.score(id),
                (*hit.why, *trace.entries(id, self.features[id], self.sums[id], stage)),
                answer_probability=self.probabilities.answer,
                rank_sum=hit.rank_sum,
                coverage=max(self.features[id].coverage, self.features[id].exact_phrase),
            )
            for id, hit in hits.items()
        )

    def in_order(self, ids: Sequence[str], ranking: Mapping[str, Hit] | None = None) -> Hits:
        """Return the candidates in the order of another ranking, with probabilities that decrease along it.

        Isotonic regression by pooling adjacent violators (Ayer et al., 1955): where the order contradicts the
        probabilities, neighbours share their mean, so that the total, and with it the calibration, stays.
        """
        scored = {hit.chunk.id: hit for hit in self.with_probabilities(ranking)}
        known = [id for id in ids if id in scored]
        blocks: list[tuple[float, int]] = []
        for id in known:
            total, count = scored[id].score, 1
            while blocks and blocks[-1][0] / blocks[-1][1] < total / count:
                before, size = blocks.pop()
                total, count = total + before, count + size
            blocks.append((total, count))
        hits, rest = [], iter(known)
        for total, count in blocks:
            for position in range(count):
                hit = scored[next(rest)]
                score = max(0.0, total / count - TIE_BREAK * position)
                if count > 1:
                    formula = "max(0, total / count - tie_break × position)"
                    inputs = {
                        "total": total,
                        "count": count,
                        "tie_break": TIE_BREAK,
                        "position": position,
                    }
                    hit = hit.rescored(score, "shared", formula, **inputs)
                hits.append(hit)
        return tuple(hits)


def score_candidates(
    lists: Mapping[str, Hits], query: Query, tools: Tools, find_weights: WeightsFor = weights_for
) -> Candidates | None:
    """Return the candidates with their probabilities; None if there are no candidates."""
    mode = ""
    has_cosines = bool(lists.get("semantic"))
    if (
        has_cosines
    ):  # also without keyword candidates: that no passage has a term is a strong feature
        mode = "hybrid" if "keyword" in lists else "semantic"
    elif lists.get("keyword"):
        mode = "keyword"
    elif lists.get("code"):
        mode = "code"
    model = tools.embedder.fingerprint if tools.embedder and has_cosines else ""
    weights = find_weights(mode, model) if mode else None
    if weights is None:
        return None
    for_any_model = find_weights(mode, ANY_MODEL) or weights
    non_latin = has_cosines and weights is not for_any_model and is_non_latin(query)
    if non_latin:
        tools.notify(NON_LATIN)
    without_terms = non_latin and mode == "hybrid" and not lists["keyword"]
    lists = with_missing_cosines(lists, query, tools)
    features = passage_features(lists, query, tools)
    if needs_lexical_weights(lists, features, query) or without_terms:
        weights = for_any_model
    sums = {id: sum(weights.weighted(one).values()) for id, one in features.items()}
    hits = merge_lists(lists.values())
    of_query = query_features(lists, features, query, tools)
    is_certain = filters_cover_query(query)
    probabilities = weights.probabilities(sums, _rivals(lists, hits, sums), of_query, is_certain)
    return Candidates(hits, features, sums, weights, probabilities, of_query, is_certain)


def with_probabilities(
    ranking: Hits, lists: Mapping[str, Hits], query: Query, tools: Tools
) -> Hits:
    """Return a ranking of any fusion in its order, with calibrated probabilities in place of its scores."""
    candidates = score_candidates(lists, query, tools)
    if candidates is None:
        return ranking
    by_id = {hit.chunk.id: hit for hit in ranking}
    return candidates.in_order([hit.chunk.id for hit in ranking], by_id)


def _rivals(
    lists: Mapping[str, Hits], hits: Mapping[str, Hit], sums: Mapping[str, float]
) -> list[str]:
    """Return the best passage of each document in the pool, best first, and exact duplicates once."""
    pool = {hit.chunk.id for candidates in lists.values() for hit in candidates[:POOL_SIZE]}
    best: dict[DocumentId, str] = {}
    for id in sorted(pool, key=lambda each: (-sums[each], each)):
        best.setdefault(hits[id].chunk.document, id)
    ids = list(best.values())
    return [ids[index] for index in distinct([hits[id].chunk.own_text for id in ids])]


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
            known = {**query._asdict(), "margin": pool.margin}
            entry = _linear("answer", probabilities.answer, weights.answer_curve(query), known)
            self._answer = entry._replace(formula=f"sigmoid({entry.formula})")

    def entries(
        self, id: str, features: PassageFeatures, weighted_sum: float, stage: str
    ) -> Iterator[Why]:
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
            stage,
            answer * relevance,
            "answer × relevance",
            {"answer": answer, "relevance": relevance},
        )


def _linear(stage: str, value: float, curve: LogisticCurve, features: Mapping[str, float]) -> Why:
    """Return an entry for the logit of a curve, without features that are not known yet."""
    known = {name: features[name] for name in curve.weights if name in features}
    weights = {name: curve.weights[name] for name in known}
    return Why(stage, value, LogisticCurve(curve.bias, weights).formula(), known)
