"""A warm search stage by stage against embedding its question, its legs against bare libraries, and a cold one."""

from __future__ import annotations

import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
import tantivy

import marklight
from benchmarks._measure import corpus, in_a_process, questions, real_index, real_vectors, save
from marklight import models
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.engines.embedded.lexical_index import bm25_query
from marklight.ports import FIELD_BOOSTS, Embedder
from marklight.query import Filters
from marklight.text.analyzer import query_terms

if TYPE_CHECKING:
    from marklight.model import Matrix

WARM, QUERIES, COLD = 20, 200, 9
CANDIDATES = 30
"""What a retriever fetches for a search with the usual number of results."""
PROSE = re.compile(r"[A-Za-z]")
PROGRAM = str(Path(sys.executable).with_name("marklight"))


class Borrowed:
    """Stands in for a model while a large library is made: vectors that it gave before, with a little noise."""

    def __init__(self, model: Embedder, vectors: Matrix) -> None:
        self.name, self.fingerprint = model.name, model.fingerprint
        self.dimension, self.token_limit = model.dimension, model.token_limit
        self._vectors, self._chance = vectors, np.random.default_rng(0)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [min(len(text) // 4, self.token_limit) for text in texts]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        rows = self._vectors[self._chance.integers(0, len(self._vectors), len(texts))]
        noisy = rows + self._chance.normal(size=rows.shape) * 0.3 / np.sqrt(self.dimension)
        return np.asarray(noisy / np.linalg.norm(noisy, axis=1, keepdims=True), np.float32)

    def embed_query(self, text: str) -> Any:
        return self.embed_passages([text])[0]


def shuffled(text: str, chance: random.Random) -> str:
    """A page with the words of its prose in another order, so that no passage is nearly another."""
    lines = text.split("\n")
    prose = [at for at, line in enumerate(lines) if PROSE.match(line) and ":" not in line]
    words = [word for at in prose for word in lines[at].split(" ")]
    chance.shuffle(words)
    for at in prose:
        count = len(lines[at].split(" "))
        lines[at], words = " ".join(words[:count]), words[count:]
    return "\n".join(lines)


def copied(source: Path, target: Path, copies: Iterable[int], share: int = 1) -> None:
    """The collection under new paths, every page or one in so many."""
    for copy in copies:
        for number, path in enumerate(sorted(source.rglob("*.md"))):
            if number % share:
                continue
            page = target / f"copy{copy}" / path.relative_to(source)
            page.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            page.write_text(shuffled(text, random.Random(f"{copy} {number}")) if copy else text)


def made(folder: Path, index: Path, vectors: Matrix) -> None:
    """A library of these pages as `marklight index` makes it, in all but its vectors."""
    with marklight.open(folder, {"engine": f"file:{index}"}) as library:
        model = library.models.embedder
        assert model
        vars(library.models)["embedder"] = Borrowed(model, vectors)
        library.index()


def percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p95": ordered[int(len(ordered) * 0.95)]}


def timed(work: Callable[..., object], *given: object, **more: object) -> float:
    began = time.perf_counter()
    work(*given, **more)
    return (time.perf_counter() - began) * 1000


def figures(folder: str, index: str) -> dict[str, Any]:
    """Measure one library; each query runs once."""
    queries = questions()
    with marklight.open(folder, {"engine": f"file:{index}"}) as library:
        for text in queries[:WARM]:
            library.search(text, refresh=False)
        model = library.models.embedder
        assert model
        embedding, searching, rest = [], [], []
        stages: dict[str, list[float]] = {}
        for text in queries[WARM : WARM + QUERIES]:
            # The library's own model remembers the vector, so that the search does all but embed. A second
            # model beside it would push the first one's weights out of the processor's memory.
            embedding.append(timed(model.embed_query, text))
            answer = library.search(text, refresh=False)
            rest.append(answer.took_ms)
            searching.append(embedding[-1] + answer.took_ms)
            for step in answer.steps:
                stages.setdefault(step.stage, []).append(step.ms)
        answer = library.search(queries[0], refresh=False)
        again = queries[WARM : WARM + 40]
        without = statistics.median(timed(library.search, text, refresh=False) for text in again)
        with_look = statistics.median(timed(library.search, text) for text in again)
        result: dict[str, Any] = {
            "passages": answer.index.chunks,
            "search_ms": percentiles(searching),
            "embedding_ms": percentiles(embedding),
            "everything_else_ms": percentiles(rest),
            "everything_else_to_embedding": statistics.median(rest) / statistics.median(embedding),
            "stages_ms": {name: percentiles(values) for name, values in stages.items()},
            "look_at_the_disk_ms": with_look - without,
            "at_once": at_once(library, queries[WARM + QUERIES :]),
        }
    return {**result, **legs(Path(index), queries[WARM : WARM + 60])}


def at_once(library: marklight.Library, queries: Sequence[str]) -> dict[str, float]:
    """Searches in a second, of new questions in every round."""

    def ask_all(pool: ThreadPoolExecutor, part: Sequence[str]) -> None:
        list(pool.map(partial(library.search, refresh=False), part))

    found, share = {}, len(queries) // 3
    for number, threads in enumerate((1, 2, 8)):
        part = queries[number * share : (number + 1) * share]
        with ThreadPoolExecutor(threads) as pool:
            took = timed(ask_all, pool, part)
        found[f"{threads} threads, searches_per_s"] = len(part) / took * 1000
    one = found["1 threads, searches_per_s"]
    return {**found, "8 threads to 1": found["8 threads, searches_per_s"] / one}


def legs(index: Path, queries: Sequence[str]) -> dict[str, Any]:
    """Each retriever as the engine has it, against the library below it on its own."""
    model = models.load()
    vectors = [model.embed_query(text) for text in queries]
    words = [query_terms(text) for text in queries]
    matrix = real_vectors(index)
    flat = faiss.IndexFlatIP(matrix.shape[1])
    flat.add(matrix)
    opened = tantivy.Index.open(str(next((index / "lexical").iterdir())))
    engine = EmbeddedEngine(index)

    def numpy_top(vector: np.ndarray) -> np.ndarray:
        return np.argpartition(matrix @ vector, len(matrix) - CANDIDATES)[-CANDIDATES:]

    def tantivy_top(few: Sequence[str]) -> object:
        searcher = opened.searcher()
        query = bm25_query(searcher, few, FIELD_BOOSTS)
        return searcher.search(query, limit=CANDIDATES, count=False).hits

    with engine.snapshot() as snapshot:
        snapshot.lexical.search(words[0], FIELD_BOOSTS, Filters(), CANDIDATES)
        snapshot.vectors.search(vectors[0], model.fingerprint, Filters(), CANDIDATES)
        legs: dict[str, Callable[[Any, Any], object]] = {
            "keyword": lambda _, few: snapshot.lexical.search(
                few, FIELD_BOOSTS, Filters(), CANDIDATES
            ),
            "tantivy": lambda _, few: tantivy_top(few),
            "semantic": lambda vector, _: snapshot.vectors.search(
                vector, model.fingerprint, Filters(), CANDIDATES
            ),
            "faiss": lambda vector, _: flat.search(vector[np.newaxis], CANDIDATES),
            "numpy": lambda vector, _: numpy_top(vector),
        }
        # One after the other, not in turns: threads of numpy and faiss go on spinning for a while.
        took = {
            name: [timed(leg, *each) for each in zip(vectors, words, strict=True)]
            for name, leg in legs.items()
        }
    engine.close()
    usual = {name: statistics.median(values) for name, values in took.items()}
    return {
        "legs_ms": usual,
        "semantic_to_numpy": usual["semantic"] / usual["numpy"],
        "semantic_to_faiss": usual["semantic"] / usual["faiss"],
        "keyword_to_tantivy": usual["keyword"] / usual["tantivy"],
    }


LEAST = """
import click, numpy, onnxruntime, sqlite3, tantivy
from marklight import models
models.load().embed_query("a question")
"""


def cold(folder: Path, index: Path) -> dict[str, float]:
    """A command in a process of its own against what it must load, in turns."""
    compile_dir(Path(marklight.__file__).parent, quiet=1)  # as whoever installs it does
    search = (PROGRAM, "search", "how do I expose a service", str(folder), "--set", f"engine=file:{index}")  # fmt: skip
    commands = {
        "search": search,
        "search_no_refresh": (*search, "--no-refresh"),
        "imports_and_model": (sys.executable, "-c", LEAST),
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(COLD):
        for name, command in commands.items():
            took[name].append(timed(subprocess.run, command, check=True, capture_output=True))
    found = {f"{name}_ms": statistics.median(values) for name, values in took.items()}
    return {**found, "search_to_imports_and_model": found["search_ms"] / found["imports_and_model_ms"]}  # fmt: skip


ALONE = """
import json, sys
from benchmarks.searching import figures
print(json.dumps(figures(sys.argv[1], sys.argv[2])))
"""


def main() -> None:
    """An index of the Kubernetes pages that was made before may be named: embedding them takes minutes."""
    kubernetes = corpus("kubernetes")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        real = real_index(place / "one", sys.argv[1:])
        vectors = real_vectors(real)
        copied(kubernetes, place / "half-pages", (1,), share=2)
        copied(kubernetes, place / "five-pages", range(5))
        copied(kubernetes, place / "five-pages", (5,), share=3)  # 100,000 passages in all
        copied(kubernetes, place / "ten-pages", range(10))
        for size in ("half", "five", "ten"):
            made(place / f"{size}-pages", place / size, vectors)
        results = {
            size: in_a_process(ALONE, str(folder), str(place / size))
            for size, folder in (
                ("half", place / "half-pages"),
                ("one", kubernetes),
                ("five", place / "five-pages"),
                ("ten", place / "ten-pages"),
            )
        }
        shutil.rmtree(place / "five")
        shutil.rmtree(place / "ten")
        save("searching", {**results, "cold": cold(kubernetes, real)})


if __name__ == "__main__":
    main()
