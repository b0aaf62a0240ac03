"""Calibrated probabilities: a linear model over features ranks candidates, a softmax and logistic curves turn its sums into probabilities.

Any other ranking of the candidates gets these probabilities too, in its own order. Hits whose file no longer exists, improbable hits,
and all hits where the answer probability is low (abstention) are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import exp, log
from typing import Annotated, Any, NamedTuple

from marklight.answer import Hit, Hits, Why, best_first
from marklight.model import DocumentId
from marklight.ports import Tools
from marklight.query import Query
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
from marklight.settings import Within
from marklight.text import ENGLISH

SINGLE_TERM = log(1 + 1)
"""The feature `query_length` of a query of one term."""
ANY_MODEL = "any"
"""Key of the weights for embedding models without weights of their own: they use the order of cosines, not their size."""
MAX_LOGIT = 700.0
"""exp() overflows above 709."""


@dataclass(frozen=True, slots=True)
class LogisticCurve:
    """Logistic regression: sigmoid(bias + weights · features)."""

    bias: float
    weights: Mapping[str, float]

    def __call__(self, features: Mapping[str, float]) -> float:
        logit = self.bias + sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + exp(-max(-MAX_LOGIT, min(MAX_LOGIT, logit))))

    def given(self, known: Mapping[str, float]) -> LogisticCurve:
        """Return the curve over the other features, with the known ones added to the bias."""
        rest = {name: weight for name, weight in self.weights.items() if name not in known}
        fixed = (weight * known[name] for name, weight in self.weights.items() if name in known)
        return LogisticCurve(self.bias + sum(fixed), rest)

    def formula(self) -> str:
        """Return the logit as a formula over the features: `-1.5 + 0.25 × gap`."""
        terms = (
            f" {'-' if weight < 0 else '+'} {abs(weight):.6g} × {name}"
            for name, weight in self.weights.items()
        )
        return f"{self.bias:.6g}{''.join(terms)}"


class Softmax(NamedTuple):
    """The softmax over the best passages of the pool, one per document."""

    temperature: float
    best: float
    """The highest sum of weighted features."""
    gap: float
    """The highest sum minus the lowest."""
    margin: float
    """The highest sum minus the second highest, of another document; 0 if there is no other."""
    log_total: float
    """log(Σ exp((sum - best) / temperature)) over the pool."""

    def log_share(self, weighted_sum: float) -> float:
        """Return the logarithm of a passage's share of the total."""
        return (weighted_sum - self.best) / self.temperature - self.log_total


def softmax(sums: Sequence[float], temperature: float) -> Softmax:
    """Return the softmax over these sums."""
    best, *others = sorted(sums, reverse=True)
    total = sum(exp((one - best) / temperature) for one in sums)
    margin = best - others[0] if others else 0.0
    return Softmax(temperature, best, best - min(sums), margin, log(total))


class Probabilities(NamedTuple):
    """Answer probability of a query and relevance probability of each passage, with their parts."""

    answer: float
    softmax: Softmax
    relevance_curve: LogisticCurve
    """The curve over `log_share`, with all features of the query in its bias."""
    relevance: Mapping[str, float]
    """By passage id: the probability that it is relevant if the library contains an answer."""

    def score(self, id: str) -> float:
        """Return the probability that a passage answers the query."""
        return self.answer * self.relevance[id]


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """Weights learned offline for one search mode and one embedding model."""

    features: Mapping[str, float]
    """Weights of passage features."""
    temperature: float
    """Softmax temperature: a passage is e times as likely as another whose sum is lower by this much."""
    answer: LogisticCurve
    """Answer probability, over query features and the margin of the first document."""
    single_term_answer: LogisticCurve
    """Answer probability of a query of one term: cosines are lower, and the term either occurs or not."""
    relevance: LogisticCurve
    """Probability that a passage is relevant if there is an answer, over `log_share`, `gap` and query features."""

    def weighted(self, features: PassageFeatures) -> dict[str, float]:
        """Return each feature times its weight."""
        return {name: weight * getattr(features, name) for name, weight in self.features.items()}

    def answer_curve(self, query: QueryFeatures) -> LogisticCurve:
        """Return the curve of the answer probability for a query of this length."""
        return self.single_term_answer if query.query_length <= SINGLE_TERM else self.answer

    def answer_probability(self, query: QueryFeatures, margin: float) -> float:
        """Return the probability that the library contains an answer."""
        return self.answer_curve(query)({**query._asdict(), "margin": margin})

    def probabilities(
        self,
        sums: Mapping[str, float],
        rivals: Sequence[str],
        query: QueryFeatures,
        certain: bool = False,
    ) -> Probabilities:
        """Return the answer probability and the relevance of each passage, increasing with its sum.

        `rivals` are the best passages of the best documents, best first: passages of one document do not
        compete. `certain` sets the answer probability to 1.
        """
        pool = softmax([sums[id] for id in rivals[:POOL_SIZE]], self.temperature)
        answer = 1.0 if certain else self.answer_probability(query, pool.margin)
        curve = self.relevance.given({**query._asdict(), "gap": pool.gap})
        relevance = {id: curve({"log_share": pool.log_share(one)}) for id, one in sums.items()}
        return Probabilities(answer, pool, curve, relevance)


def weights_for(mode: str, model: str) -> FusionWeights | None:
    """Return the weights for a mode and a model's fingerprint, else for any model; None if the mode has none."""
    by_model = all_weights().get(mode, {})
    return by_model.get(model) or by_model.get(ANY_MODEL)


def is_calibrated(mode: str, model: str) -> bool:
    """Return True if scores with this model were calibrated on judged queries."""
    return model in all_weights().get(mode, {})


@cache
def all_weights() -> Mapping[str, Mapping[str, FusionWeights]]:
    """Read `fusion_weights.json`: weights by mode and by the model's fingerprint."""
    text = files("marklight.search").joinpath("fusion_weights.json").read_text("utf-8")
    return {
        mode: {model: parse_weights(values) for model, values in by_model.items()}
        for mode, by_model in json.loads(text)["modes"].items()
    }


def parse_weights(values: Mapping[str, Any]) -> FusionWeights:
    """Build weights from their JSON."""
    curves = {
        name: LogisticCurve(values[name]["bias"], values[name]["weights"])
        for name in ("answer", "single_term_answer", "relevance")
    }
    return FusionWeights(values["features"], values["temperature"], **curves)


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
        ordered = [id for id in ids if id in scored]
        blocks: list[tuple[float, int]] = []
        for id in ordered:
            total, count = scored[id].score, 1
            while blocks and blocks[-1][0] / blocks[-1][1] < total / count:
                before, size = blocks.pop()
                total, count = total + before, count + size
            blocks.append((total, count))
        hits, rest = [], iter(ordered)
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
    available = {name: features[name] for name in curve.weights if name in features}
    weights = {name: curve.weights[name] for name in available}
    return Why(stage, value, LogisticCurve(curve.bias, weights).formula(), available)


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Keep hits whose file exists, and subtract the probabilities of the others from the answer probability."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        # All hits, whatever the limit: a later stage may move any of them to the front.
        documents = {hit.chunk.document for hit in hits}
        missing = {document for document in documents if not tools.exists(document)}
        if not missing:
            return hits
        best: dict[DocumentId, float] = {}
        for hit in hits:
            if (id := hit.chunk.document) in missing:
                best[id] = max(best.get(id, 0.0), hit.score)
        lost = sum(best.values())
        return tuple(_reduced(hit, lost) for hit in hits if hit.chunk.document not in missing)


def _reduced(hit: Hit, lost: float) -> Hit:
    if hit.answer_probability is None:
        return hit
    return replace(hit, answer_probability=max(0.0, hit.answer_probability - lost))


UNCALIBRATED = (
    "Scores are not calibrated for the language of this query, so unlikely results are shown too"
)
MOST = 0.5
"""Term coverage above which a passage has most of the query. For 14 broad queries about generated notes, 80 instead of 40
right documents are among ten results with it (`python -m benchmarks.everyday vault`)."""

TAIL = 0.005
"""Results that score lower are dropped; where the best score is less than twice this, those below half the best score. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Return nothing where the answer probability is low, else all hits above a small score.

    Passages with most of the query's terms are kept whatever their score: a page with the name of a person as its title
    leaves little probability to the other notes that mention that person.

    With the threshold, on sets that the weights were not learned from, 11 of 100 queries without an answer
    get results, most of them with low scores, and 1 of 1,000 with an answer gets none (docs/quality.md). Results are
    always returned for a query with a quoted phrase or with filters only.
    """

    threshold: Annotated[float, Within(0, 1)] = 0.3
    """If the answer probability is lower, no results are returned. `--min-confidence` replaces this check with a minimum score per result."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.min_confidence is not None:
            return tuple(hit for hit in hits if hit.score >= query.min_confidence)
        # A quoted phrase is a condition: passages that contain it are wanted at any distance in meaning.
        if query.filters.phrases or filters_cover_query(query):
            return hits
        if all(answer_probability(hit) < self.threshold for hit in hits):
            if not hits or _is_calibrated(query, tools):
                return ()
            tools.notify(UNCALIBRATED)
        lowest = min(TAIL, max(hit.score for hit in hits) / 2)
        return tuple(hit for hit in hits if hit.score >= lowest or hit.coverage > MOST)


def _is_calibrated(query: Query, tools: Tools) -> bool:
    """Return false for a query in another language than English that documents or the model know, or than all documents.

    Probabilities were learned from English queries. With their threshold half of 360 queries in six languages about
    English pages got no results, while the right page was among the best ten for 85 % (benchmarks/languages.py).
    """
    language = query.languages[0]
    if language == ENGLISH and tools.multilingual is None:
        return True
    of_documents = tools.snapshot.metadata.languages()
    if language == ENGLISH:
        return not of_documents or ENGLISH in of_documents
    is_known = tools.embedder is not None and language in tools.embedder.languages
    return not (is_known or language in of_documents)


def answer_probability(hit: Hit) -> float:
    """Return the probability of an answer, which is at least the hit's own score."""
    return max(hit.score, hit.answer_probability or hit.score)
