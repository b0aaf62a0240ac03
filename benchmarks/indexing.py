"""Time to index text, to scan an unchanged tree and to index one changed file, as ratios in one run."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import marklight
from benchmarks._measure import corpus, in_a_process, repeated, save

ROUNDS = 3

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
import sys, time, json
import marklight
began = time.perf_counter()
with marklight.open(sys.argv[1], {"engine": "file:" + sys.argv[2]}) as library:
    with library.engine.writing(0):
        library.ingest.index_text(library.ingest.compare())
    answer = library.search("rollback deployment", mode="keyword", refresh=False)
    assert answer.hits
    counts = library.ingest.counts()
print(json.dumps({"chunks": counts.chunks, "documents": counts.documents, "seconds": time.perf_counter() - began}))
"""


def text_phase(folder: Path) -> dict[str, float]:
    """Compare indexing until keyword search works with only reading and parsing the same files."""
    parsing, indexing, last = [], [], {}
    for _ in range(ROUNDS):
        parsing.append(in_a_process(PARSE, str(folder))["seconds"])
        with tempfile.TemporaryDirectory() as place:
            last = in_a_process(TEXT, str(folder), place)
        indexing.append(last["seconds"])
    seconds = statistics.median(indexing)
    return {
        "read_and_parse_s": statistics.median(parsing),
        "keyword_searchable_s": seconds,
        "ratio": seconds / statistics.median(parsing),
        "files_per_s": last["documents"] / seconds,
        "chunks_per_s": last["chunks"] / seconds,
        "documents": last["documents"],
        "chunks": last["chunks"],
    }


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
    figures: dict[str, object] = {"text": text_phase(corpus("kubernetes"))}
    with tempfile.TemporaryDirectory() as scratch:
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
