"""Calibrated probabilities: a linear model over features ranks candidates, a softmax and logistic curves turn its sums into probabilities.

Any other ranking of the candidates gets these probabilities too, in its own order. Hits whose file no longer exists, improbable hits,
and all hits where the answer probability is low (abstention) are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from math import exp, log
from operator import neg
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from marklight.answer import MOST, Hit, Hits, Why
from marklight.lazy import dataclass
from marklight.model import DocumentId
from marklight.ports import Pool, Tools
from marklight.query import Mode, Query
from marklight.search.features import (
    POOL_SIZE,
    Column,
    PassageFeatures,
    QueryFeatures,
    filters_cover_query,
    is_non_latin,
    needs_lexical_weights,
    passage_features,
    query_features,
    with_missing_cosines,
)
from marklight.search.unrelated import excess, stored_level
from marklight.settings import Within
from marklight.text.analyzer import ENGLISH

SINGLE_TERM = log(1 + 1)
"""The feature `query_length` of a query of one term."""
ANY_MODEL = "any"
"""Key of the weights for embedding models without weights of their own: they use the order of cosines, not their size."""
MAX_LOGIT = 700.0
"""exp() overflows above 709."""
RETRIEVER_OF = {
    "cosine": "semantic",
    "standard_cosine": "semantic",
    "lexical": "keyword",
    "relative_bm25": "keyword",
}
"""Features that come from a retriever whose weight users can change."""
MODES_OF_MODELS = (Mode.HYBRID, Mode.SEMANTIC)
"""Modes whose scores depend on the embedding model."""
NO_FACTORS: Mapping[str, float] = {}
NO_LEVEL: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class LogisticCurve:
    """Logistic regression: sigmoid(bias + weights · features)."""

    bias: float
    weights: Mapping[str, float]

    def __call__(self, features: Mapping[str, float]) -> float:
        return sigmoid(
            self.bias + sum(weight * features[name] for name, weight in self.weights.items())
        )

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


def sigmoid(logit: float) -> float:
    """Return the probability with this logit."""
    if not -MAX_LOGIT <= logit <= MAX_LOGIT:
        logit = max(-MAX_LOGIT, min(MAX_LOGIT, logit))
    return 1 / (1 + exp(-logit))


class Softmax(NamedTuple):
    """The softmax over the best passages of the pool, one per document."""

    temperature: float
    best: float
    """The highest sum of weighted features."""
    gap: float
    """The highest sum minus the lowest."""
    log_total: float
    """log(Σ exp((sum - best) / temperature)) over the pool."""

    def log_share(self, weighted_sum: float) -> float:
        """Return the logarithm of a passage's share of the total."""
        return (weighted_sum - self.best) / self.temperature - self.log_total


def softmax(sums: Sequence[float], temperature: float) -> Softmax:
    """Return the softmax over these sums."""
    best = max(sums)
    total = sum(exp((one - best) / temperature) for one in sums)
    return Softmax(temperature, best, best - min(sums), log(total))


class Probabilities(NamedTuple):
    """Answer probability of a query and relevance probability of each passage, with their parts."""

    answer: float
    answer_features: Mapping[str, float]
    """Features of the query, among them how far they exceed those of unrelated queries."""
    softmax: Softmax
    relevance_curve: LogisticCurve
    """The curve over `log_share`, with all features of the query in its bias."""
    relevance: Column
    """By row: the probability that a passage is relevant if the library contains an answer."""

    @property
    def scores(self) -> list[float]:
        """Return the probability that each passage answers the query."""
        return [self.answer * relevance for relevance in self.relevance]


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """Weights learned offline for one search mode and one embedding model."""

    features: Mapping[str, float]
    """Weights of passage features."""
    temperature: float
    """Softmax temperature: a passage is e times as likely as another whose sum is lower by this much."""
    answer: LogisticCurve
    """Answer probability, over features of the query and by how much they exceed those of unrelated queries."""
    single_term_answer: LogisticCurve
    """Answer probability of a query of one term: cosines are lower, and the term either occurs or not."""
    relevance: LogisticCurve
    """Probability that a passage is relevant if there is an answer, over `log_share`, `gap` and query features."""
    unrelated: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Intercept and slope, over the size of a library, of the features of unrelated queries."""

    def sums(
        self, features: PassageFeatures, factors: Mapping[str, float] = NO_FACTORS
    ) -> list[float]:
        """Return the weighted sum of the features of each passage, with factors on the weights of retrievers."""
        return _weighted_sums(self.features, features, factors)

    def answer_curve(self, query: QueryFeatures) -> LogisticCurve:
        """Return the curve of the answer probability for a query of this length."""
        return self.single_term_answer if query.query_length <= SINGLE_TERM else self.answer

    def answer_features(
        self, query: QueryFeatures, first_coverage: float, level: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the features of the answer probability; `first_coverage` is the coverage of the best passage."""
        known = {**query._asdict(), "first_coverage": first_coverage}
        return {**known, **excess(known, level, self.unrelated)}

    def probabilities(
        self,
        sums: Column,
        rivals: Column,
        query: QueryFeatures,
        first_coverage: float = 0.0,
        level: Mapping[str, float] = NO_LEVEL,
        certain: bool = False,
    ) -> Probabilities:
        """Return the answer probability and the relevance of each passage, increasing with its sum.

        `rivals` are the sums of the best passages of the best documents, best first: passages of one document do
        not compete. `level` is that of unrelated queries. `certain` sets the answer probability to 1.
        """
        pool = softmax(rivals[:POOL_SIZE], self.temperature)
        known = self.answer_features(query, first_coverage, level)
        answer = 1.0 if certain else self.answer_curve(query)(known)
        curve = self.relevance.given({**query._asdict(), "gap": pool.gap})
        slope = curve.weights["log_share"]
        best, temperature, log_total = pool.best, pool.temperature, pool.log_total
        relevance = [
            sigmoid(curve.bias + slope * ((one - best) / temperature - log_total)) for one in sums
        ]
        return Probabilities(answer, known, pool, curve, relevance)


def _weighted_sums(
    weights: Mapping[str, float], features: PassageFeatures, factors: Mapping[str, float]
) -> list[float]:
    sums = [0.0] * len(features.cosine)
    for name, weight in weights.items():
        weight *= factors.get(RETRIEVER_OF.get(name, ""), 1.0)
        column: Column = getattr(features, name)
        sums = [total + weight * value for total, value in zip(sums, column, strict=True)]
    return sums


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
    text = Path(__file__).with_name("fusion_weights.json").read_text("utf-8")
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
    unrelated = {name: (line[0], line[1]) for name, line in values.get("unrelated", {}).items()}
    return FusionWeights(
        values["features"],
        values["temperature"],
        **curves,
        unrelated=unrelated,
    )


NON_LATIN = "The model and its scores were calibrated in English; for other scripts, rely on matching words more than on scores"
TIE_BREAK = 1e-9
"""Difference between the scores of passages that share a probability, so that their order stays."""
WeightsFor = Callable[[str, str], FusionWeights | None]


@dataclass(frozen=True, slots=True)
class ScoredPool:
    """The candidates of a query with their features, sums of weighted features and probabilities, by row."""

    pool: Pool
    features: PassageFeatures
    sums: Column
    weights: FusionWeights
    probabilities: Probabilities
    query: QueryFeatures
    is_certain: bool
    explain: bool

    def ranked(self, factors: Mapping[str, float]) -> Hits:
        """Return the candidates by their sums, with factors on the weights of retrievers."""
        if all(factor == 1.0 for factor in factors.values()):
            return self.with_probabilities()
        sums = self.weights.sums(self.features, factors)
        return self.in_order(_best_rows(self.pool, sums))

    def with_probabilities(self, ranking: Mapping[str, Hit] | None = None) -> Hits:
        """Return the candidates with their probabilities as scores, best first; the trace of a ranking precedes theirs."""
        ranking, trace = ranking or {}, Trace(self, "probability" if ranking else "learned")
        chunks, scores, answer = (
            self.pool.chunks,
            self.probabilities.scores,
            self.probabilities.answer,
        )
        coverage, exact = self.features.coverage, self.features.exact_phrase
        hits = []
        for row in _best_rows(self.pool, scores):
            before = ranking.get(chunks[row].id)
            entries: tuple[Why, ...] | None = None
            if self.explain and before is None:
                entries = (*self.pool.entries(row), *trace.entries(row))
            elif before:
                entries = None if before.trace is None else (*before.trace, *trace.entries(row))
            hits.append(
                Hit(
                    chunks[row],
                    scores[row],
                    entries,
                    answer,
                    before.rank_sum if before else None,
                    max(coverage[row], exact[row]),
                )
            )
        return tuple(hits)

    def in_order(self, rows: Iterable[int], ranking: Mapping[str, Hit] | None = None) -> Hits:
        """Return the candidates in the order of another ranking, with probabilities that decrease along it.

        Isotonic regression by pooling adjacent violators (Ayer et al., 1955): where the order contradicts the
        probabilities, neighbours share their mean, so that the total, and with it the calibration, stays.
        """
        scored = {self.pool.rows[hit.chunk.id]: hit for hit in self.with_probabilities(ranking)}
        ordered = [scored[row] for row in rows]
        blocks: list[tuple[float, int]] = []
        for hit in ordered:
            total, count = hit.score, 1
            while blocks and blocks[-1][0] / blocks[-1][1] < total / count:
                before, size = blocks.pop()
                total, count = total + before, count + size
            blocks.append((total, count))
        hits, rest = [], iter(ordered)
        for total, count in blocks:
            for position in range(count):
                hit = next(rest)
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
    pool: Pool, query: Query, tools: Tools, find_weights: WeightsFor = weights_for
) -> ScoredPool | None:
    """Return the candidates with their probabilities; None if there are no candidates."""
    mode = ""
    has_cosines = bool(pool.scores.get("semantic"))
    # Also without keyword candidates: that no passage has a term is a strong feature.
    if has_cosines:
        mode = "hybrid" if "keyword" in pool.scores else "semantic"
    elif pool.scores.get("keyword"):
        mode = "keyword"
    elif pool.scores.get("code"):
        mode = "code"
    model = tools.embedder.fingerprint if tools.embedder and has_cosines else ""
    weights = find_weights(mode, model) if mode else None
    if weights is None:
        return None
    for_any_model = find_weights(mode, ANY_MODEL) or weights
    non_latin = has_cosines and weights is not for_any_model and is_non_latin(query)
    if non_latin:
        tools.notify(NON_LATIN)
    without_terms = non_latin and mode == "hybrid" and not pool.scores["keyword"]
    pool = with_missing_cosines(pool, query, tools)
    features = passage_features(pool, query, tools)
    if needs_lexical_weights(pool, features, query) or without_terms:
        weights = for_any_model
    sums = weights.sums(features)
    of_query = query_features(pool, features, query, tools)
    is_certain = filters_cover_query(query)
    rows = _best_rows(pool, sums)
    level = stored_level(tools.snapshot, model) if weights.unrelated else NO_LEVEL
    probabilities = weights.probabilities(
        sums,
        _rivals(pool, sums, rows),
        of_query,
        features.coverage[rows[0]],
        level,
        certain=is_certain,
    )
    return ScoredPool(
        pool, features, sums, weights, probabilities, of_query, is_certain, tools.explain
    )


def with_probabilities(ranking: Hits, pool: Pool, query: Query, tools: Tools) -> Hits:
    """Return a ranking of any fusion in its order, with calibrated probabilities in place of its scores."""
    scored = score_candidates(pool, query, tools)
    if scored is None:
        return ranking
    by_id = {hit.chunk.id: hit for hit in ranking}
    return scored.in_order([pool.rows[id] for id in by_id], by_id)


def _best_rows(pool: Pool, scores: Column) -> list[int]:
    """Return the rows by descending score; ties are broken by passage id."""
    ordered = sorted(zip(map(neg, scores), pool.rows, range(len(scores)), strict=True))
    return [row for _, _, row in ordered]


def _rivals(pool: Pool, sums: Column, rows: Iterable[int]) -> list[float]:
    """Return the sum of the best passage of each document in the pool, exact duplicates once; `rows` are sorted by their sums."""
    in_pool, documents, texts = pool.best(POOL_SIZE), set[DocumentId](), set[str]()
    rivals = []
    for row in rows:
        chunk = pool.chunks[row]
        if row in in_pool and chunk.document not in documents:
            documents.add(chunk.document)
            if chunk.text_key not in texts:
                texts.add(chunk.text_key)
                rivals.append(sums[row])
    return rivals


class Trace:
    """Trace entries from which the score of each passage can be recomputed; those of the query are built on first use."""

    def __init__(self, candidates: ScoredPool, stage: str) -> None:
        self._candidates, self._stage = candidates, stage

    @cached_property
    def _base(self) -> Why:
        query, probabilities = self._candidates.query, self._candidates.probabilities
        known = {**query._asdict(), "gap": probabilities.softmax.gap}
        bias = probabilities.relevance_curve.bias
        return _linear("relevance_base", bias, self._candidates.weights.relevance, known)

    @cached_property
    def _answer(self) -> Why:
        answer, known, *_ = self._candidates.probabilities
        if self._candidates.is_certain:
            return Why("answer", answer)
        curve = self._candidates.weights.answer_curve(self._candidates.query)
        entry = _linear("answer", answer, curve, known)
        return entry._replace(formula=f"sigmoid({entry.formula})")

    def entries(self, row: int) -> Iterator[Why]:
        """Yield the weighted features, log share, relevance, answer probability and score."""
        candidates = self._candidates
        for name, weight in candidates.weights.features.items():
            if value := getattr(candidates.features, name)[row]:
                inputs = {"feature": value, "weight": weight}
                yield Why(name, weight * value, "feature × weight", inputs)
        answer, _, pool, curve, relevances = candidates.probabilities
        relevance, log_share = relevances[row], pool.log_share(candidates.sums[row])
        yield Why(
            "log_share",
            log_share,
            "(sum - best) / temperature - log_total",
            {
                "sum": candidates.sums[row],
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
            {"base": curve.bias, "slope": curve.weights["log_share"], "log_share": log_share},
        )
        yield self._answer
        yield Why(
            self._stage,
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
TAIL = 0.005
"""Results that score lower are dropped; where the best score is less than twice this, those below half the best score. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Return nothing where the answer probability is low, else all hits above a small score.

    Passages with most of the query's terms are kept whatever their score: a page with the name of a person as its title
    leaves little probability to the other notes that mention that person.

    With the threshold, on sets that the weights were not learned from, 9 of 100 queries without an answer, most of them about
    related things, get results with low scores, and 1 of 1,000 with an answer gets none (docs/quality.md). Results are
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
            if not hits or _is_calibrated_language(query, tools):
                return ()
            tools.notify(UNCALIBRATED)
        lowest = min(TAIL, max(hit.score for hit in hits) / 2)
        return tuple(hit for hit in hits if hit.score >= lowest or hit.coverage > MOST)


def has_calibrated_scores(hits: Hits, query: Query, tools: Tools) -> bool:
    """Return True if the scores of these hits were calibrated on judged queries of this mode, model and language."""
    if tools.reranker is not None or any(hit.answer_probability is None for hit in hits):
        return False
    model = tools.embedder.fingerprint if tools.embedder else ""
    if model and query.mode in MODES_OF_MODELS and not is_calibrated(query.mode.value, model):
        return False
    return not is_non_latin(query) and _is_calibrated_language(query, tools)


def _is_calibrated_language(query: Query, tools: Tools) -> bool:
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
