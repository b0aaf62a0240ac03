"""LanceDB with a full-text index and vectors of sentence-transformers, its hybrid query with reciprocal rank fusion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
from lancedb.rerankers import RRFReranker

from benchmarks.peers._program import Collection, Search, Tool, encode, run


def rows(collection: Collection) -> list[dict[str, Any]]:
    triples = zip(
        collection.documents, collection.passages, encode(collection.passages), strict=True
    )
    return [{"document": name, "text": text, "vector": vector} for name, text, vector in triples]


def build(collection: Collection, place: Path) -> None:
    table = lancedb.connect(str(place)).create_table("passages", rows(collection))
    table.create_fts_index("text", stem=True, remove_stop_words=True)


def load(_: Collection, place: Path) -> Search:
    table = lancedb.connect(str(place)).open_table("passages")
    reranker = RRFReranker()

    def search(text: str, limit: int) -> list[str]:
        query = table.search(query_type="hybrid").vector(encode([text])[0]).text(text)
        return [row["document"] for row in query.rerank(reranker).limit(limit).to_list()]

    return search


def update(collection: Collection, place: Path, changed: str) -> None:
    table = lancedb.connect(str(place)).open_table("passages")
    table.delete(f"document = '{changed}'")
    table.add(rows(collection.of(changed)))
    table.optimize()


run(Tool(build, load, update))
