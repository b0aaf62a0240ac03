"""How good the answers are: every way of searching and of fusing on the same questions, set by set.

With `ablate` each stage of the default pipeline is left out, or taken in, in turn, on some of the questions.
"""

from __future__ import annotations

import sys
import time
from statistics import fmean
from typing import Any

from benchmarks._measure import SETS, save, set_path
from marklight.eval.evaluate import evaluate

WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "keyword": ("keyword", ()),
    "semantic": ("semantic", ()),
    "rank fusion": ("hybrid", ("search.fuse=reciprocal",)),
    "weighted sum": ("hybrid", ("search.fuse=weighted_sum",)),
    "score aware": ("hybrid", ("search.fuse=score_aware",)),
    "learned": ("hybrid", ()),
}
ASKED = 100
"""Questions of each set that the stages are tried with."""


def table() -> dict[str, Any]:
    found: dict[str, Any] = {}
    took = 0.0
    for name in SETS:
        found[name] = {}
        for way, (mode, assignments) in WAYS.items():
            began = time.perf_counter()
            result = evaluate(set_path(name), mode=mode, assignments=assignments)
            took += (time.perf_counter() - began) * (way == "learned")
            found[name][way] = {**result.quality.metrics, **result.quality.latency_ms}
            print(
                name,
                way,
                {key: round(each, 3) for key, each in found[name][way].items()},
                flush=True,
            )
    gains = {
        name: each["learned"]["ndcg@10"]
        - max(each[leg]["ndcg@10"] for leg in ("keyword", "semantic"))
        for name, each in found.items()
    }
    return {
        "sets": found,
        "learned to its better leg": {**gains, "mean": fmean(gains.values())},
        "all sets, default settings, seconds": took,
    }


def ablations() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SETS:
        result = evaluate(set_path(name), sample=ASKED, with_ablation=True)
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
    else:
        save("quality", table())


if __name__ == "__main__":
    main()
