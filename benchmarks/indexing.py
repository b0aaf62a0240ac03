"""Time to index text, to scan an unchanged tree and to index one changed file, as ratios in one run."""

from __future__ import annotations

import math
import os
import re
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import marklight
from benchmarks._measure import corpus, in_a_process, repeated, save

ROUNDS = 3
_LINE = re.compile(r"^(?![ \t]*(?:`{3}|~{3}|---|===|\|)).*\S$", re.MULTILINE)
"""A line with text, but no fence, rule or row of a table."""

PARSE = """
import sys, time, json
from pathlib import Path
from markdown_it import MarkdownIt
began = time.perf_counter()
parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
files = [path for path in Path(sys.argv[1]).rglob("*") if path.suffix in (".md", ".markdown", ".mdx", ".txt")]
for path in files:
    parser.parse(path.read_bytes().decode("utf-8", "replace"))
print(json.dumps({"files": len(files), "seconds": time.perf_counter() - began}))
"""

TEXT = """
import sys, time, json, resource
import marklight
began = time.perf_counter()
with marklight.open(sys.argv[1], {"engine": "file:" + sys.argv[2]}) as library:
    with library.engine.writing(0):
        library.ingest.index_text(library.ingest.compare())
    seconds = time.perf_counter() - began
    assert library.search("file", mode="keyword", refresh=False).hits
    counts = library.ingest.counts()
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "chunks": counts.chunks, "documents": counts.documents, "seconds": seconds,
    "processor_seconds": sum(use.ru_utime + use.ru_stime for use in used),
    "peak_mb": [use.ru_maxrss // 1024 for use in used],
}))
"""


def index_text(folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        figures: dict[str, Any] = in_a_process(TEXT, str(folder), place)
    return figures


def text_phase(folder: Path) -> dict[str, Any]:
    """Compare indexing until keyword search works with only reading and parsing the same files."""
    parsing, indexing = [], []
    for _ in range(ROUNDS):
        parsing.append(in_a_process(PARSE, str(folder))["seconds"])
        indexing.append(index_text(folder))
    best = min(indexing, key=lambda figures: figures["seconds"])
    seconds = best["seconds"]
    return {
        "read_and_parse_s": min(parsing),
        "ratio": seconds / min(parsing),
        "files_per_s": best["documents"] / seconds,
        "chunks_per_s": best["chunks"] / seconds,
        **best,
    }


def distinct(source: Path, target: Path, times: int) -> Path:
    """Copy a collection several times, every line of a copy with a word of its own, so that no copy is boilerplate."""
    for number in range(times):
        for path in source.rglob("*.md"):
            copy = target / f"copy{number}" / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(_LINE.sub(rf"\g<0> copy{number}", path.read_text()))
    return target


def growth(scratch: Path) -> dict[str, Any]:
    """Index 1, 10 and 100 copies; the exponent of processor time over passages between each two."""
    figures: dict[str, Any] = {}
    runs = []
    for times in (1, 10, 100):
        runs.append(index_text(distinct(corpus("fastapi-fr"), scratch / f"d{times}", times)))
        figures[f"x{times}"] = runs[-1]
    figures["exponents"] = [
        math.log(after["processor_seconds"] / before["processor_seconds"])
        / math.log(after["chunks"] / before["chunks"])
        for before, after in pairwise(runs)
    ]
    return figures


def stat_walk(folder: Path) -> float:
    began = time.perf_counter()
    for above, _, files in os.walk(folder):
        for name in files:
            os.stat(os.path.join(above, name))
    return time.perf_counter() - began


def unchanged(folder: Path, place: str) -> dict[str, float]:
    """Compare a run without changes with a plain stat of every file, in one process."""
    walks, runs = [], []
    for _ in range(9):
        walks.append(stat_walk(folder))
        with marklight.open(
            folder, {"engine": f"file:{place}", "model": {"name": "fake"}}
        ) as library:
            began = time.perf_counter()
            library.index()
            runs.append(time.perf_counter() - began)
    walk, run = statistics.median(walks), statistics.median(runs)
    return {"stat_walk_ms": walk * 1e3, "nothing_changed_ms": run * 1e3, "ratio": run / walk}


def one_changed(folder: Path, place: str) -> dict[str, float]:
    """Index one changed file with vectors; measure with and without the scan."""
    file = next(
        path for path in sorted(folder.rglob("*.md")) if 4_000 < path.stat().st_size < 8_000
    )
    before = file.read_text()
    whole, own = [], []
    with marklight.open(folder, {"engine": f"file:{place}", "model": {"name": "fake"}}) as library:
        for number in range(7):
            file.write_text(f"{before}\n\nA line that is new: {number}.\n")
            began = time.perf_counter()
            with library.engine.writing(0):
                diff = library.ingest.compare()
                scanned = time.perf_counter()
                library.ingest.index_text(diff)
                library.ingest.embed_missing()
            own.append(time.perf_counter() - scanned)
            whole.append(time.perf_counter() - began)
            assert len(diff.plan.read) == 1
    file.write_text(before)
    return {"work_ms": statistics.median(own) * 1e3, "with_walk_ms": statistics.median(whole) * 1e3}


def main() -> None:
    names = ("fastapi", "kubernetes", "blue-book", "tldr")
    figures: dict[str, object] = {f"text_{name}": text_phase(corpus(name)) for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        figures["growth"] = growth(Path(scratch))
        for times in (1, 10):
            folder = repeated(corpus("kubernetes"), Path(scratch) / f"x{times}", times)
            place = str(Path(scratch) / f"index{times}")
            with marklight.open(
                folder, {"engine": f"file:{place}", "model": {"name": "fake"}}
            ) as library:
                library.index()
            figures[f"unchanged_x{times}"] = unchanged(folder, place)
            figures[f"one_changed_x{times}"] = one_changed(folder, place)
    one, ten = figures["one_changed_x1"], figures["one_changed_x10"]
    assert isinstance(one, dict)
    assert isinstance(ten, dict)
    figures["one_changed_ratio_10x_to_1x"] = ten["work_ms"] / one["work_ms"]
    save("indexing", figures)


if __name__ == "__main__":
    main()
