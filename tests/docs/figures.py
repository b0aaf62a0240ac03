"""Figures in the documentation, written from benchmark results, defaults of settings and constants.

`figures.toml` lists them: a page, a text in which each `{}` stands for a figure, and one expression per figure.
Documentation stays plain Markdown; `python -m tests.docs.reference` writes the figures, and a test compares them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from marklight.library.configuration import SCHEMA
from marklight.search.probability import ANY_MODEL, FusionWeights, all_weights

from .examples import ROOT

LIST = Path(__file__).parent / "figures.toml"
NUMBER = r"[\d.,]*\d"


class Figures(NamedTuple):
    """One entry of the list."""

    page: Path
    text: str
    expressions: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern that matches the text with any figures; a space matches any white space."""
        parts = [re.escape(part).replace(r"\ ", r"\s+") for part in self.text.split("{}")]
        return re.compile(f"({NUMBER})".join(parts))

    def written(self, content: str) -> str:
        """Return the page's content with current figures; raise if the text is not there exactly once."""
        matches = list(self.pattern.finditer(content))
        if len(matches) != 1:
            raise AssertionError(f"{self.page.name} has {len(matches)} times: {self.text!r}")
        match = matches[0]
        shown = match[0]
        for number in reversed(range(1, len(self.expressions) + 1)):
            start, end = (place - match.start() for place in match.span(number))
            shown = shown[:start] + value(self.expressions[number - 1]) + shown[end:]
        return content[: match.start()] + shown + content[match.end() :]


def value(expression: str) -> str:
    """Evaluate an expression such as `result("signs")["recall"] * 100 : .0f`."""
    source, _, form = expression.rpartition(" : ")
    names = {
        "result": result,
        "mean_quality": mean_quality,
        "mean_held_out": mean_held_out,
        "setting": setting,
        "constant": constant,
        "weight": weight,
        "fusion_weights": fusion_weights,
    }
    # The expressions are part of this repository; no builtins but these are needed.
    computed = eval(source or expression, {"__builtins__": {"round": round, "len": len}}, names)
    if form == "short":  # .123, as is usual for measures of retrieval
        return f"{computed:.3f}".removeprefix("0")
    return format(computed, form) if source else str(computed)


@cache
def result(name: str) -> Any:
    """Return the results of a benchmark."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def mean_quality(way: str, metric: str) -> float:
    """Return the mean of a metric over all sets of the quality benchmark."""
    return fmean(each[way][metric] for each in result("quality")["sets"].values())


def mean_held_out(mode: str, metric: str) -> float:
    """Return the mean of a metric at the default threshold over development sets that weights were not learned from."""
    threshold = str(setting("search.confidence.threshold"))
    sets = result("learning")[mode]
    names = result("quality")["sets"]
    return fmean(sets[name]["left out"]["thresholds"][threshold][metric] for name in names)


def setting(key: str) -> Any:
    """Return the default of a setting, or a constant beside the settings of its table."""
    table, _, name = key.rpartition(".")
    return getattr(SCHEMA[table](), name)


def constant(name: str) -> Any:
    """Return a constant, named as `module:NAME`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def fusion_weights() -> FusionWeights:
    """Return the learned weights of hybrid search with the default model."""
    by_model = all_weights()["hybrid"]
    [model] = set(by_model) - {ANY_MODEL}
    return by_model[model]


def weight(feature: str) -> float:
    """Return the learned weight of a feature in hybrid search with the default model."""
    return fusion_weights().features[feature]


def figures() -> Iterator[Figures]:
    """Read the list."""
    for page, entries in tomllib.loads(LIST.read_text()).items():
        for entry in entries:
            yield Figures(ROOT / page, entry["text"], tuple(entry["values"]))


def renew() -> None:
    """Write all figures into their pages."""
    for each in figures():
        content = each.page.read_text()
        current = each.written(content)
        if current != content:
            each.page.write_text(current)
