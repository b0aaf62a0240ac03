"""Let every system call of every command fail once, and lose power after every change of a file; see `tests/faults/every_call.py`.

`scripts/bench faults [--every K] [COMMAND…]` tries all cases, or every K-th one, in as many processes as there are cores. It needs
Linux and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.faults.every_call import COMMANDS, start

from benchmarks._measure import save


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("commands", nargs="*", choices=[*COMMANDS, []])
    options.add_argument("--every", type=int, default=1)
    given = options.parse_args()
    started, parts, total = time.perf_counter(), os.cpu_count() or 1, Counter[str]()
    with ThreadPoolExecutor(parts) as pool:
        running = [
            pool.submit(start, part * given.every, parts * given.every, tuple(given.commands))
            for part in range(parts)
        ]
    for finished in running:
        *problems, counts = finished.result().stdout.splitlines()
        print(*problems, sep="\n")
        total.update(json.loads(counts))
    seconds = round(time.perf_counter() - started)
    save("faults", {"every": given.every, **total, "seconds": seconds})
    sys.exit(total["problems"] > 0)


if __name__ == "__main__":
    main()
