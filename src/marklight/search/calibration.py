"""Turn features into calibrated probabilities: linear model, softmax with temperature, logistic curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, log
from typing import Any, NamedTuple

from marklight.search.features import POOL_SIZE, PassageFeatures, QueryFeatures

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
