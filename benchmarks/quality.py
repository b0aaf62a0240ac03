"""Measure the quality of every mode and fusion on the same queries, per dataset.

Arguments such as `learned` select what is measured; other results are kept. `passages` measures everyday questions: useful first
passages, refusals and off-topic queries that are answered. `ablate` leaves out or adds one stage of the default pipeline after the
other, on a sample of the queries. Intervals are 95 % of a bootstrap over queries.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import everyday
from benchmarks._measure import SETS, result_path, save, set_path
from benchmarks._sections import PREFIX, SOURCES
from marklight.answer import Hits
from marklight.eval import evaluate
from marklight.eval.collection import open_collection, resolve_answers
from marklight.eval.dataset import off_topic_queries, read_dataset
from marklight.eval.run import Run, run_queries
from marklight.operations import ModeName
from marklight.ports import Pool, Tools
from marklight.query import Query
from marklight.search.probability import FusionWeights, parse_weights, score_candidates

WAYS: dict[str, tuple[ModeName, tuple[str, ...]]] = {
    "keyword": ("keyword", ()),
    "semantic": ("semantic", ()),
    "rank fusion": ("hybrid", ("search.fuse=reciprocal",)),
    "weighted sum": ("hybrid", ("search.fuse=weighted_sum",)),
    "score aware": ("hybrid", ("search.fuse=score_aware",)),
    "learned": ("hybrid", ()),
}
LEFT_OUT = "left out"
"""The default fusion with weights learned from the other datasets (leave-one-out)."""
LEGS = ("keyword", "semantic")
PASSAGES = "passages"
EVERYDAY = ("vault", "tldr", "keps", *(f"{PREFIX}{source}" for source in SOURCES))
"""Sets with known useful passages."""
ASKED = 100
"""Sampled queries of each dataset for the ablation."""
RESAMPLED, SEED = 2_000, 4
"""Bootstrap samples, and their seed; any number will do."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The default fusion with weights learned from some datasets only."""

    weights: FusionWeights

    def __call__(
        self, pool: Pool, query: Query, factors: Mapping[str, float], tools: Tools
    ) -> Hits:
        scored = score_candidates(pool, query, tools, lambda *_: self.weights)
        return scored.ranked(factors) if scored else ()


def measured(name: str, way: str) -> Run:
    if way != LEFT_OUT:
        mode, assignments = WAYS[way]
        return evaluate(set_path(name), mode=mode, assignments=assignments).run
    learned = json.loads(result_path("learning").read_text())["hybrid"][name][LEFT_OUT]
    dataset = read_dataset(set_path(name))
    off_topic = dataset.off_topic or off_topic_queries()
    with open_collection(dataset, "hybrid") as collection:
        library, fuse = collection.library, Elsewhere(parse_weights(learned["weights"]))
        library.pipeline = replace(library.pipeline, fuse=fuse)
        return run_queries(
            collection, dataset, resolve_answers(collection, dataset), off_topic, "hybrid"
        )


def interval(values: Sequence[float]) -> list[float]:
    """Return the 95 % interval of the mean by a bootstrap over queries."""
    rows = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLED, len(values)))
    means = np.array(values, float)[rows].mean(axis=1)
    return [round(float(end), 3) for end in np.percentile(means, (2.5, 97.5))]


def passages(names: Sequence[str] = EVERYDAY) -> dict[str, Any]:
    """Return the shares of useful first passages, refused questions and answered off-topic queries of each everyday set."""
    kept = result_path("quality")
    known = json.loads(kept.read_text()) if kept.exists() else {}
    found: dict[str, Any] = known.get(PASSAGES, {})
    for name in names:
        found[name] = {}
        counts = everyday.measure(name)
        for key, total in (
            ("first passage useful", "answerable"),
            ("right document first", "answerable"),
            ("refused wrongly", "answerable"),
            ("off topic, answered", "off topic"),
        ):
            if counts.get(total):
                share = counts[key] / counts[total]
                values = [1.0] * counts[key] + [0.0] * (counts[total] - counts[key])
                found[name][key] = {"share": share, "95 %": interval(values)}
        shown = (f"{key} {one['share']:.3f} {one['95 %']}" for key, one in found[name].items())
        print(name, *shown, sep=", ", flush=True)
    return found


def table(ways: Sequence[str]) -> dict[str, Any]:
    kept = result_path("quality")
    known = json.loads(kept.read_text()) if kept.exists() else {}
    found: dict[str, Any] = known.get("sets", {})
    took = 0.0
    for name in SETS:
        for way in ways:
            began = time.perf_counter()
            quality = measured(name, way)
            if way == "learned":
                took += time.perf_counter() - began
            found.setdefault(name, {})[way] = {**quality.metrics, **quality.latency_ms}
            shown = {key: round(each, 3) for key, each in found[name][way].items()}
            ends = interval(quality.per_query["ndcg@10"])
            found[name][way]["ndcg@10, 95 %"] = ends
            print(name, way, shown, "nDCG@10 within", ends, flush=True)
    seconds = "all sets, default settings, seconds"
    return {
        **({PASSAGES: known[PASSAGES]} if PASSAGES in known else {}),
        "sets": found,
        "learned to its better leg": gains(found, "learned"),
        "left out to its better leg": gains(found, LEFT_OUT),
        seconds: took or known.get(seconds),
    }


def gains(found: Mapping[str, Any], way: str) -> dict[str, float]:
    each = {
        name: ways[way]["ndcg@10"] - max(ways[leg]["ndcg@10"] for leg in LEGS)
        for name, ways in found.items()
    }
    return {**each, "mean": fmean(each.values())}


def ablations() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SETS:
        result = evaluate(set_path(name), sample_size=ASKED, with_ablation=True)
        found[name] = {
            each.name: {"ndcg@10": each.difference["ndcg@10"], "p": each.p["ndcg@10"]}
            for each in result.ablation
        }
        print(name, found[name], flush=True)
    changes = next(iter(found.values()))
    means = {each: fmean(one[each]["ndcg@10"] for one in found.values()) for each in changes}
    return {"questions": ASKED, "sets": found, "mean difference": means}


def main() -> None:
    if sys.argv[1:] == ["ablate"]:
        save("ablation", ablations())
        return
    wanted = sys.argv[1:] or [PASSAGES, *WAYS, LEFT_OUT]
    ways = [way for way in wanted if way != PASSAGES]
    kept = result_path("quality")
    if PASSAGES in wanted:
        known = json.loads(kept.read_text()) if kept.exists() else {}
        save("quality", {**known, PASSAGES: passages()})
    if ways:
        save("quality", table(ways))


if __name__ == "__main__":
    main()
