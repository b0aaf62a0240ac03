"""Exact search over vectors against a first look at their signs: time and recall by size, on real vectors."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import in_a_process, questions, real_index, real_vectors, save
from marklight import models
from marklight.engines.embedded.semantic import top
from marklight.engines.embedded.signs import likely, signs_of

SIZES = (20_000, 50_000, 100_000, 200_000, 500_000)
ASKED, ROUNDS = 100, 25
NOISE = 0.6
"""Length of what is added to a vector of length one to make another of it: their cosine is 0.86."""


def grown(vectors: np.ndarray, size: int, path: Path) -> np.ndarray:
    """Real vectors and as many variants of them as are needed, in a file that is mapped as the engine does."""
    chance = np.random.default_rng(0)
    rows = np.memmap(path, dtype="<f4", mode="w+", shape=(size, vectors.shape[1]))
    for start in range(0, size, len(vectors)):
        block = vectors[: size - start].copy()
        if start:
            block += chance.normal(size=block.shape) * NOISE / np.sqrt(block.shape[1])
            block /= np.linalg.norm(block, axis=1, keepdims=True)
        rows[start : start + len(block)] = block
    rows.flush()
    return np.asarray(np.memmap(path, dtype="<f4", mode="r", shape=rows.shape))


def milliseconds(work: Callable[[int], object]) -> dict[str, float]:
    """The first time, and what is usual after it."""
    took = []
    for at in range(ROUNDS):
        began = time.perf_counter()
        work(at)
        took.append((time.perf_counter() - began) * 1000)
    return {"first": took[0], "median": statistics.median(took[1:]), "least": min(took)}


def figures(vectors_path: str, asked_path: str, size: int) -> dict[str, Any]:
    asked = np.load(asked_path)
    with tempfile.TemporaryDirectory() as place:
        matrix = grown(np.load(vectors_path), size, Path(place) / "rows")
        signs = np.concatenate([signs_of(matrix[at : at + 8192]) for at in range(0, size, 8192)])

        def exact(at: int) -> list[int]:
            return top(matrix @ asked[at], 72)

        def quick(at: int) -> list[int]:
            near = likely(signs, asked[at], 20)
            return [int(near[each]) for each in top(matrix[near] @ asked[at], 72)]

        evict(Path(place) / "rows")
        found: dict[str, Any] = {"exact_ms": milliseconds(exact)}
        evict(Path(place) / "rows")
        found["signs_ms"] = milliseconds(quick)
        for limit in (10, 20, 50, 100):
            shares = []
            for question in asked:
                scores = matrix @ question
                best = set(np.argpartition(-scores, limit)[:limit].tolist())
                shares.append(len(best & set(likely(signs, question, limit).tolist())) / limit)
            found[f"recall_at_{limit}"] = statistics.mean(shares)
    return found


def evict(path: Path) -> None:
    """Let the system forget what it has read of a file, where it can be asked to."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


ALONE = """
import json, sys
from benchmarks.signs import figures
print(json.dumps(figures(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
"""


def main() -> None:
    model = models.load()
    with tempfile.TemporaryDirectory() as place:
        vectors, asked = f"{place}/vectors.npy", f"{place}/asked.npy"
        np.save(vectors, real_vectors(real_index(Path(place) / "index", sys.argv[1:])))
        np.save(asked, np.stack([model.embed_query(text) for text in questions()[:ASKED]]))
        rows = {}
        for threads in ("1", "2"):
            os.environ["OPENBLAS_NUM_THREADS"] = threads
            for size in SIZES:
                name = f"{size} vectors, {threads} threads"
                rows[name] = in_a_process(ALONE, vectors, asked, str(size))
                print(name, rows[name], flush=True)
    save("signs", rows)


if __name__ == "__main__":
    main()
