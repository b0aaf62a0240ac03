"""The engines on servers against the embedded engine: whole hybrid searches and each retriever, on the same passages in one run.

`python -m benchmarks.fleet [--only-fleet] [--vectors INDEX] [PASSAGES …]`: 100,000 passages unless given. With several sizes, such
as 10000 100000 1000000, the library grows from one to the next, and the growth exponent of the time of a search is computed. Texts are
those of the collections, repeated with altered words. Vectors are real ones of the Kubernetes pages and variants of them; `--vectors`
names the folder of an index of these pages that was made before. With `--only-fleet` there are no other engines beside Qdrant, and
no comparison. `TEST_SCRATCH` names the folder of the servers, which are in memory otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.servers.postgres import new_server
from tests.servers.qdrant import Node, new_fleet_library, running_nodes

from benchmarks._measure import real_index, real_vectors, save
from benchmarks.pgvector import noisy
from benchmarks.postgres import DOCUMENTS_PER_COMMIT, entries, quantiles
from marklight import engines, models
from marklight.engines.server.qdrant import QdrantVectorReader
from marklight.library.configuration import compose_pipeline, read_settings
from marklight.model import Batch, Entry, Vectors
from marklight.ports import FIELD_BOOSTS, Embedder, Engine, Tools
from marklight.query import Filters, Query
from marklight.search.pipeline import Pipeline
from marklight.text.analyzer import query_terms

QUERIES, WARM = 60, 20
CANDIDATES = 30
SHARES = {"1 %": 1, "10 %": 10, "50 %": 50}


def tagged(document: Entry) -> Entry:
    """Add a tag for each share of the documents that a filter selects."""
    chance = int(document.chunks[0].digest if document.chunks else "0", 16) % 100
    tags = tuple(f"share{share}" for share in SHARES.values() if chance < share)
    return replace(document, document=replace(document.document, tags=tags))


def batches(
    documents: Iterator[Entry], passages: int, vectors: Iterator[np.ndarray], model: str
) -> Iterator[Batch]:
    """Yield batches of documents with their vectors, until there are that many passages."""
    total = 0
    while total < passages:
        part = tuple(map(tagged, itertools.islice(documents, DOCUMENTS_PER_COMMIT)))
        digests = tuple(chunk.digest for each in part for chunk in each.chunks)
        total += len(digests)
        rows = np.stack(list(itertools.islice(vectors, len(digests))))
        yield Batch(part, vectors=Vectors(model, digests, rows))


def questions(documents: Sequence[Entry]) -> list[str]:
    """Return queries of two to six words that follow each other in some passage."""
    chance, found = random.Random(3), list[str]()
    while len(found) < QUERIES:
        words = chance.choice(chance.choice(documents).chunks).text.split()
        if len(words) > 8:
            at = chance.randrange(len(words) - 6)
            found.append(" ".join(words[at : at + chance.randint(2, 6)]))
    return found


def searches(model: Embedder) -> dict[str, Callable[[Engine, str], None]]:
    """Return the searches that are measured: whole ones, and each retriever."""
    pipeline: Pipeline = compose_pipeline(read_settings(Path("/"), (), {}))

    def hybrid(engine: Engine, text: str) -> None:
        with engine.snapshot() as snapshot:
            pipeline(Query(text), Tools(snapshot, model))

    def keyword(filters: Filters) -> Callable[[Engine, str], None]:
        def run(engine: Engine, text: str) -> None:
            with engine.snapshot() as snapshot:
                snapshot.lexical.search(query_terms(text), FIELD_BOOSTS, filters, CANDIDATES)

        return run

    def vectors(filters: Filters) -> Callable[[Engine, str], None]:
        def run(engine: Engine, text: str) -> None:
            with engine.snapshot() as snapshot:
                vector = model.embed_query(text)
                snapshot.vectors.search(vector, model.fingerprint, filters, CANDIDATES)

        return run

    few = Filters(tags=("share1",))
    return {
        "hybrid": hybrid,
        "keyword": keyword(Filters()),
        "keyword, filtered": keyword(few),
        "vectors": vectors(Filters()),
        "vectors, filtered": vectors(few),
    }


def measure(
    compared: Mapping[str, Engine], model: Embedder, texts: Sequence[str]
) -> dict[str, Any]:
    """Return the times of all engines, which take turns, and the ratios to the embedded engine."""
    figures: dict[str, Any] = {}
    for name, search in searches(model).items():
        took: dict[str, list[float]] = {label: [] for label in compared}
        for at, text in enumerate([*texts[:WARM], *texts]):
            for label, engine in compared.items():
                began = time.perf_counter()
                search(engine, text)
                if at >= WARM:
                    took[label].append((time.perf_counter() - began) * 1000)
        times = {label: quantiles(each) for label, each in took.items()}
        figures[name] = dict[str, Any](times)
        if "embedded" in times:
            figures[name]["over embedded"] = {
                label: each["p50_ms"] / times["embedded"]["p50_ms"]
                for label, each in times.items()
                if label != "embedded"
            }
    return figures


def recall(engine: Engine, filters: Filters, model: Embedder, texts: Sequence[str]) -> float:
    """Return the share of the nearest ten by comparison of all vectors that the vector index finds."""
    found = 0.0
    for text in texts:
        vector = model.embed_query(text)
        best = []
        for exact in (False, True):
            with engine.snapshot() as snapshot:
                assert isinstance(snapshot.vectors, QdrantVectorReader)
                snapshot.vectors.exact = exact
                results = snapshot.vectors.search(vector, model.fingerprint, filters, 10)
                best.append({result.chunk_id for result in results})
        found += len(best[0] & best[1]) / max(1, len(best[1]))
    return found / len(texts)


def resources(node: Node, passages: int) -> dict[str, float]:
    """Return memory and disk of the node, for each passage."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    resident, own = (
        1024 * int(status.split(f"{name}:")[1].split()[0]) for name in ("VmRSS", "RssAnon")
    )
    disk = sum(file.stat().st_blocks * 512 for file in node.folder.rglob("*") if file.is_file())
    return {
        "memory bytes per passage": resident / passages,
        "memory bytes per passage, without mapped files": own / passages,
        "disk bytes per passage": disk / passages,
    }


def settled(node: Node) -> None:
    """Wait until Qdrant has built its indexes."""
    from qdrant_client import QdrantClient

    client = QdrantClient(url=node.url)
    for collection in client.get_collections().collections:
        while client.get_collection(collection.name).status != "green":
            time.sleep(0.5)
    client.close()


def growth(figures: Mapping[str, Any], sizes: Sequence[int], name: str) -> float:
    """Return the exponent by which the time of a search in Qdrant grows with the number of passages."""
    first, last = figures[str(sizes[0])], figures[str(sizes[-1])]
    times = [each["search"][name]["fleet"]["p50_ms"] for each in (first, last)]
    return math.log(times[1] / times[0]) / math.log(last["passages"] / first["passages"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000])
    parser.add_argument("--only-fleet", action="store_true")
    parser.add_argument("--vectors", type=Path)
    options = parser.parse_args()
    sizes, figures, model = sorted(options.sizes), dict[str, Any](), models.load()
    with (
        tempfile.TemporaryDirectory() as folder,
        new_server(shared_buffers="512MB") as server,
        running_nodes() as (node,),
        new_fleet_library([node], server) as address,
    ):
        index = options.vectors or real_index(Path(folder) / "real", ())
        vectors = noisy(real_vectors(index))
        compared = {"fleet": engines.open(address)}
        if not options.only_fleet:
            compared["postgresql"] = engines.open(server.address(library="plain"))
            compared["embedded"] = engines.open(Path(folder) / "embedded")
        documents, sample, total = entries(2 * sizes[-1]), list[Entry](), 0
        for size in sizes:
            seconds = dict.fromkeys(compared, 0.0)
            for batch in batches(documents, size - total, vectors, model.fingerprint):
                sample += [each for each in batch.entries[:20] if each.chunks]
                for label, engine in compared.items():
                    began = time.perf_counter()
                    with engine.writing(60):
                        engine.commit(batch)
                    seconds[label] += time.perf_counter() - began
                total += sum(len(each.chunks) for each in batch.entries)
                print(total, seconds, flush=True)
            settled(node)
            server.sql("VACUUM ANALYZE")
            texts = questions(sample)
            filters = {name: Filters(tags=(f"share{each}",)) for name, each in SHARES.items()}
            figures[str(size)] = {
                "passages": total,
                "load_s": seconds,
                "search": measure(compared, model, texts),
                "recall of vectors": {
                    name: recall(compared["fleet"], each, model, texts)
                    for name, each in {"all": Filters(), **filters}.items()
                },
                **resources(node, total),
            }
            print(size, figures[str(size)], flush=True)
        for engine in compared.values():
            engine.close()
    if len(sizes) > 1:
        figures["growth exponents"] = {
            name: growth(figures, sizes, name) for name in figures[str(sizes[0])]["search"]
        }
    save("fleet_growth" if options.only_fleet else "fleet", figures)


if __name__ == "__main__":
    main()
