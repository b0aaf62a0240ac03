"""What a search spends on comparing a huge tree with its index, and what following it costs while nothing happens.

`python -m benchmarks.looking [TREE INDEX]`: a tree and its index, made before or made here.
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
    """Many tiny files, a hundred in a folder, thirty folders in another."""
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
        least = statistics.median(stat_walk(root) for _ in range(3)) * 1e3
        whole = statistics.median(timed(library.reading.compare) for _ in range(3))
        asked, bare = "topic300 thing7", []
        looked = []
        for _ in range(ROUNDS):
            bare.append(timed(lambda: library.search(asked, refresh=False)))
            looked.append(timed(lambda: library.search(asked)))
        cost = statistics.median(looked) - statistics.median(bare)
        searches = 1
        library.cursor.save(None)
        (root / "zzz.md").write_text("# Zebra\n\nThe last one of all.\n")
        while not library.search("zebra").hits:
            searches += 1
        (root / "zzz.md").unlink()
        library.index()
        idle = idling(library)
        budget = library.limits.scan_ms
    return {
        "files": FILES,
        "budget_ms": budget,
        "stat_walk_ms": least,
        "whole_look_ms": whole,
        "look_of_a_search_ms": cost,
        "whole_look_to_stat_walk": whole / least,
        "look_of_a_search_to_whole_look": cost / whole,
        "look_of_a_search_to_budget": cost / budget,
        "searches_until_the_last_file_is_found": searches,
        "share_of_a_core_while_following_and_idle": idle,
    }


def idling(library: marklight.Library) -> float:
    following = Watcher(library)
    following.start()
    while following.progress is not None or not following.watching:
        time.sleep(0.1)
    time.sleep(1)
    began, worked = time.monotonic(), time.process_time()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - worked) / (time.monotonic() - began)
    following.close()
    return share


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    if len(sys.argv) > 2:
        save("looking", measure(tree(Path(sys.argv[1])), Path(sys.argv[2])))
        return
    with tempfile.TemporaryDirectory() as scratch:
        save("looking", measure(tree(Path(scratch) / "tree"), Path(scratch) / "index"))


if __name__ == "__main__":
    main()
