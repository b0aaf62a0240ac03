"""SQLite alone: FTS5 for keywords, sqlite-vec for vectors of sentence-transformers, reciprocal rank fusion."""

from __future__ import annotations

import re
from pathlib import Path

import sqlite_vec
from pysqlite3 import dbapi2 as sqlite3  # the interpreter's own may not load extensions

from benchmarks.peers._program import CANDIDATES, Collection, Search, Tool, encode, fuse, run

MEANING = "SELECT rowid FROM vectors WHERE vector MATCH ? AND k = ? ORDER BY distance"
KEYWORDS = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"


def connected(place: Path) -> sqlite3.Connection:
    database = sqlite3.connect(place / "index.db")
    database.enable_load_extension(True)
    sqlite_vec.load(database)
    return database


def add(database: sqlite3.Connection, collection: Collection) -> None:
    vectors = encode(collection.passages)
    for name, text, vector in zip(collection.documents, collection.passages, vectors, strict=True):
        row = database.execute("INSERT INTO passages (document) VALUES (?)", (name,)).lastrowid
        database.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, text))
        database.execute(
            "INSERT INTO vectors (rowid, vector) VALUES (?, ?)", (row, vector.tobytes())
        )
    database.commit()


def build(collection: Collection, place: Path) -> None:
    database = connected(place)
    database.execute("CREATE TABLE passages (id INTEGER PRIMARY KEY, document TEXT)")
    database.execute("CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'porter unicode61')")
    database.execute("CREATE VIRTUAL TABLE vectors USING vec0 (vector FLOAT[384])")
    add(database, collection)


def load(_: Collection, place: Path) -> Search:
    database = connected(place)

    def search(text: str, limit: int) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
        vector = encode([text])[0].tobytes()
        nearest = [row for (row,) in database.execute(MEANING, (vector, CANDIDATES))]
        matching = [row for (row,) in database.execute(KEYWORDS, (words, CANDIDATES))]
        name = "SELECT document FROM passages WHERE id = ?"
        return [
            database.execute(name, (row,)).fetchone()[0] for row in fuse(nearest, matching)[:limit]
        ]

    return search


def update(collection: Collection, place: Path, changed: str) -> None:
    database = connected(place)
    rows = database.execute("SELECT id FROM passages WHERE document = ?", (changed,)).fetchall()
    for table, column in (("passages", "id"), ("words", "rowid"), ("vectors", "rowid")):
        database.executemany(f"DELETE FROM {table} WHERE {column} = ?", rows)
    add(database, collection.of(changed))


run(Tool(build, load, update))
