"""PostgreSQL with Qdrant against the embedded engine: whole hybrid searches on the same passages, in one run.

`python -m benchmarks.fleet [PASSAGES …]`: 100,000 passages unless given. With several sizes, such as 10000 100000 1000000, the
library grows from one to the next, and the growth exponent of the time of a search is computed. Texts are those of the collections,
repeated with altered words; vectors are hashed words, so that no model is part of the time.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.postgres import new_server
from tests.servers.qdrant import Node, new_fleet_library, running_nodes

from benchmarks._measure import save
from benchmarks.postgres import DOCUMENTS_PER_COMMIT, entries, milliseconds
from marklight import engines
from marklight.answer import Filters, Query
from marklight.engines import QdrantSettings, ServerSettings
from marklight.library.configuration import compose_pipeline, read_settings
from marklight.model import Batch, Entry, Vectors
from marklight.models.fake import FakeEmbedder
from marklight.ports import FIELD_BOOSTS, Engine, Tools
from marklight.search.pipeline import Pipeline
from marklight.text import query_terms
from marklight.text.markdown import embedding_text

MODEL = FakeEmbedder(dimension=384)
QUERIES, WARM = 60, 20
CANDIDATES = 30
FILTER = Filters(collections=("kubernetes",))


def batches(documents: Iterator[Entry], passages: int) -> Iterator[Batch]:
    """Yield batches of documents with their vectors, until there are that many passages."""
    total = 0
    while total < passages:
        part = tuple(itertools.islice(documents, DOCUMENTS_PER_COMMIT))
        chunks = [chunk for each in part for chunk in each.chunks]
        texts = [embedding_text(each.title, each.headings, each.text) for each in chunks]
        total += len(chunks)
        digests = tuple(each.digest for each in chunks)
        yield Batch(part, vectors=Vectors(MODEL.fingerprint, digests, MODEL.embed_passages(texts)))


def questions(documents: Sequence[Entry]) -> list[str]:
    """Return queries of two to six words that follow each other in some passage."""
    chance, found = random.Random(3), list[str]()
    while len(found) < QUERIES:
        words = chance.choice(chance.choice(documents).chunks).text.split()
        if len(words) > 8:
            at = chance.randrange(len(words) - 6)
            found.append(" ".join(words[at : at + chance.randint(2, 6)]))
    return found


def hybrid(engine: Engine, pipeline: Pipeline, pool: ThreadPoolExecutor, text: str) -> None:
    """Search as a library does, with its retrievers in parallel."""

    def run_parallel(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        return [each.result() for each in [pool.submit(task) for task in tasks]]

    with engine.snapshot() as snapshot:
        pipeline(Query(text), Tools(snapshot, MODEL, run_parallel=run_parallel))


def keyword(engine: Engine, filters: Filters, text: str) -> None:
    with engine.snapshot() as snapshot:
        snapshot.lexical.search(query_terms(text), FIELD_BOOSTS, filters, CANDIDATES)


def nearest(engine: Engine, filters: Filters, text: str) -> None:
    with engine.snapshot() as snapshot:
        vector = MODEL.embed_query(text)
        snapshot.vectors.search(vector, MODEL.fingerprint, filters, CANDIDATES)


def recall(engine: Engine, exact: Engine, filters: Filters, texts: Sequence[str]) -> float:
    """Return the share of the nearest ten by comparison of all vectors that the vector index finds."""
    found = 0.0
    for text in texts:
        vector = MODEL.embed_query(text)
        best = []
        for each in (engine, exact):
            with each.snapshot() as snapshot:
                results = snapshot.vectors.search(vector, MODEL.fingerprint, filters, 10)
                best.append({result.chunk_id for result in results})
        found += len(best[0] & best[1]) / max(1, len(best[1]))
    return found / len(texts)


def measure(fleet: Engine, embedded: Engine, texts: Sequence[str]) -> dict[str, Any]:
    """Return the times of both engines, alternating, and their ratios."""
    pipeline = compose_pipeline(read_settings(Path("/"), (), {}))
    figures: dict[str, Any] = {}
    with ThreadPoolExecutor(3) as pool:
        searches: dict[str, Callable[[Engine, str], None]] = {
            "hybrid": lambda engine, text: hybrid(engine, pipeline, pool, text),
            "keyword": lambda engine, text: keyword(engine, Filters(), text),
            "keyword, filtered": lambda engine, text: keyword(engine, FILTER, text),
            "vectors": lambda engine, text: nearest(engine, Filters(), text),
            "vectors, filtered": lambda engine, text: nearest(engine, FILTER, text),
        }
        for name, search in searches.items():
            times = {}
            for label, engine in (("embedded", embedded), ("fleet", fleet)):
                run = partial(search, engine)
                milliseconds(run, texts[:WARM])
                times[label] = milliseconds(run, texts)
            ratio = times["fleet"]["p50_ms"] / times["embedded"]["p50_ms"]
            figures[name] = {**times, "fleet over embedded": ratio}
    return figures


def resources(node: Node, passages: int) -> dict[str, float]:
    """Return memory and disk of the node, for each passage."""
    status = Path(f"/proc/{node.pid}/status").read_text().split("VmRSS:")[1].split()[0]
    disk = sum(file.stat().st_blocks * 512 for file in node.folder.rglob("*") if file.is_file())
    return {
        "memory bytes per passage": 1024 * int(status) / passages,
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


def main() -> None:
    sizes = sorted(map(int, sys.argv[1:])) or [100_000]
    figures: dict[str, Any] = {}
    with (
        new_server(shared_buffers="512MB") as server,
        running_nodes() as (node,),
        new_fleet_library([node], server) as address,
        tempfile.TemporaryDirectory() as folder,
    ):
        embedded, fleet = engines.open(Path(folder)), engines.open(address)
        exact = engines.open(address, ServerSettings(qdrant=QdrantSettings(exact=True)))
        documents, sample, total = entries(2 * sizes[-1]), list[Entry](), 0
        for size in sizes:
            seconds = {"fleet": 0.0, "embedded": 0.0}
            for batch in batches(documents, size - total):
                sample += batch.entries[:20]
                for label, engine in (("fleet", fleet), ("embedded", embedded)):
                    began = time.perf_counter()
                    with engine.writing(60):
                        engine.commit(batch)
                    seconds[label] += time.perf_counter() - began
                total += sum(len(each.chunks) for each in batch.entries)
            settled(node)
            server.sql("VACUUM ANALYZE")
            texts = questions(sample)
            figures[str(size)] = {
                "passages": total,
                "load_s": seconds,
                "search": measure(fleet, embedded, texts),
                "recall of vectors": recall(fleet, exact, Filters(), texts),
                "recall of vectors, filtered": recall(fleet, exact, FILTER, texts),
                **resources(node, total),
            }
            print(size, figures[str(size)], flush=True)
        for engine in (embedded, fleet, exact):
            engine.close()
    if len(sizes) > 1:
        first, last = figures[str(sizes[0])], figures[str(sizes[-1])]
        figures["growth exponent of hybrid p50"] = math.log(
            last["search"]["hybrid"]["fleet"]["p50_ms"]
            / first["search"]["hybrid"]["fleet"]["p50_ms"]
        ) / math.log(last["passages"] / first["passages"])
    save("fleet", figures)


if __name__ == "__main__":
    main()
