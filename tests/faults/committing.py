"""A run of commits that is killed repeatedly, and checked after each kill.

Run as `python -m tests.faults.committing FOLDER KILLS SEED`; fails with a message where a view
differs from what brute force says that commit holds. `watch FOLDER` only looks, while others write.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tantivy

from marklight import engines, ownership
from marklight.answer import Filters
from marklight.engines.memory import MemoryEngine
from marklight.engines.memory.engine import MemorySnapshot
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Snapshot
from marklight.text import analyze
from tests.contracts.builders import entry, id_of, link, vector, vectors

LOADED = (tantivy, np)  # before the first fork, so that a child starts in a millisecond
STEPS = 40
VOCABULARY = "apple pear plum cherry quince medlar".split()


def batches() -> Iterator[Batch]:
    """Every kind of change, the same in every run."""
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
        digests = [chunk.digest for each in entries[:3] for chunk in each.chunks]
        yield Batch(
            entries=tuple(entries) if step % 5 else (),
            removed=tuple(removed),
            vectors=vectors(digests) if step % 3 else None,
            communities={id_of("0.md"): step} if step % 7 == 0 else None,
            manifest={"step": str(step)},
        )


def copied(index: Path, to: Path) -> Path:
    """Copy an index so that it counts as made there, to do it harm: the record then names the last copy."""
    shutil.copytree(index, to)
    ownership.record(to, ownership.owner_id(to))
    return to


def resume(folder: Path) -> None:
    """Commit what is missing, as a run does that finds out where the last one stopped."""
    engine = engines.open(folder)
    with engine.writing(10):
        with engine.snapshot() as snapshot:
            done = int(snapshot.status.manifest().get("step", -1))
        for batch in list(batches())[done + 1 :]:
            engine.commit(batch)
    engine.close()


def answers(snapshot: Snapshot) -> object:
    """What a view says, in a form that engines can be compared by."""
    files = sorted(snapshot.documents.files())
    found = [
        {
            each.chunk_id
            for each in snapshot.lexical.search(analyze(word), FIELD_BOOSTS, Filters(), 999)
        }
        for word in VOCABULARY
    ]
    near = snapshot.vectors.search(vector("q"), "m", Filters(), 20)
    return (
        snapshot.generation,
        snapshot.status.counts("m"),
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
        [each.chunk for each in snapshot.vectors.pending("m", 999)],
        found,
        [(each.chunk_id, round(each.score, 4)) for each in near],
    )


def look(folder: Path, expected: list[object]) -> None:
    """Open what a death left behind: it must be some commit, whole."""
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        assert answers(snapshot) == expected[snapshot.generation], (
            f"generation {snapshot.generation}"
        )
    engine.close()


def expected_answers() -> list[object]:
    """What each generation must answer, by brute force."""
    memory = MemoryEngine()
    expected = [answers(MemorySnapshot(memory.state))]
    with memory.writing(0):
        for batch in batches():
            memory.commit(batch)
            expected.append(answers(MemorySnapshot(memory.state)))
    return expected


def watch(folder: Path, expected: list[object]) -> int:
    """Look again and again until the last commit is there; returns how often."""
    engine = engines.open(folder)
    looks, generation = 0, -1
    while generation < STEPS:
        with engine.snapshot() as snapshot:
            assert snapshot.generation >= generation
            generation = snapshot.generation
            assert answers(snapshot) == expected[generation], f"generation {generation}"
        looks += 1
    engine.close()
    return looks


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder in memory where there are such: a kill is the same, and nothing waits for a disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else otherwise) as folder:
        yield Path(folder)


def in_child(work: Callable[[], None]) -> int:
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
    died = finished = 0
    # A run that was faster than its death is looked at too, and another library is begun.
    while died < kills:
        place = folder / str(finished)
        child = in_child(lambda place=place: resume(place))  # type: ignore[misc]
        time.sleep(chance.uniform(0.001, 0.08))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) or status == 0, f"failed after {died} deaths"
        code = os.waitpid(in_child(lambda place=place: look(place, expected)), 0)[1]  # type: ignore[misc]
        assert code == 0, f"after {died} deaths"
        if os.WIFSIGNALED(status):
            died += 1
        else:
            finish(place, expected)
            finished += 1
    finish(folder / str(finished), expected)
    print(f"{died} deaths, {finished + 1} libraries")


def finish(folder: Path, expected: list[object]) -> None:
    """Whatever happened on the way, the end is the expected one."""
    resume(folder)
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        assert answers(snapshot) == expected[-1]
    # What a death left lying about is cleared away, and that is all there is to find.
    found = engine.check()
    assert all("leftover" in each for each in found), found
    assert engine.check() == []
    engine.close()


if __name__ == "__main__" and sys.argv[1] == "watch":
    print(watch(Path(sys.argv[2]), expected_answers()))
elif __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
