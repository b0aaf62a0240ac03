"""Self-test of the native libraries: write a row, index a term, multiply a matrix."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path


def check_sqlite() -> str:
    """Write, reopen and read a database in WAL mode; return the version and the journal mode."""
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.db"
        for _ in range(2):
            connection = sqlite3.connect(path)
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                connection.execute("CREATE TABLE IF NOT EXISTS terms (term TEXT)")
                connection.execute("INSERT INTO terms VALUES ('light')")
                connection.commit()
                count = connection.execute("SELECT count(*) FROM terms").fetchone()[0]
            finally:
                connection.close()
    if count != 2:
        raise RuntimeError(f"wrote 2 rows and read {count}")
    return f"{sqlite3.sqlite_version}, journal {mode}"


def check_tantivy() -> str:
    """Index one term and search for it; return the version."""
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
    count = len(index.searcher().search(query, 1).hits)
    if count != 1:
        raise RuntimeError(f"indexed 1 document and found {count}")
    return version("tantivy")


def check_numpy() -> str:
    """Multiply a matrix and a vector; return the version."""
    import numpy as np

    product = np.eye(3, dtype=np.float32) @ np.array([1, 2, 3], dtype=np.float32)
    if product.tolist() != [1.0, 2.0, 3.0]:
        raise RuntimeError(f"the product is {product.tolist()}")
    return np.__version__
