"""Let every system call of every command fail once, and lose power after every change of a file; see `tests/faults/every_call.py`.

`scripts/bench faults [--every K] [COMMAND…]` tries all cases, or every K-th one. It needs Linux and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.faults.every_call import COMMANDS, start

from benchmarks._measure import save


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("commands", nargs="*", choices=[*COMMANDS, []])
    options.add_argument("--every", type=int, default=1)
    given = options.parse_args()
    started = time.perf_counter()
    finished = start(0, given.every, tuple(given.commands))
    *problems, counts = finished.stdout.splitlines()
    print(*problems, sep="\n")
    seconds = round(time.perf_counter() - started)
    save("faults", {"every": given.every, **json.loads(counts), "seconds": seconds})
    sys.exit(finished.returncode)


if __name__ == "__main__":
    main()
