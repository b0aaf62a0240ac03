"""A run of commits that is killed repeatedly, and checked after each kill.

Run as `python -m tests.faults.committing FOLDER KILLS SEED`; fails with a message where a snapshot
differs from that of the memory engine. `watch FOLDER` only reads, while other processes write.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tantivy

from marklight import engines
from marklight.model import Batch
from marklight.place import STORE, record_database
from marklight.ports import FIELD_BOOSTS, Snapshot
from marklight.query import Filters
from marklight.text.analyzer import analyze
from tests.contracts.builders import entry, id_of, link, vector, vectors
from tests.oracle import MemoryEngine
from tests.oracle.engine import memory_snapshot
from tests.scratch import scratch_parent

if TYPE_CHECKING:
    from marklight.model import Vector

LOADED = (tantivy, np)  # before the first fork, so that a child starts in a millisecond
STEPS = 40
VOCABULARY = "apple pear plum cherry quince medlar".split()


def batches() -> Iterator[Batch]:
    """Yield batches with every kind of change, the same in every run."""
    chance = random.Random(7)
    for step in range(STEPS):
        entries = [
            entry(
                f"{number}.md",
                *(" ".join(chance.choices(VOCABULARY, k=6)) for _ in range(chance.randint(1, 4))),
                links=(link(str(chance.randint(0, 15))),),
            )
            for number in chance.sample(range(15), 4)
        ]
        removed = [id_of(f"{number}.md") for number in chance.sample(range(15), 1)]
        digests = [chunk.digest for item in entries[:3] for chunk in item.chunks]
        yield Batch(
            entries=tuple(entries) if step % 5 else (),
            removed=tuple(removed),
            vectors=vectors(digests) if step % 3 else None,
            communities={id_of("0.md"): step} if step % 7 == 0 else None,
            manifest={"step": str(step)},
        )


def copied(index: Path, to: Path) -> Path:
    """Copy an index to damage it, and record the copy as created there."""
    shutil.copytree(index, to)
    connection = sqlite3.connect(to / STORE)
    ((id,),) = connection.execute("SELECT library FROM state")
    connection.close()
    record_database(to, to / STORE, id)  # replaces the record of the original
    return to


def resume(folder: Path) -> None:
    """Commit the batches that are missing, as a run does after one that stopped."""
    engine = engines.open(folder)
    with engine.writing(10):
        with engine.snapshot() as snapshot:
            done = int(snapshot.status.manifest().get("step", -1))
        for batch in list(batches())[done + 1 :]:
            engine.commit(batch)
    engine.close()


class Cosines(dict[str, float]):
    """Cosines by passage; equal within the rounding of 8-bit vectors, which sums in another order differ by."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or self.keys() != other.keys():
            return False
        return all(abs(cosine - other[id]) < 1e-3 for id, cosine in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other


def answers(
    snapshot: Snapshot,
    words: Sequence[str] = VOCABULARY,
    model: str = "m",
    query: Vector | None = None,
) -> object:
    """Return the content of a snapshot in a form that can be compared between engines."""
    files = sorted(snapshot.documents.files())
    lexical = [
        {
            candidate.chunk_id
            for candidate in snapshot.lexical.search(analyze(word), FIELD_BOOSTS, Filters(), 999)
        }
        for word in words
    ]
    nearest = snapshot.vectors.search(
        vector("q") if query is None else query, model, Filters(), 999
    )
    return (
        snapshot.generation,
        snapshot.status.counts(model),
        [
            (
                id,
                snapshot.documents.chunks_of(id),
                snapshot.links.outgoing(id),
                snapshot.links.incoming(id),
            )
            for id in files
        ],
        (
            list(snapshot.links.edges()),
            snapshot.links.neighbours(files, 99),
            snapshot.links.communities(files),
        ),
        [pending.chunk for pending in snapshot.vectors.pending(model, 999)],
        lexical,
        Cosines((candidate.chunk_id, candidate.score) for candidate in nearest),
    )


def check_snapshot(folder: Path, expected: list[object]) -> None:
    """Open the index after a kill: it must contain some commit completely."""
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        assert answers(snapshot) == expected[snapshot.generation], (
            f"generation {snapshot.generation}"
        )
    engine.close()


def expected_answers() -> list[object]:
    """Return the expected content of each generation, from the memory engine."""
    memory = MemoryEngine()
    expected = [answers(memory_snapshot(memory.state))]
    with memory.writing(0):
        for batch in batches():
            memory.commit(batch)
            expected.append(answers(memory_snapshot(memory.state)))
    return expected


def watch(folder: Path, expected: list[object]) -> int:
    """Open snapshots until the last commit is there; return how many."""
    engine = engines.open(folder)
    count, generation = 0, -1
    while generation < STEPS:
        with engine.snapshot() as snapshot:
            assert snapshot.generation >= generation
            generation = snapshot.generation
            assert answers(snapshot) == expected[generation], f"generation {generation}"
        count += 1
    engine.close()
    return count


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """Create a folder in memory if the system has enough: a kill is the same, and no disk is waited for."""
    with tempfile.TemporaryDirectory(dir=scratch_parent() or otherwise) as folder:
        yield Path(folder)


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a forked process; return the id of the process."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def main(folder: Path, kills: int, seed: int) -> None:
    expected = expected_answers()
    chance = random.Random(seed)
    killed = finished = 0
    # A run that finished before it was killed is checked too, and another library is started.
    while killed < kills:
        place = folder / str(finished)
        child = in_child(lambda place=place: resume(place))  # type: ignore[misc]
        time.sleep(chance.uniform(0.001, 0.08))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) or status == 0, f"failed after {killed} kills"
        code = os.waitpid(in_child(lambda place=place: check_snapshot(place, expected)), 0)[1]  # type: ignore[misc]
        assert code == 0, f"after {killed} kills"
        if os.WIFSIGNALED(status):
            killed += 1
        else:
            finish(place, expected)
            finished += 1
    finish(folder / str(finished), expected)
    print(f"{killed} kills, {finished + 1} libraries")


def finish(folder: Path, expected: list[object]) -> None:
    """Commit the rest and compare the final content with the expected one."""
    resume(folder)
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        assert answers(snapshot) == expected[-1]
    # Files that a kill left are deleted, and nothing else is reported.
    findings = engine.check()
    assert all("leftover" in finding for finding in findings), findings
    assert engine.check() == []
    engine.close()


if __name__ == "__main__" and sys.argv[1] == "watch":
    print(watch(Path(sys.argv[2]), expected_answers()))
elif __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
