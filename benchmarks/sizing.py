"""Size of an index in PostgreSQL: bytes per passage of each part, and memory of a connection.

`python -m benchmarks.sizing [PASSAGES]`. Documents are real ones, vectors random: their size does not depend on their values.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.servers.postgres import PostgresServer, new_server

from benchmarks._measure import save
from benchmarks.postgres import entries, load
from marklight import engines
from marklight.engines import PostgresSettings, ServerSettings
from marklight.model import Batch, Entry, Vectors
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters

PASSAGES, DIMENSION, WINDOW = 20_000, 384, 2_000
PARTS = {
    "lexical index": ("segments", "postings", "document_lengths"),
    "vectors": ("vectors", "term_vectors"),
}
SEARCHES = 20
BUILD_SECONDS = 300


def add_vectors(engine: Engine, documents: list[Entry]) -> None:
    """Commit a random vector for every passage."""
    chance = np.random.default_rng(0)
    digests = list(dict.fromkeys(chunk.digest for each in documents for chunk in each.chunks))
    with engine.writing(60):
        for at in range(0, len(digests), WINDOW):
            window = tuple(digests[at : at + WINDOW])
            rows = chance.normal(size=(len(window), DIMENSION)).astype(np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            engine.commit(Batch(vectors=Vectors("measured", window, rows)))


def table_bytes(server: PostgresServer, library: str) -> dict[str, int]:
    """Return the bytes of every table with its indexes; the vector index has an entry of its own."""
    rows: list[Any] = server.sql(
        "SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n"
        f" ON n.oid = c.relnamespace WHERE n.nspname = '{library}' AND c.relkind = 'r'"
    )
    tables = dict(rows)
    ((hnsw,),) = server.sql(
        "SELECT coalesce(sum(pg_relation_size(i.indexrelid)), 0)::bigint FROM pg_index i"
        " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam"
        f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE a.amname = 'hnsw' AND n.nspname = '{library}'"
    )
    tables["vectors"] -= int(str(hnsw))
    tables["HNSW"] = int(str(hnsw))
    return tables


def wait_for_index(server: PostgresServer) -> None:
    """Wait until the vector index, which is built in the background, is complete."""
    query = (
        "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw' AND i.indisvalid AND i.indisready"
    )
    deadline = time.monotonic() + BUILD_SECONDS
    while server.sql(query) != [(1,)]:
        if time.monotonic() > deadline:
            sys.exit("the vector index was not built in time")
        time.sleep(0.5)


def private_bytes(pid: int) -> int:
    """Return the memory that a process shares with no other."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(
        int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")
    )


def main(passages: int) -> None:
    documents = list(entries(passages))
    count = sum(len(each.chunks) for each in documents)
    characters = sum(len(each.document.text) for each in documents)
    settings = ServerSettings(postgres=PostgresSettings(exact_below=1))
    with new_server() as server:
        engine = engines.open(server.address(library="sizing"), settings)
        load(engine, documents)
        add_vectors(engine, documents)
        engine.check()
        wait_for_index(server)
        engine.close()
        engine = engines.open(server.address(library="sizing"), settings)
        for _ in range(SEARCHES):
            with engine.snapshot() as snapshot:
                snapshot.lexical.search(["deploy", "token"], FIELD_BOOSTS, Filters(), 50)
                query = np.ones(DIMENSION, np.float32)
                snapshot.vectors.search(query, "measured", Filters(), 50)
        pids: list[Any] = server.sql(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'marklight'"
        )
        connections = [private_bytes(pid) for (pid,) in pids]
        tables = table_bytes(server, "sizing")
        engine.close()
    parts = {name: sum(tables[table] for table in tables_) for name, tables_ in PARTS.items()}
    parts["vector index (HNSW)"] = tables["HNSW"]
    parts["documents, passages, links"] = sum(tables.values()) - sum(parts.values())
    save(
        "sizing",
        {
            "passages": count,
            "documents": len(documents),
            "characters per passage": characters / count,
            "bytes per passage": {name: size / count for name, size in parts.items()},
            "bytes per passage, all": sum(tables.values()) / count,
            "largest tables, bytes per passage": {
                name: size / count
                for name, size in sorted(tables.items(), key=lambda item: -item[1])[:8]
            },
            "private bytes of a connection": max(connections),
        },
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PASSAGES)
