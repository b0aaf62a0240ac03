"""The embedded engine alone: commits, opening and searching at one and at ten times the size."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks._measure import in_a_process, peak_megabytes, save
from marklight import engines
from marklight.model import (
    Batch,
    Chunk,
    Document,
    DocumentId,
    Entry,
    FileState,
    Kind,
    Name,
    NameStrength,
    Vectors,
    digest,
)
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters

DOCUMENTS, PASSAGES, WORDS, DIMENSION = 1_672, 9, 120, 384
MODEL = "made-up"
VOCABULARY = [f"{first}{second}{third}" for first in "bcdfglmn" for second in
              ("an", "el", "ir", "ost", "um", "ark", "ift", "ent") for third in
              ("a", "ing", "ed", "er", "ion", "s", "ly", "al", "or", "ure", "ism", "ous")]  # fmt: skip


def entry(number: int, version: int = 0) -> Entry:
    """A made-up document, as long as one of the Kubernetes pages."""
    chance = random.Random(f"{number} {version}")
    id = DocumentId("docs", f"part{number % 40}/page{number}.md")
    texts = [" ".join(chance.choices(VOCABULARY, k=WORDS)) for _ in range(PASSAGES)]
    chunks = tuple(
        Chunk(
            id=digest(id.path, str(at), size=8),
            document=id,
            ordinal=at,
            title=f"Page {number}",
            headings=(f"Page {number}", f"Section {at}"),
            anchor=f"section-{at}",
            lines=(at * 10, at * 10 + 9),
            kind=Kind.PROSE,
            text=text,
            parent=digest(id.path, size=8),
            digest=digest(text),
        )
        for at, text in enumerate(texts)
    )
    document = Document(
        id=id,
        title=f"Page {number}",
        text="\n\n".join(texts),
        file=FileState(len(texts), number),
        digest=digest(*texts),
        tags=(f"tag{number % 50}",),
        names=(Name(id.path, NameStrength.PATH),),
    )
    return Entry(document, chunks)


def vectors_of(entries: list[Entry]) -> Vectors:
    digests = tuple(chunk.digest for each in entries for chunk in each.chunks)
    rows = np.random.default_rng(len(digests)).normal(size=(len(digests), DIMENSION))
    return Vectors(MODEL, digests, rows.astype(np.float32))


def median_ms(work: Callable[[int], object], rounds: int) -> float:
    took = []
    for number in range(rounds):
        began = time.perf_counter()
        work(number)
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def figures(folder: Path, times: int) -> dict[str, float]:
    """Everything at one size."""
    engine = engines.open(folder)
    text_s = vectors_s = 0.0
    with engine.writing(0):
        for start in range(0, DOCUMENTS * times, 400):
            entries = [entry(at) for at in range(start, min(start + 400, DOCUMENTS * times))]
            began = time.perf_counter()
            engine.commit(Batch(entries=tuple(entries)))
            text_s += time.perf_counter() - began
            new = vectors_of(entries)
            began = time.perf_counter()
            engine.commit(Batch(vectors=new))
            vectors_s += time.perf_counter() - began
        began = time.perf_counter()
    text_s += time.perf_counter() - began
    peak = peak_megabytes()  # before a search maps the matrix
    found = {
        "commit_text_s": text_s,
        "commit_vectors_s": vectors_s,
        "peak_megabytes": peak,
        "one_changed_ms": median_ms(lambda turn: change(engine, turn), 25),
        "one_changed_alone_ms": median_ms(lambda turn: change(engines.open(folder), turn + 25), 9),
        "open_and_counts_ms": median_ms(lambda _: counts(engines.open(folder)), 9),
        "files_ms": median_ms(lambda _: files(engine), 5),
    }
    return {**found, **searches(engine), "megabytes": sum(engine.sizes().values()) / 1e6}


def change(engine: Engine, turn: int) -> None:
    """One document with other words, and its vectors."""
    new = entry(turn, version=1)
    with engine.writing(5):
        engine.commit(Batch(entries=(new,)))
        engine.commit(Batch(vectors=vectors_of([new])))


def counts(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts(MODEL).documents


def files(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        assert snapshot.documents.files()


def searches(engine: Engine) -> dict[str, float]:
    chance = random.Random(5)
    questions = [chance.choices(VOCABULARY, k=4) for _ in range(40)]
    rows = np.random.default_rng(1).normal(size=(40, DIMENSION)).astype(np.float32)
    tagged = Filters(tags=("tag7",))
    with engine.snapshot() as snapshot:
        snapshot.vectors.search(rows[0], MODEL, Filters(), 20)
        return {
            "keyword_ms": median_ms(
                lambda at: snapshot.lexical.search(questions[at], FIELD_BOOSTS, Filters(), 20), 40
            ),
            "keyword_filtered_ms": median_ms(
                lambda at: snapshot.lexical.search(questions[at], FIELD_BOOSTS, tagged, 20), 40
            ),
            "semantic_ms": median_ms(
                lambda at: snapshot.vectors.search(rows[at], MODEL, Filters(), 20), 20
            ),
            "semantic_filtered_ms": median_ms(
                lambda at: snapshot.vectors.search(rows[at], MODEL, tagged, 20), 20
            ),
        }


ALONE = """
import json, sys
from pathlib import Path
from benchmarks.engine import figures
print(json.dumps(figures(Path(sys.argv[1]), int(sys.argv[2]))))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        small = in_a_process(ALONE, f"{place}/one", "1")
        large = in_a_process(ALONE, f"{place}/ten", "10")
    ratios = {f"{name}, 10x over 1x": large[name] / small[name] for name in small}
    save("engine", {"1x": small, "10x": large, "ratios": ratios})


if __name__ == "__main__":
    main()
