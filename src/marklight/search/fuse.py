"""Fusion stages: merge the candidates of several retrievers into one ranked list; rerank the best with a cross-encoder.

`learned` is the default. The others multiply the weight of each list that has candidates by the user's factors and by
that of the kind of query, and scale the products back to their old sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import exp, nextafter, prod
from typing import Annotated, ClassVar

from marklight.answer import Hit, Hits, best_first
from marklight.errors import ModelServerError
from marklight.lazy import dataclass
from marklight.ports import Pool, Tools
from marklight.query import Query
from marklight.search.features import with_missing_cosines
from marklight.search.probability import score_candidates
from marklight.settings import Within
from marklight.text.analyzer import analyze

KIND_FACTORS = {"factual": {"keyword": 1.5}, "exploratory": {"semantic": 1.3}}
"""Factors by kind of query and retriever; a navigational query suits both retrievers. Hand-set; not measured."""
WEIGHTS = {"keyword": 0.4, "semantic": 0.6, "code": 0.2}
"""Weights of the fusions by scores. Hand-set; not measured."""

Scores = Mapping[str, Mapping[int, float]]
"""Scores in 0 to 1 by retriever and row of the pool."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Weighted features rank passages; a softmax and logistic curves turn the sums into probabilities.

    The score is the probability that the library contains an answer, times the probability that this
    passage is relevant if it does. It is calibrated: of results with 0.8, about eight of ten are relevant.
    """

    def __call__(
        self, pool: Pool, query: Query, factors: Mapping[str, float], tools: Tools
    ) -> Hits:
        scored = score_candidates(pool, query, tools)
        return scored.ranked(factors) if scored else ()


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """0.4 × (keyword score / highest keyword score) + 0.6 × cosine.

    Unlike ranks, scores preserve how far apart results are; over the eight development
    sets the nDCG@10 is about that of rank fusion all the same (.734 and .738). The weights of the lists with
    candidates are scaled to a sum of 1, so that a library without vectors is scored on the same scale.
    """

    def __call__(
        self, pool: Pool, query: Query, factors: Mapping[str, float], tools: Tools
    ) -> Hits:
        scores = normalized_scores(pool)
        plain_weights = {name: WEIGHTS[name] for name in scores}
        weights = scaled_weights(
            plain_weights, factors, KIND_FACTORS.get(query.kind, {}), total=1.0
        )
        sums, inputs = weighted_sums(scores, weights), _inputs_by_passage(scores)
        return best_first(
            _hit(pool, row, tools).rescored(
                min(1.0, sums[row]),
                "weighted_sum",
                f"min(1, {_sum_formula(inputs[row], weights)})",
                **inputs[row],
            )
            for row in sums
        )


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """Sum of 1 / (k + rank) over the lists with candidates, divided by the highest possible sum."""

    k: ClassVar[float] = 60.0
    """Smoothing constant of Cormack, Clarke and Büttcher (SIGIR 2009); higher values reduce the advantage of top ranks."""

    def __call__(
        self, pool: Pool, query: Query, factors: Mapping[str, float], tools: Tools
    ) -> Hits:
        candidates = {name: scores for name, scores in pool.scores.items() if scores}
        plain_weights, total = dict.fromkeys(candidates, 1.0), float(len(candidates))
        weights = scaled_weights(
            plain_weights, factors, KIND_FACTORS.get(query.kind, {}), total=total
        )
        sums: dict[int, float] = {}
        terms: dict[int, list[str]] = {}
        for name, scores in candidates.items():
            for rank, row in enumerate(scores, 1):
                sums[row] = sums.get(row, 0.0) + weights[name] / (self.k + rank)
                terms.setdefault(row, []).append(f"{weights[name]:.6g} / ({self.k:.6g} + {rank})")
        highest = total / (self.k + 1)
        return best_first(
            replace(_hit(pool, row, tools), rank_sum=rank_sum).rescored(
                min(1.0, rank_sum / highest),
                "reciprocal",
                f"min(1, ({' + '.join(terms[row])}) / highest)",
                highest=highest,
            )
            for row, rank_sum in sums.items()
        )


SPAN = 0.15
"""A cosine this far below the best counts as 0, if other lists have candidates."""
FLOOR = 0.1
"""Lowest factor on a list's weight, used if all its scores are equal."""
FULL_VARIANCE = 0.1
"""Variance of scores at which a list has its full weight; above it, more."""
COMPARED = 10
"""Top scores of a list whose variance is computed."""
MIN_SHARE = 0.25
"""Share of the best score that the worst hit keeps, so that in a small library the third of three is not
dropped for being far behind the first. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class ScoreAware:
    """A weighted sum with weights × max(0.1, variance / 0.1), scaled back to their sum.

    Cosines are stretched before they are added to other scores: a model places all of them close together
    (.69 to .86 on the Kubernetes pages), so that unstretched the keyword scores decide alone. Over the eight
    development sets, on which it was also chosen, the pipeline has an nDCG@10 of .754 with it and of .734 with
    the plain weighted sum. The best hit keeps its unstretched score; the others follow below it.
    """

    def __call__(
        self, pool: Pool, query: Query, factors: Mapping[str, float], tools: Tools
    ) -> Hits:
        pool = with_missing_cosines(pool, query, tools)
        plain = normalized_scores(pool)
        scores = dict(plain)
        if stretch := "semantic" in plain and len(plain) > 1:
            scores["semantic"] = _stretched(plain["semantic"])
        weights = scaled_weights(
            {name: WEIGHTS[name] for name in plain},
            factors,
            KIND_FACTORS.get(query.kind, {}),
            {name: _discrimination(name, by_row) for name, by_row in scores.items()},
            total=1.0,
        )
        sums, inputs = weighted_sums(scores, weights), _inputs_by_passage(scores)
        rescaling: dict[str, float] = {}
        if stretch:
            rescaling = {
                "best": max(weighted_sums(plain, weights).values()),
                "highest": max(sums.values()) or 1.0,
            }
        return best_first(
            _hit(pool, row, tools).rescored(
                min(1.0, _rescaled(sums[row], **rescaling)),
                "score_aware",
                _rescaled_formula(_sum_formula(inputs[row], weights), stretch),
                **inputs[row],
                **rescaling,
            )
            for row in sums
        )


def _discrimination(name: str, scores: Mapping[int, float]) -> float:
    """Return the factor on the weight of a list: the higher, the more its scores vary."""
    best = sorted(scores.values(), reverse=True)[:COMPARED]
    if name != "semantic":
        # A passage without any of the terms scores 0: the only one that has them stands out.
        best += [0.0] * (COMPARED - len(best))
    return max(FLOOR, _variance(best) / FULL_VARIANCE)


def _variance(scores: Sequence[float]) -> float:
    """Return the population variance. (`statistics.pvariance` is slower by far.)"""
    mean = sum(scores) / len(scores)
    return sum((score - mean) ** 2 for score in scores) / len(scores)


def _stretched(cosines: Mapping[int, float]) -> dict[int, float]:
    """Map the best cosine to 1 and those a span or more below it to 0."""
    best = max(cosines.values())
    return {row: max(0.0, 1 - (best - cosine) / SPAN) for row, cosine in cosines.items()}


def _rescaled(sum: float, best: float = 0.0, highest: float = 0.0) -> float:
    """Map the highest sum to the best unstretched score, and 0 to a share of that."""
    return best * (MIN_SHARE + (1 - MIN_SHARE) * sum / highest) if highest else sum


def _rescaled_formula(terms: str, stretch: bool) -> str:
    if not stretch:
        return f"min(1, {terms})"
    return f"min(1, best × ({MIN_SHARE} + {1 - MIN_SHARE} × ({terms}) / highest))"


def scaled_weights(
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


def normalized_scores(pool: Pool) -> dict[str, dict[int, float]]:
    """Return cosines, and other scores divided by the best one, by retriever and row; empty lists are left out."""
    normalized = {}
    for name, scores in pool.scores.items():
        if scores:
            best = 1.0 if name == "semantic" else max(scores.values()) or 1.0
            normalized[name] = {
                row: min(1.0, max(0.0, score) / best) for row, score in scores.items()
            }
    return normalized


def weighted_sums(scores: Scores, weights: Mapping[str, float]) -> dict[int, float]:
    """Return the weighted sum of each passage's scores, by row."""
    sums: dict[int, float] = {}
    for name, by_row in scores.items():
        for row, score in by_row.items():
            sums[row] = sums.get(row, 0.0) + weights[name] * score
    return sums


def _hit(pool: Pool, row: int, tools: Tools) -> Hit:
    """Return a candidate, not yet scored, with the scores of its retrievers in its trace."""
    return Hit(pool.chunks[row], 0.0, pool.entries(row) if tools.explain else None)


def _sum_formula(names: Iterable[str], weights: Mapping[str, float]) -> str:
    return " + ".join(f"{weights[name]:.6g} × {name}" for name in names)


def _inputs_by_passage(scores: Scores) -> dict[int, dict[str, float]]:
    """Return the scores of each passage by list, the other way round."""
    inputs: dict[int, dict[str, float]] = {}
    for name, by_row in scores.items():
        for row, score in by_row.items():
            inputs.setdefault(row, {})[name] = score
    return inputs


SLOPE, MIDDLE = 150.0, 0.035
"""Steepness of the curve, and the sum of rank fusion with probability 0.5, as in the system that it was taken from."""


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Convert the rank fusion sum r to a probability, 1 / (1 + exp(-150 (r - 0.035))). Off by default; requires `search.fuse = "reciprocal"`.

    A passage ranked first in one list gets 0.06, in two 0.42, in three 0.89.
    """

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if any(hit.rank_sum is None for hit in hits):
            tools.notify(
                'The stage calibrate requires search.fuse = "reciprocal". Scores are unchanged'
            )
            return hits
        return best_first(
            hit.rescored(
                1.0 / (1.0 + exp(-SLOPE * (rank_sum - MIDDLE))),
                "calibrate",
                "sigmoid(slope × (rank_sum - middle))",
                rank_sum=rank_sum,
                slope=SLOPE,
                middle=MIDDLE,
            )
            for hit in hits
            for rank_sum in [hit.rank_sum or 0.0]
        )


MIN_WORDS = 3
"""Shorter queries are not reranked unless `--rerank` is given."""


@dataclass(frozen=True, slots=True)
class Rerank:
    """Score the best candidates with a model that reads query and passage together; the rest follow."""

    candidates: Annotated[int, Within(1)] = 10
    """Number of best hits that the model scores."""
    budget_ms: Annotated[float, Within(0)] = 500.0
    """Time limit; passages not scored in time rank below the others. Loading the model is not included."""

    def wants(self, query: Query) -> bool:
        """Return True if this query is to be reranked, given a model."""
        if query.rerank is not None:
            return query.rerank and bool(query.text.strip())
        return _word_count(query.text) >= MIN_WORDS

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if tools.reranker is None or not hits or not self.wants(query):
            return hits
        chosen = tools.read(hits[: self.candidates])
        from marklight.text.markdown import chunk_embedding_text

        texts = [chunk_embedding_text(hit.chunk) for hit in chosen]
        try:
            scores = tools.reranker.score(query.text, texts, self.budget_ms)
        except ModelServerError as error:
            tools.notify(f"Results are not reranked: {error}")
            return hits
        if len(scores) < len(chosen):
            tools.notify(
                f"Reranked {len(scores)} of {len(chosen)} candidates within {self.budget_ms:.0f} ms"
            )
        # Exact titles stay first, whatever the model's scores.
        exact = sum(1 for _ in takewhile(lambda hit: hit.exact_match, chosen))
        limit = nextafter(chosen[exact - 1].score, 0.0) if exact else 1.0
        ranked = [
            hit
            if index < exact
            else hit.rescored(
                score * limit, "rerank", "cross_encoder × limit", cross_encoder=score, limit=limit
            )
            for index, (hit, score) in enumerate(zip(chosen, scores, strict=False))
        ]
        lowest = min(hit.score for hit in ranked)
        return best_first([*ranked, *_scaled_below(lowest, hits[len(scores) :])])


def _scaled_below(limit: float, rest: Hits) -> Hits:
    """Scale the scores of hits below a limit, so that their order stays and no ties arise."""
    if not rest or rest[0].score <= 0 or rest[0].score < limit:
        return rest
    factor = nextafter(limit, 0.0) / rest[0].score
    return tuple(
        hit.rescored(
            hit.score * factor, "rerank", "before × factor", before=hit.score, factor=factor
        )
        for hit in rest
    )


def _word_count(text: str) -> int:
    """Count words; Chinese, Japanese and Korean are written without spaces."""
    return sum(1 if run.isascii() else max(1, len(analyze(run))) for run in text.split())
