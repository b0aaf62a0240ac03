"""Exact vector search against a first pass over binary vectors: time and recall by size, on real vectors."""

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
from marklight.vector_math import hamming_candidates, sign_bits, top

SIZES = (20_000, 50_000, 100_000, 200_000, 500_000)
QUERIES, ROUNDS = 100, 25
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


def figures(vectors_path: str, queries_path: str, size: int) -> dict[str, Any]:
    queries = np.load(queries_path)
    with tempfile.TemporaryDirectory() as place:
        matrix = grown(np.load(vectors_path), size, Path(place) / "rows")
        binary = np.concatenate([sign_bits(matrix[at : at + 8192]) for at in range(0, size, 8192)])

        def product(at: int) -> list[int]:
            return top(matrix @ queries[at], 72)

        def exact(at: int) -> list[int]:
            return top(np.vecdot(matrix, queries[at]), 72)

        def quick(at: int) -> list[int]:
            near = hamming_candidates(binary, queries[at], 20)
            return [int(near[each]) for each in top(np.vecdot(matrix[near], queries[at]), 72)]

        found: dict[str, Any] = {}
        for name, work in (("product", product), ("exact", exact), ("binary", quick)):
            evict(Path(place) / "rows")
            found[f"{name}_ms"] = milliseconds(work)
        shares: dict[int, list[float]] = {10: [], 20: [], 50: [], 100: []}
        for query in queries:
            scores = np.vecdot(matrix, query)
            for limit, known in shares.items():
                best = np.argpartition(scores, size - limit)[size - limit :]
                known.append(
                    len(np.intersect1d(best, hamming_candidates(binary, query, limit))) / limit
                )
        found |= {f"recall_at_{limit}": statistics.mean(each) for limit, each in shares.items()}
    return found


def evict(path: Path) -> None:
    """Let the system forget what it has read of a file, where it can be queries to."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


ALONE = """
import json, sys
from benchmarks.binary_vectors import figures
print(json.dumps(figures(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
"""


def main() -> None:
    model = models.load()
    with tempfile.TemporaryDirectory() as place:
        vectors, queries = f"{place}/vectors.npy", f"{place}/queries.npy"
        np.save(vectors, real_vectors(real_index(Path(place) / "index", sys.argv[1:])))
        np.save(queries, np.stack([model.embed_query(text) for text in questions()[:QUERIES]]))
        rows = {}
        for size in SIZES:
            rows[f"{size} vectors"] = in_a_process(ALONE, vectors, queries, str(size))
            print(size, rows[f"{size} vectors"], flush=True)
    save("binary_vectors", rows)


if __name__ == "__main__":
    main()
