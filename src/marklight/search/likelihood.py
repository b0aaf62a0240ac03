"""Evidence to probabilities, by weights that were learned from questions whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, log
from typing import Any

from marklight.search.evidence import SEEN, Bearing, Evidence

SHORT = log(1 + 1)
"""Length of a question of one word."""
ANY = "any"
"""The weights for models that nobody measured: they look at the order of cosines, not at their size."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A logistic curve over some numbers."""

    start: float
    slopes: Mapping[str, float]

    def __call__(self, known: Mapping[str, float]) -> float:
        height = self.start + sum(slope * known[name] for name, slope in self.slopes.items())
        return 1 / (1 + exp(-max(-700.0, min(700.0, height))))

    def given(self, known: Mapping[str, float]) -> Curve:
        """The same curve over what is left, where these are known."""
        left = {name: slope for name, slope in self.slopes.items() if name not in known}
        told = (slope * known[name] for name, slope in self.slopes.items() if name in known)
        return Curve(self.start + sum(told), left)


@dataclass(frozen=True, slots=True)
class Weights:
    """What was learned for one way of searching with one model."""

    evidence: Mapping[str, float]
    """What each piece of evidence counts."""
    temper: float
    """By how much the sum of one passage must exceed that of another to be e times as likely."""
    answer: Curve
    """How likely it is that the library answers a question at all."""
    word: Curve
    """The same for a single word, whose cosines are lower and which is either there or not."""
    hit: Curve
    """How likely one passage is an answer, if it does; by its share among the others."""

    def parts(self, one: Evidence) -> dict[str, float]:
        """What each piece of evidence adds to the sum of a passage."""
        return {name: weight * getattr(one, name) for name, weight in self.evidence.items()}

    def answered(self, bearing: Bearing) -> float:
        """How likely it is that the library answers this question."""
        return (self.word if bearing.length <= SHORT else self.answer)(bearing._asdict())

    def likelihoods(
        self,
        sums: Mapping[str, float],
        rivals: Sequence[str],
        bearing: Bearing,
        certain: bool = False,
    ) -> tuple[float, dict[str, float]]:
        """Whether there is an answer, and for each passage whether it is one, the likelier the greater its sum.

        Rivals are the best passages of the best documents, best first: two of one document do not
        stand in each other's way.
        """
        seen = [sums[id] for id in rivals[:SEEN]]
        best = max(seen)
        answer, gap = 1.0 if certain else self.answered(bearing), best - min(seen)
        whole = log(sum(exp((each - best) / self.temper) for each in seen))
        hit = self.hit.given({**bearing._asdict(), "gap": gap})
        return answer, {
            id: answer * hit({"share": (each - best) / self.temper - whole})
            for id, each in sums.items()
        }


def weights_for(mode: str, model: str) -> Weights | None:
    """What was learned for this model, else for any; None where nothing was for this mode."""
    by_model = measured().get(mode, {})
    return by_model.get(model) or by_model.get(ANY)


def is_measured(mode: str, model: str) -> bool:
    """Whether scores with this model are probabilities that were compared with answers."""
    return model in measured().get(mode, {})


@cache
def measured() -> Mapping[str, Mapping[str, Weights]]:
    """All that was learned, by mode and by the model's fingerprint."""
    read = json.loads(files("marklight.search").joinpath("learned.json").read_text("utf-8"))
    return {
        mode: {model: read_weights(one) for model, one in by_model.items()}
        for mode, by_model in read["modes"].items()
    }


def read_weights(read: Mapping[str, Any]) -> Weights:
    """As they are written in JSON."""
    curves = {
        name: Curve(read[name]["start"], read[name]["slopes"]) for name in ("answer", "word", "hit")
    }
    return Weights(read["evidence"], read["temper"], **curves)
