"""Cost of the scan before a search, with a watcher and without, and of watching while nothing changes.

`python -m benchmarks.scanning [FILES]`. Every scan is complete. Times are CPU times, which other processes disturb less.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import marklight
from benchmarks._measure import save
from benchmarks.indexing import stat_walk
from marklight.library.refresh import refresh
from marklight.library.watching import Watcher
from marklight.ports import no_progress

FILES, IN_A_FOLDER = 8_000, 50
ROUNDS = 15
IDLE_SECONDS = 20.0


def tree(root: Path, files: int) -> Path:
    """Create many tiny files, fifty in a folder, thirty folders in another."""
    for number in range(files // IN_A_FOLDER):
        folder = root / f"part{number // 30:02d}" / f"topic{number:03d}"
        folder.mkdir(parents=True)
        for place in range(IN_A_FOLDER):
            text = f"# Note {number} {place}\n\nOf topic{number} the thing{place}.\n"
            (folder / f"note{place:02d}.md").write_text(text)
    return root


def measure(root: Path, index: Path, files: int) -> dict[str, float]:
    settings = {"engine": f"file:{index}", "model": {"name": "none"}}
    with marklight.open(root, settings) as library:
        library.index()
        stat_ms = cpu_ms(lambda: stat_walk(root))
        full_ms = cpu_ms(lambda: library.text_ingest.compare(rebuild=True), rounds=3)
    with marklight.open(root, settings) as library:  # it reads the record in the file
        refresh(library, None, no_progress)
        unwatched_ms = cpu_ms(lambda: refresh(library, None, no_progress))
        watcher = Watcher(library)
        watcher.start()
        while watcher.progress is not None or not watcher.watching:
            time.sleep(0.1)
        watched_ms = cpu_ms(lambda: refresh(library, None, no_progress), rounds=200)
        (root / "part00" / "topic000" / "note00.md").write_text("# Zebra\n\nStripes.\n")
        assert library.search("zebra").hits
        idle = cpu_share(IDLE_SECONDS)
        watcher.close()
    return {
        "files": files,
        "stat_walk_ms": stat_ms,
        "full_scan_ms": full_ms,
        "unwatched_scan_ms": unwatched_ms,
        "watched_scan_ms": watched_ms,
        "full_scan_to_stat_walk": full_ms / stat_ms,
        "unwatched_scan_to_stat_walk": unwatched_ms / stat_ms,
        "watched_scan_to_unwatched_scan": watched_ms / unwatched_ms,
        "share_of_a_core_while_watching": idle,
    }


def cpu_share(seconds: float) -> float:
    """Return the share of one core that this process uses."""
    started, used = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - used) / (time.monotonic() - started)


def cpu_ms(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times) * 1e3


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else FILES
    with tempfile.TemporaryDirectory() as scratch:
        root = tree(Path(scratch) / "tree", files)
        save("scanning", measure(root, Path(scratch) / "index", files))


if __name__ == "__main__":
    main()
