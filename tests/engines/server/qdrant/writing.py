"""A process that commits without end until it is killed: `python -m tests.engines.server.qdrant.writing ADDRESS SEED`."""

from __future__ import annotations

import random
import sys

from marklight import engines
from tests.contracts.builders import commit
from tests.faults.committing import batches


def main(address: str, seed: str) -> None:
    chance, steps = random.Random(seed), list(batches())
    engine = engines.open(address)
    with engine.snapshot():
        print("ready", flush=True)
    while True:
        commit(engine, chance.choice(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
