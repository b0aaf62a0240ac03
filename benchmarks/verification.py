"""Measure what trust and integrity checks cost: each operation with and without them, in turns, in one run.

`python -m benchmarks.verification`: indexes the pages of blue-book without vectors, which would take most of the time, and searches those of
FastAPI with the default model.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import marklight
from benchmarks._measure import corpus, questions, save
from marklight.engines.embedded import lexical_writer, store, stored_rows
from marklight.engines.embedded.engine import EmbeddedStatus
from marklight.place import index_folder

ROUNDS, SEARCHES, OPENINGS = 7, 400, 200
Checks = tuple[tuple[object, str, Callable[..., object]], ...]
SETTINGS = {"model": {"name": "none"}}


@contextmanager
def without(*checks: tuple[object, str, Callable[..., object]]) -> Iterator[None]:
    """Replace checks by something that does nothing."""
    with ExitStack() as stack:
        for owner, name, nothing in checks:
            stack.enter_context(patch.object(owner, name, nothing))
        yield


CHECKSUMS: Checks = (
    (stored_rows, "passage_checksum", lambda *_: 0),
    (stored_rows, "store_checksums", lambda *_: None),
)
PRIVATE: Checks = (
    (lexical_writer, "make_private", lambda *_: None),
    (lexical_writer, "check_safe", lambda *_: None),
)
PASSAGES: Checks = ((EmbeddedStatus, "damaged_chunks", lambda *_: set()),)


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def in_turns(work: Callable[[], object], checks: Checks) -> float:
    """Return the time with the checks divided by the time without, of the medians of rounds in turns."""
    with_checks, bare = [], []
    for _ in range(ROUNDS):
        with_checks.append(timed(work))
        with without(*checks):
            bare.append(timed(work))
    return statistics.median(with_checks) / statistics.median(bare)


def searching(docs: Path) -> float:
    """Return the ratio for the default search, each query in turns."""
    shutil.copytree(corpus("fastapi"), docs)
    queries = questions("fastapi-anchors")[:SEARCHES]
    with_checks, bare = 0.0, 0.0
    with marklight.open(docs) as library:
        library.index()
        for text in (*queries[:20], *queries * ROUNDS):
            library.search(text, refresh=False)
            with_checks += timed(lambda text=text: library.search(text, refresh=False))  # type: ignore[misc]
            with without(*PASSAGES):
                bare += timed(lambda text=text: library.search(text, refresh=False))  # type: ignore[misc]
    return with_checks / bare


def measure(root: Path) -> dict[str, float]:
    docs = Path(shutil.copytree(corpus("blue-book"), root / "docs"))

    def index() -> None:
        shutil.rmtree(index_folder(docs.resolve()), ignore_errors=True)
        with marklight.open(docs, SETTINGS) as library:
            library.index()

    index()
    found = {
        "indexing_text_with_checksums": in_turns(index, CHECKSUMS),
        "indexing_text_with_private_files": in_turns(index, PRIVATE),
    }
    index()
    found["searching_with_passages_verified"] = searching(root / "fastapi")

    def opened() -> None:
        for _ in range(OPENINGS):
            with marklight.open(docs, SETTINGS) as library, library.engine.snapshot():
                pass

    schema: Checks = ((store, "check_schema", lambda _: None),)
    found["opening_with_schema_checked"] = in_turns(opened, schema)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["MARKLIGHT_DATA_DIR"] = str(root / "data")
        result = measure(root)
    for name, value in result.items():
        print(f"{name:45} {value:.3f}")
    save("verification", result)


if __name__ == "__main__":
    main()
