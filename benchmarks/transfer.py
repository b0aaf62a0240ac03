"""Measure copy, export and import of an index against indexing its text: time as a ratio, size of the archive, peak memory.

`python -m benchmarks.transfer`: a small collection and one nine times as large, to see that memory does not grow with the index. Each
step runs in a process of its own. Vectors are random rows of 384 numbers, as embedding them would take most of the time.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.servers.postgres import new_library

import marklight
from benchmarks._measure import corpus, in_a_process, save
from marklight.model import Batch, Vectors
from marklight.ports import Engine

COLLECTIONS = ("fastapi", "kubernetes")
DIMENSION = 384
SETTINGS = {"model": {"name": "none"}}
STEP = """
import json, sys, time
import marklight
from benchmarks._measure import peak_megabytes
began = time.perf_counter()
name, *places = sys.argv[1:]
getattr(marklight, name)(*places)
print(json.dumps({"seconds": time.perf_counter() - began, "peak_mb": peak_megabytes()}))
"""


def add_vectors(engine: Engine) -> int:
    """Give every passage a random vector; return how many there are."""
    chance, count = np.random.default_rng(1), 0
    with engine.writing(10):
        while True:
            with engine.snapshot() as snapshot:
                pending = snapshot.vectors.pending("random", 4096)
            if not pending:
                return count
            rows = chance.normal(size=(len(pending), DIMENSION)).astype(np.float32)
            digests = tuple(each.digest for each in pending)
            engine.commit(Batch(vectors=Vectors("random", digests, rows)))
            count += len(digests)


def measure(docs: Path, place: Path) -> dict[str, Any]:
    """Index a folder, then move its index by every command."""
    with marklight.open(docs, {**SETTINGS, "engine": f"file:{place / 'index'}"}) as library:
        began = time.perf_counter()
        counts = library.index().index
        indexing = time.perf_counter() - began
        vectors = add_vectors(library.engine)
    source, archive = f"file:{place / 'index'}", str(place / "archive")
    steps = {
        "export": ("export_index", source, archive),
        "import": ("import_index", archive, f"file:{place / 'imported'}"),
        "copy_embedded": ("copy_index", source, f"file:{place / 'copied'}"),
    }
    figures: dict[str, Any] = {
        "documents": counts.documents,
        "passages": counts.chunks,
        "vectors": vectors,
        "index_text_seconds": round(indexing, 2),
    }
    with new_library() as address:
        steps["copy_postgresql"] = ("copy_index", source, address)
        for name, step in steps.items():
            found = in_a_process(STEP, *step)
            figures[name] = {
                "of_indexing_text": round(found["seconds"] / indexing, 2),
                "passages_per_second": round(counts.chunks / found["seconds"]),
                "peak_mb": round(found["peak_mb"]),
            }
    size = sum(file.stat().st_size for file in (place / "index").rglob("*") if file.is_file())
    figures["index_mb"] = round(size / 1e6, 1)
    figures["archive_mb"] = round(Path(archive).stat().st_size / 1e6, 1)
    figures["vectors_mb"] = round(vectors * DIMENSION * 4 / 1e6, 1)
    return figures


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MARKLIGHT_DATA_DIR"] = f"{folder}/data"
        result: dict[str, Any] = {}
        for name in COLLECTIONS:
            place = Path(folder, name)
            place.mkdir()
            result[name] = measure(corpus(name), place)
    save("transfer", result)


if __name__ == "__main__":
    main()
