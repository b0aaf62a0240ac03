"""Cost of the scan before a search in a huge tree, and of watching it while nothing changes.

`python -m benchmarks.scanning [TREE INDEX]`: folders of the tree and its index; without them both are created.
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
from marklight.library.watching import Watcher

FILES, IN_A_FOLDER = 60_000, 100
ROUNDS = 15
IDLE_SECONDS = 20.0


def tree(root: Path) -> Path:
    """Create many tiny files, a hundred in a folder, thirty folders in another."""
    if root.exists():
        return root
    for number in range(FILES // IN_A_FOLDER):
        folder = root / f"part{number // 30:02d}" / f"topic{number:03d}"
        folder.mkdir(parents=True)
        for each in range(IN_A_FOLDER):
            text = f"# Note {number} {each}\n\nOf topic{number} the thing{each}.\n"
            (folder / f"note{each:02d}.md").write_text(text)
    return root


def measure(root: Path, index: Path) -> dict[str, float]:
    settings = {"engine": f"file:{index}", "model": {"name": "none"}}
    with marklight.open(root, settings) as library:
        library.index()
        stat_ms = statistics.median(stat_walk(root) for _ in range(3)) * 1e3
        full_ms = statistics.median(timed(library.text_ingest.compare) for _ in range(3))
        query = "topic300 thing7"
        unrefreshed, refreshed = [], []
        for _ in range(ROUNDS):
            unrefreshed.append(timed(lambda: library.search(query, refresh=False)))
            refreshed.append(timed(lambda: library.search(query)))
        cost = statistics.median(refreshed) - statistics.median(unrefreshed)
        searches = 1
        library.cursor.save(None)
        (root / "zzz.md").write_text("# Zebra\n\nThe last one of all.\n")
        while not library.search("zebra").hits:
            searches += 1
        (root / "zzz.md").unlink()
        library.index()
        idle = cpu_share_while_watching(library)
        budget = library.limits.scan_ms
    return {
        "files": FILES,
        "budget_ms": budget,
        "stat_walk_ms": stat_ms,
        "full_scan_ms": full_ms,
        "scan_of_a_search_ms": cost,
        "full_scan_to_stat_walk": full_ms / stat_ms,
        "scan_of_a_search_to_full_scan": cost / full_ms,
        "scan_of_a_search_to_budget": cost / budget,
        "searches_until_the_last_file_is_found": searches,
        "share_of_a_core_while_watching": idle,
    }


def cpu_share_while_watching(library: marklight.Library) -> float:
    """Return the share of one core that the watcher uses while nothing changes."""
    watcher = Watcher(library)
    watcher.start()
    while watcher.progress is not None or not watcher.watching:
        time.sleep(0.1)
    time.sleep(1)
    began, worked = time.monotonic(), time.process_time()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - worked) / (time.monotonic() - began)
    watcher.close()
    return share


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    if len(sys.argv) > 2:
        save("scanning", measure(tree(Path(sys.argv[1])), Path(sys.argv[2])))
        return
    with tempfile.TemporaryDirectory() as scratch:
        save("scanning", measure(tree(Path(scratch) / "tree"), Path(scratch) / "index"))


if __name__ == "__main__":
    main()
