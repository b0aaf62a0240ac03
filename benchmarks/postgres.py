"""The PostgreSQL engine against the embedded one, on the same 100,000 passages in one run: keyword search.

`python -m benchmarks.postgres [PASSAGES]`. Sections of others add their figures to the same result file.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.servers.postgres import PostgresServer, new_server

from benchmarks._measure import corpus, result_path, save
from marklight import engines
from marklight.engines.server.postgres.engine import PostgresEngine
from marklight.ingest.chunk import chunk
from marklight.ingest.document import parse_document
from marklight.ingest.read import Source
from marklight.ingest.recipe import Chunker
from marklight.lexical import WHOLE, document_terms, passage_terms
from marklight.model import Batch, Chunk, DocumentId, Entry, FileState
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters

PASSAGES = 100_000
COLLECTIONS = (
    *("kubernetes", "keps", "blue-book", "tldr"),
    *(
        "fastapi",
        "fastapi-de",
        "fastapi-es",
        "fastapi-fr",
        "fastapi-ja",
        "fastapi-ru",
        "fastapi-zh",
    ),
)
DOCUMENTS_PER_COMMIT = 400
QUERIES = 60
LIMIT = 50
"""Results of a search, as a query for ten results requests them."""
ALTERED = 9
"""Every ninth word of a repeated document is altered."""


def entries(passages: int) -> Iterator[Entry]:
    """Yield documents of the collections, repeated with altered words until they have that many passages."""
    total = 0
    for turn in itertools.count():
        for name in COLLECTIONS:
            for path in sorted(corpus(name).rglob("*.md")):
                id = DocumentId(name, f"{turn}/{path.relative_to(corpus(name))}")
                text = path.read_text(errors="replace")
                if turn:
                    words = text.split(" ")
                    words[turn::ALTERED] = [f"{word}{turn}" for word in words[turn::ALTERED]]
                    text = " ".join(words)
                source = Source(text, FileState(len(text), 0))
                entry = chunk(*parse_document(id, source), Chunker())
                yield entry
                total += len(entry.chunks)
                if total >= passages:
                    return


def load(engine: Engine, documents: Sequence[Entry]) -> float:
    """Commit documents and return the seconds."""
    began = time.perf_counter()
    with engine.writing(60):
        for at in range(0, len(documents), DOCUMENTS_PER_COMMIT):
            engine.commit(Batch(entries=tuple(documents[at : at + DOCUMENTS_PER_COMMIT])))
    return time.perf_counter() - began


def queries(documents: Sequence[Entry]) -> dict[str, list[list[str]]]:
    """Return queries of terms as they occur in a sample of the documents."""
    chance = random.Random(3)
    frequencies: Counter[str] = Counter()
    for _, terms in passages_of(chance.sample(documents, min(600, len(documents)))):
        frequencies.update(set(terms))
    common = [term for term, _ in frequencies.most_common(60)]
    middle = [term for term, count in frequencies.items() if 5 < count < 60]
    rare = [term for term, count in frequencies.items() if count == 1]
    return {
        "rare": [[chance.choice(rare)] for _ in range(QUERIES)],
        "mixed": [
            [chance.choice(common), *chance.sample(middle, 2), chance.choice(rare)]
            for _ in range(QUERIES)
        ],
        "five common": [chance.sample(common, 5) for _ in range(QUERIES)],
        "mixed, filtered": [
            [chance.choice(common), *chance.sample(middle, 2)] for _ in range(QUERIES)
        ],
        "a pasted page of 300 terms": [chance.sample(list(frequencies), 300) for _ in range(10)],
    }


def passages_of(documents: Sequence[Entry]) -> Iterator[tuple[Chunk, Sequence[str]]]:
    """Yield passages with the terms of their field `whole`."""
    for entry in documents:
        shared = document_terms(entry.document)
        for passage in entry.chunks:
            yield passage, passage_terms(shared, passage)[WHOLE]


def milliseconds(work: Callable[[Any], object], inputs: Sequence[Any]) -> dict[str, float]:
    took = []
    for each in inputs:
        began = time.perf_counter()
        work(each)
        took.append((time.perf_counter() - began) * 1000)
    return quantiles(took)


def quantiles(took: Sequence[float]) -> dict[str, float]:
    return {"p50_ms": statistics.median(took), "p95_ms": sorted(took)[int(0.95 * len(took))]}


def search(engine: Engine, filters: Filters) -> Callable[[list[str]], object]:
    """Return a function that searches in a new snapshot, as every query does."""

    def run(terms: list[str]) -> object:
        with engine.snapshot() as snapshot:
            return snapshot.lexical.search(terms, FIELD_BOOSTS, filters, LIMIT)

    return run


def keyword(server: PostgresServer, place: Path, documents: list[Entry]) -> dict[str, Any]:
    """Measure keyword search in segments, in tantivy, and in a plain table of postings."""
    count = sum(len(entry.chunks) for entry in documents)
    address = server.address(library="keyword")
    postgres, embedded = engines.open(address), engines.open(place / "embedded")
    assert isinstance(postgres, PostgresEngine)
    wanted = queries(documents)
    figures: dict[str, Any] = {
        "passages": count,
        "load average before": os.getloadavg()[0],
        "extensions for full text": full_text_extensions(server),
        "load": {"postgres_s": load(postgres, documents), "embedded_s": load(embedded, documents)},
    }
    server.sql("VACUUM ANALYZE")
    figures["bytes per passage"] = {
        "postgres": postgres.sizes()["lexical"] / count,
        "embedded": sum(file.stat().st_size for file in (place / "embedded").glob("lexical/*/*"))
        / count,
    }
    plain_seconds, plain_bytes = load_plain_table(server, documents)
    figures["load"]["plain table_s"] = plain_seconds
    figures["bytes per passage"]["plain table"] = plain_bytes / count
    figures["search"] = {}
    for name, terms in wanted.items():
        filters = Filters(collections=("kubernetes",)) if "filtered" in name else Filters()
        run = search(postgres, filters)

        def cold(given: list[str], run: Callable[[list[str]], object] = run) -> object:
            postgres.lexical.cache.clear()  # type: ignore[attr-defined]
            return run(given)

        found = {
            "embedded": milliseconds(search(embedded, filters), [*terms, *terms]),
            "postgres, nothing cached": milliseconds(cold, terms),
            "postgres, cached": milliseconds(run, [*terms, *terms]),
            "plain table": milliseconds(plain_search(server), terms),
        }
        ratio = found["postgres, cached"]["p50_ms"] / found["embedded"]["p50_ms"]
        figures["search"][name] = {**found, "postgres over embedded": ratio}
    figures["first search of an engine"] = {
        "postgres": milliseconds(lambda terms: first_search(address, terms), wanted["mixed"][:9]),
        "embedded": milliseconds(
            lambda terms: first_search(place / "embedded", terms), wanted["mixed"][:9]
        ),
    }
    changed = random.Random(5).sample(documents, 30)
    figures["commit of one document"] = {
        "postgres": milliseconds(lambda entry: change(postgres, entry), changed),
        "embedded": milliseconds(lambda entry: change(embedded, entry), changed),
    }
    figures["load average after"] = os.getloadavg()[0]
    postgres.close()
    embedded.close()
    return figures


def first_search(address: str | Path, terms: list[str]) -> None:
    engine = engines.open(address)
    search(engine, Filters())(terms)
    engine.close()


def change(engine: Engine, entry: Entry) -> None:
    document = replace(entry.document, digest="changed")
    with engine.writing(60):
        engine.commit(Batch(entries=(replace(entry, document=document),)))


def full_text_extensions(server: PostgresServer) -> list[str]:
    """Return the extensions of the server that rank by BM25; the binaries of the tests have none."""
    rows = server.sql(
        "SELECT name FROM pg_available_extensions WHERE name IN ('pg_search', 'pg_textsearch', 'vchord_bm25')"
    )
    return [str(name) for (name,) in rows]


def load_plain_table(server: PostgresServer, documents: Sequence[Entry]) -> tuple[float, int]:
    """Fill a table with one row per term and passage, the alternative; return seconds and bytes."""
    import psycopg

    server.sql('CREATE TABLE plain (term text COLLATE "C", passage integer, weight real)')
    rows = list(enumerate(Counter(terms) for _, terms in passages_of(documents)))
    began = time.perf_counter()
    with psycopg.connect(server.address()) as connection:
        with connection.cursor().copy("COPY plain FROM STDIN") as copy:
            for passage, counts in rows:
                for term, count in counts.items():
                    copy.write_row((term, passage, count / (count + 1.2)))
        connection.execute("CREATE INDEX ON plain (term) INCLUDE (passage, weight)")
    server.sql("VACUUM ANALYZE plain")
    took = time.perf_counter() - began
    ((size,),) = server.sql("SELECT pg_total_relation_size('plain')")
    assert isinstance(size, int)
    return took, size


def plain_search(server: PostgresServer) -> Callable[[list[str]], object]:
    import psycopg

    connection = psycopg.connect(server.address(), autocommit=True)
    query = (
        "SELECT passage, sum(weight) FROM plain WHERE term = ANY(%s)"
        " GROUP BY passage ORDER BY 2 DESC, 1 LIMIT %s"
    )
    return lambda terms: connection.execute(query, [terms, LIMIT]).fetchall()


def main() -> None:
    passages = int(sys.argv[1]) if len(sys.argv) > 1 else PASSAGES
    documents = list(entries(passages))
    with new_server(shared_buffers="512MB") as server, tempfile.TemporaryDirectory() as place:
        figures = {"keyword": keyword(server, Path(place), documents)}
    path = result_path("postgres")
    before = json.loads(path.read_text()) if path.exists() else {}
    save("postgres", {**before, **figures})


if __name__ == "__main__":
    main()
