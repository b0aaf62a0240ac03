"""How a warm search, opening and a commit grow with the library: times at 1×, 10× and more, with exponents.

`python -m benchmarks.growth [FOLDER [TIMES …]]` indexes every second page of the Kubernetes documentation, then adds copies of these
documents whose words are shuffled, with vectors of random passages and noise, and measures each size in a process of its own. The library
stays in FOLDER, where one is given, and later runs measure it again. All times are processor times without the embedding of the query. A figure
that is r times as large with k times as many passages has the exponent log(r) / log(k).
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import marklight
from benchmarks._measure import arguments, corpus, in_a_process, questions, real_vectors, save
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.model import Batch, DocumentId, Entry, FileState, Vectors, digest
from marklight.operations import ModeName
from marklight.place import STORE, record_database

TIMES = (1, 10, 50)
WARM, QUERIES, ROUNDS = 20, 100, 3
NOISE = 0.3
"""Length of the noise on a vector of length 1: copies then have a cosine of .96 with their original, and .92 with each other."""
COMMIT_DOCUMENTS = 400

MEASURE = """
import json, sys
from pathlib import Path
from benchmarks.growth import figures
print(json.dumps(figures(Path(sys.argv[1]))))
"""


def shuffled(entry: Entry, copy: int, pages: Path) -> Entry:
    """Return a copy of a document under another path and title, its words in another order: no passage has the terms of another."""
    path = f"copy{copy}/{entry.document.id.path}"
    id = DocumentId(entry.document.id.collection, path)
    page = pages / path
    page.parent.mkdir(parents=True, exist_ok=True)
    page.touch()
    title, chunks = f"{entry.document.title} {copy}", []
    words = [word for chunk in entry.chunks for word in chunk.text.split()]
    random.Random(path).shuffle(words)
    for chunk in entry.chunks:
        count = len(chunk.text.split())
        text, words = " ".join(words[:count]), words[count:]
        chunks.append(
            replace(
                chunk,
                id=digest(path, str(chunk.ordinal), size=8),
                document=id,
                title=title,
                text=text,
                digest=digest(path, text),
                boilerplate=(),
            )
        )
    document = replace(
        entry.document,
        id=id,
        title=title,
        text="\n".join(chunk.text for chunk in chunks),
        file=FileState.from_stat(page.stat()),
        digest=digest(path),
        links=(),
        names=(),
    )
    return Entry(document, tuple(chunks))


def grouped(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    for entry in entries:
        group.append(entry)
        if len(group) == COMMIT_DOCUMENTS:
            yield group
            group = []
    yield group


def add_copies(
    engine: EmbeddedEngine,
    model: str,
    originals: list[Entry],
    vectors: np.ndarray,
    copies: range,
    pages: Path,
) -> float:
    """Commit shuffled copies with their vectors; return the processor time of the commits in seconds."""
    chance, seconds = np.random.default_rng(copies.start), 0.0
    made = (shuffled(entry, copy, pages) for copy in copies for entry in originals)
    with engine.writing(60):
        for group in grouped(made):
            digests = tuple(chunk.digest for entry in group for chunk in entry.chunks)
            rows = vectors[chance.integers(0, len(vectors), len(digests))]
            noise = chance.normal(size=rows.shape) * NOISE / sqrt(rows.shape[1])
            noisy = (rows + noise).astype(np.float32)
            noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
            began = time.process_time()
            engine.commit(Batch(entries=tuple(group)))
            engine.commit(Batch(vectors=Vectors(model, digests, noisy)))
            seconds += time.process_time() - began
    return seconds


def build(place: Path, times: tuple[int, ...]) -> dict[int, float]:
    """Build an index for each size that is not there yet; return the processor time of commits per added copy in seconds."""
    source, pages = corpus("kubernetes"), place / "pages"
    if not (place / "1").is_dir():
        for number, path in enumerate(sorted(source.rglob("*.md"))):
            if number % 2 == 0:
                page = pages / path.relative_to(source)
                page.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, page)
        with marklight.open(pages, {"engine": f"file:{place / '1'}"}) as library:
            library.index()
    vectors, spent = real_vectors(place / "1"), {}
    engine = EmbeddedEngine(place / "1")
    with engine.snapshot() as snapshot:
        originals = list(snapshot.contents.entries())
        (model,) = snapshot.contents.models()
        id = snapshot.library
    engine.close()
    for smaller, larger in pairwise(times):
        if (place / str(larger)).is_dir():
            continue
        partial = place / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(place / str(smaller), partial)
        record_database(partial, partial / STORE, id)
        engine = EmbeddedEngine(partial)
        seconds = add_copies(engine, model, originals, vectors, range(smaller, larger), pages)
        engine.close()
        partial.rename(place / str(larger))
        spent[larger] = seconds / (larger - smaller)
    return spent


def figures(index: Path) -> dict[str, Any]:
    """Measure the processor time of one size, for each query the best of some rounds that begin with empty caches.

    The vectors of queries are computed before, so that a search does all but embed.
    """
    queries = questions()[: WARM + QUERIES]
    best: dict[ModeName, dict[str, float]] = {"hybrid": {}, "keyword": {}}
    first: list[float] = []
    embedder: Any = None
    for _ in range(ROUNDS):
        with marklight.open(index.parent / "pages", {"engine": f"file:{index}"}) as library:
            embedder = embedder or library.models.embedder
            vars(library.models)["embedder"] = embedder
            for text in queries:
                embedder.embed_query(text)
                for mode, times in best.items():
                    began = time.process_time()
                    answer = library.search(text, mode=mode, refresh=False)
                    spent = (time.process_time() - began) * 1e3
                    times[text] = min(spent, times.get(text, spent))
                    if text == queries[0] and mode == "hybrid":
                        first.append(spent)
            megabytes = sum(library.engine.sizes().values()) / 1e6
    warm = {mode: sorted(times[text] for text in queries[WARM:]) for mode, times in best.items()}
    return {
        "passages": answer.index.chunks,
        "search_processor_ms": statistics.median(warm["hybrid"]),
        "search_p95_processor_ms": warm["hybrid"][int(QUERIES * 0.95)],
        "keyword_search_processor_ms": statistics.median(warm["keyword"]),
        "open_and_first_search_processor_ms": min(first),
        "megabytes": megabytes,
    }


def main() -> None:
    folder, *given = arguments() or [""]
    times = tuple(map(int, given)) or TIMES
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(folder or temporary).resolve()
        spent = build(place, times)
        sizes = {size: in_a_process(MEASURE, str(place / str(size))) for size in times}
    for size, seconds in spent.items():
        sizes[size]["commit_processor_s_per_1000_passages"] = 1000 * seconds / sizes[1]["passages"]
    exponents = {
        f"{one}x to {two}x": {
            name: round(
                log(value / sizes[one][name])
                / log(sizes[two]["passages"] / sizes[one]["passages"]),
                2,
            )
            for name, value in sizes[two].items()
            if name in sizes[one] and isinstance(value, float)
        }
        for one, two in pairwise(times)
    }
    save("growth", {**{f"{size}x": sizes[size] for size in times}, "exponents": exponents})


if __name__ == "__main__":
    main()
