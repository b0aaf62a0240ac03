"""Try the native parts that an index rests on, with a word written and found again."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path


def try_sqlite() -> str:
    """Write, reopen and read a database as the engine does; returns its version."""
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.db"
        for _ in range(2):
            connection = sqlite3.connect(path)
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                connection.execute("CREATE TABLE IF NOT EXISTS words (word TEXT)")
                connection.execute("INSERT INTO words VALUES ('light')")
                connection.commit()
                count = connection.execute("SELECT count(*) FROM words").fetchone()[0]
            finally:
                connection.close()
    if count != 2:
        raise RuntimeError(f"wrote 2 rows and found {count}")
    return f"{sqlite3.sqlite_version}, journal {mode}"


def try_tantivy() -> str:
    """Index one word and find it; returns the version."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("body").build()
    index = tantivy.Index(schema)
    writer = index.writer(15_000_000, 1)
    document = tantivy.Document()
    document.add_text("body", "light")
    writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    query = tantivy.Query.term_query(schema, "body", "light")
    found = len(index.searcher().search(query, 1).hits)
    if found != 1:
        raise RuntimeError(f"indexed 1 word and found {found}")
    return version("tantivy")


def try_numpy() -> str:
    """One product of a matrix and a vector; returns the version."""
    import numpy as np

    product = np.eye(3, dtype=np.float32) @ np.array([1, 2, 3], dtype=np.float32)
    if product.tolist() != [1.0, 2.0, 3.0]:
        raise RuntimeError(f"a product came out as {product.tolist()}")
    return np.__version__
