"""Simulate processes, edits, faults and kills by seed, and check every answer; see `tests/simulation`.

`scripts/bench simulate [--seeds N] [--seed K]` runs N seeds from K on, in as many processes as there are cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

from benchmarks._measure import ROOT, save

SEEDS = 10_000


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    parts, started = os.cpu_count() or 1, time.perf_counter()
    edges = [given.seed + given.seeds * part // parts for part in range(parts + 1)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.world", str(first), str(last - 1)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, last in pairwise(edges)
        if last > first
    ]
    total = Counter[str]()
    for process in running:
        output, _ = process.communicate()
        *violations, counts = output.splitlines()
        print(*violations, sep="\n")
        total += Counter(json.loads(counts))
    seconds = round(time.perf_counter() - started)
    save("simulate", {"first_seed": given.seed, "violations": 0, **total, "seconds": seconds})
    sys.exit(bool(total["violations"]))


if __name__ == "__main__":
    main()
