"""Vector search in PostgreSQL against the embedded engine: time, recall and size, exact and by HNSW, with and without filters.

Passages are real text and vectors real ones with variants of them, 100,000 in all. An argument names the folder of an index
of the Kubernetes pages that was made before; without it the pages are embedded first, which takes some minutes.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from tests.servers.postgres import PostgresServer, new_server

from benchmarks._measure import corpus, questions, real_index, real_vectors, save
from benchmarks.engine import entry
from marklight import engines, models
from marklight.engines import PostgresSettings, ServerSettings
from marklight.model import Batch, Entry, Vectors, digest
from marklight.ports import Engine
from marklight.query import Filters

PASSAGES, PER_DOCUMENT, WORDS = 100_000, 10, 60
BATCH_DOCUMENTS, QUERIES, LIMIT = 500, 60, 20
NOISE = 0.6
"""Length of what is added to a vector of length one to make another of it: their cosine is 0.86."""
SHARES = {"1 %": 1, "10 %": 10, "50 %": 50}
MODEL = "measured"
NEVER = 10**8


def texts() -> Iterator[str]:
    """Passages of the Kubernetes pages, again and again."""
    words = [
        word
        for path in sorted(corpus("kubernetes").rglob("*.md"))[:400]
        for word in re.findall(r"\w+", path.read_text())
    ]
    yield from cycle(" ".join(words[at : at + WORDS]) for at in range(0, len(words) - WORDS, WORDS))


def documents() -> Iterator[Entry]:
    """Documents of ten passages; a tag for each share of them that a filter selects."""
    given = texts()
    for number in range(PASSAGES // PER_DOCUMENT):
        made = entry(number)
        chunk = made.chunks[0]
        chunks = tuple(
            replace(
                chunk,
                id=digest(made.document.id.path, str(at), size=8),
                ordinal=at,
                text=text,
                digest=digest(text, str(number)),
            )
            for at, text in enumerate(islice(given, PER_DOCUMENT))
        )
        chance = int(digest(str(number)), 16) % 100
        tags = tuple(f"share{share}" for share in SHARES.values() if chance < share)
        yield Entry(replace(made.document, tags=tags, text=chunks[0].text), chunks)


def noisy(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """Yield real vectors, then variants of them without end."""
    chance = np.random.default_rng(0)
    yield from vectors
    while True:
        block = vectors + chance.normal(size=vectors.shape) * NOISE / np.sqrt(vectors.shape[1])
        yield from (block / np.linalg.norm(block, axis=1, keepdims=True)).astype(np.float32)


def variants(vectors: np.ndarray) -> np.ndarray:
    """Return as many vectors as there are passages, in random order."""
    chosen = np.stack(list(islice(noisy(vectors), PASSAGES)))
    return np.random.default_rng(0).permutation(chosen)


def fill(engine: Engine, entries: list[Entry], matrix: np.ndarray) -> dict[str, float]:
    text_s = vectors_s = 0.0
    with engine.writing(60):
        for start in range(0, len(entries), BATCH_DOCUMENTS):
            batch = tuple(entries[start : start + BATCH_DOCUMENTS])
            began = time.perf_counter()
            engine.commit(Batch(entries=batch))
            text_s += time.perf_counter() - began
            digests = tuple(chunk.digest for each in batch for chunk in each.chunks)
            rows = matrix[start * PER_DOCUMENT :][: len(digests)]
            began = time.perf_counter()
            engine.commit(Batch(vectors=Vectors(MODEL, digests, rows)))
            vectors_s += time.perf_counter() - began
    return {"commit_text_s": text_s, "commit_vectors_s": vectors_s}


def build(server: PostgresServer, engine: Engine) -> float:
    """Let a commit start the build of the HNSW index and wait until it is complete."""
    began = time.perf_counter()
    with engine.writing(60):
        engine.commit(Batch(manifest={"measured": "yes"}))
    valid = "SELECT 1 FROM pg_index WHERE indisvalid AND indexrelid::regclass::text LIKE '%hnsw%'"
    while not server.sql(valid):
        time.sleep(0.2)
    return time.perf_counter() - began


def add_to_index(engine: Engine, matrix: np.ndarray) -> float:
    """Milliseconds for each vector that a commit adds to the index."""
    new = [entry(at, version=1) for at in range(30)]
    digests = tuple(chunk.digest for each in new for chunk in each.chunks)
    began = time.perf_counter()
    with engine.writing(60):
        engine.commit(Batch(vectors=Vectors(MODEL, digests, matrix[: len(digests)])))
    return (time.perf_counter() - began) * 1000 / len(digests)


def searches(
    searched: Mapping[str, Engine], queries: np.ndarray, filters: Filters, truth: list[set[str]]
) -> dict[str, Any]:
    """Search in all engines in turn, so that the load of the machine is the same for all."""
    times: dict[str, list[float]] = {name: [] for name in searched}
    recalls: dict[str, list[float]] = {name: [] for name in searched}
    for number, query in enumerate(queries):
        for name, engine in searched.items():
            with engine.snapshot() as snapshot:
                snapshot.metadata.count_matching(
                    filters
                )  # evaluates the filter, for all retrievers
                began = time.perf_counter()
                found = snapshot.vectors.search(query, MODEL, filters, LIMIT)
                times[name].append((time.perf_counter() - began) * 1000)
            best = {each.chunk_id for each in found[:10]}
            recalls[name].append(len(best & truth[number]) / 10)
    result: dict[str, Any] = {
        name: {
            "p50_ms": statistics.median(times[name]),
            "recall_at_10": statistics.mean(recalls[name]),
        }
        for name in searched
    }
    embedded = statistics.median(times["embedded"])
    result["ratios"] = {
        f"{name} over embedded": statistics.median(times[name]) / embedded
        for name in searched
        if name != "embedded"
    }
    return result


def best_ids(
    entries: list[Entry], matrix: np.ndarray, queries: np.ndarray, tag: str
) -> list[set[str]]:
    """The best ten passages of each query by comparing all of them."""
    ids = np.array([chunk.id for each in entries for chunk in each.chunks])
    matching = np.array(
        [not tag or tag in each.document.tags for each in entries for _ in each.chunks]
    )
    found = []
    for query in queries:
        scores = np.where(matching, np.vecdot(matrix, query), -np.inf)
        found.append(set(ids[np.argpartition(scores, len(scores) - 10)[-10:]].tolist()))
    return found


def main() -> None:
    model = models.load()
    queries = np.stack([model.embed_query(text) for text in questions()[:QUERIES]])
    with tempfile.TemporaryDirectory() as place, new_server(shared_buffers="512MB") as server:
        index = Path(sys.argv[1]) if sys.argv[1:] else real_index(Path(place) / "real", ())
        matrix, entries = variants(real_vectors(index)), list(documents())
        address = server.address()
        exact = engines.open(address, ServerSettings(PostgresSettings(exact_below=NEVER)))
        hnsw = engines.open(address)
        embedded = engines.open(Path(place) / "embedded")
        figures: dict[str, Any] = {"passages": PASSAGES}
        figures["embedded"] = fill(embedded, entries, matrix)
        figures["postgresql"] = fill(exact, entries, matrix)
        server.sql("VACUUM ANALYZE")
        figures["hnsw_build_s"] = build(server, hnsw)
        searched = {"embedded": embedded, "exact": exact, "hnsw": hnsw}
        for name, share in {"all": 0, **SHARES}.items():
            tag = f"share{share}" if share else ""
            filters = Filters(tags=(tag,)) if tag else Filters()
            truth = best_ids(entries, matrix, queries, tag)
            figures[name] = searches(searched, queries, filters, truth)
        figures["bytes_per_passage"] = bytes_per_passage(server)
        figures["add_to_index_ms"] = add_to_index(hnsw, matrix)
        for engine in searched.values():
            engine.close()
    save("pgvector", figures)


def bytes_per_passage(server: PostgresServer) -> dict[str, float]:
    """Bytes of the table and of its indexes for each passage."""
    rows = server.sql(
        "SELECT 'table', pg_table_size('marklight.vectors') UNION ALL"
        " SELECT CASE WHEN c.relname LIKE '%hnsw%' THEN 'hnsw' ELSE 'digests' END, pg_relation_size(c.oid)"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = 'marklight.vectors'::regclass"
    )
    return {str(name): int(str(size)) / PASSAGES for name, size in rows}


if __name__ == "__main__":
    main()
