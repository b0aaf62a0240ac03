"""SQL that SQLite and PostgreSQL share: documents, filters, links, vocabulary counts, status, and applying a batch.

The package writes each statement once. A session turns it into the SQL of its database by a few replacements. Rules:

- Parameters are `?`, unnumbered. A parameter is a text, an integer, a float, bytes, None, or a `list`, which is one parameter.
- Lists are read by table functions, always with an alias: `texts(?) t` and `integers(?) t` with the columns `key` and `value`,
  `document_ids(?) t` with `key`, `collection` and `path`, and `counts(?) t` with `value` and `count`. `key` is the position, from 0.
- `CROSS JOIN b ON …` fixes the join order in SQLite: the table on the left is the outer loop. It means `JOIN b ON …`.
- `CROSS JOIN LATERAL [SELECT … AS value …] n ON true` joins each row with the integers of a query that refers to it, mostly with a LIMIT.
- `any_glob(path, ?)` is true if one of a list of globs matches, as `metadata_filters.matches_any_glob` defines it.
- `unpacked(column)` is the text of a document or its record, and `PASSAGE_TEXT` that of a passage `c`: SQLite compresses them.
- `instr(text, part) > 0` is true if a text contains another.
- Upserts are `ON CONFLICT (…) DO UPDATE` or `DO NOTHING`; existing columns are qualified by the table, new ones by `excluded`.
- Texts compare by code point: `COLLATE "C"` in PostgreSQL, the default in SQLite.
- A subquery in FROM has an alias, and no query depends on the type of a boolean or on `rowid`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]


class SqlSession(Protocol):
    """Statements within one transaction of one connection, or of several that share a snapshot.

    Errors of the database are raised as `StoreError`. Methods may be called from several threads.
    """

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query as tuples."""

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a query; None where there is none."""

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row; None where there is none."""

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a query without holding all of them in memory; other statements may run meanwhile."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; return the number of rows that it changed."""

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values, in order."""

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows that conflict with none; `columns` is a list separated by commas.

        A missing column `row` is numbered in ascending order of the rows.
        """

    def next_rows(self, table: str, count: int) -> Sequence[int]:
        """Reserve row numbers for a table, ascending, above all that it ever had in this transaction's view.

        They may have gaps where several transactions write at once, and are never given twice.
        """


SHARED_TABLES = """
CREATE TABLE manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Columns that every run reads, without the long texts.
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, recipe TEXT NOT NULL,
    date TEXT, timestamp TEXT NOT NULL,  -- the own date as written, and that date or the file time in UTC
    community INTEGER,
    checksum INTEGER NOT NULL DEFAULT 0, -- of everything stored about the document but its passages, in SQLite
    UNIQUE (path, collection)            -- in this order a path alone is found by it too
);
CREATE TABLE contents (
    document INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    record TEXT NOT NULL, remarks TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX contents_with_remarks ON contents (document) WHERE (remarks <> '');
-- Frontmatter, tags and other metadata, as pairs of key and value in lower case.
CREATE TABLE metadata (
    key TEXT NOT NULL, value TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (key, value, document)
) WITHOUT ROWID;
CREATE INDEX metadata_of ON metadata (document);

CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, digest TEXT NOT NULL,
    kind TEXT NOT NULL, parent TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    title TEXT NOT NULL, headings TEXT NOT NULL, merged TEXT NOT NULL, languages TEXT NOT NULL,
    code TEXT NOT NULL, text TEXT NOT NULL,
    checksum INTEGER NOT NULL,           -- of this row, in SQLite
    boilerplate TEXT NOT NULL,           -- parts of the text that many documents share
    levels TEXT NOT NULL                 -- context levels of the passage
);
-- Covering indexes for vector search, filtered or not, so that it never reads the long rows.
CREATE INDEX chunks_of ON chunks (document, ordinal, digest, id);
CREATE INDEX chunks_by_digest ON chunks (digest, id);
CREATE TABLE languages (
    language TEXT NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks ON DELETE CASCADE,
    PRIMARY KEY (language, chunk)
) WITHOUT ROWID;
CREATE INDEX languages_of ON languages (chunk);
CREATE TABLE sections (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    headings TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    span_from INTEGER NOT NULL, span_to INTEGER NOT NULL
);
CREATE INDEX sections_by_id ON sections (id);
CREATE INDEX sections_of ON sections (document);
-- Blocks of text of documents, by digest. The origin is a digest of title and file name, which copies of a document share.
CREATE TABLE blocks (
    digest INTEGER NOT NULL, origin INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    boilerplate INTEGER NOT NULL,        -- 1 if the document was chunked with the block as boilerplate
    PRIMARY KEY (digest, origin, document)
) WITHOUT ROWID;
CREATE INDEX blocks_of ON blocks (document);
CREATE INDEX shared_blocks ON blocks (digest) WHERE (boilerplate = 1);

CREATE TABLE links (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    type TEXT NOT NULL, target TEXT NOT NULL, fragment TEXT NOT NULL, text TEXT NOT NULL,
    line INTEGER NOT NULL, keys TEXT NOT NULL
);
CREATE INDEX links_of ON links (document);
CREATE TABLE link_keys (
    key TEXT NOT NULL,
    link INTEGER NOT NULL REFERENCES links ON DELETE CASCADE,
    PRIMARY KEY (key, link)
) WITHOUT ROWID;
CREATE INDEX link_keys_of ON link_keys (link);
CREATE TABLE names (
    row INTEGER PRIMARY KEY,
    key TEXT NOT NULL, strength TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE
);
CREATE INDEX names_by_key ON names (key, document, strength);
CREATE INDEX names_of ON names (document);
-- Rows of the source and the target document of resolved links. Without foreign keys: in PostgreSQL they would lock documents.
CREATE TABLE edges (
    source INTEGER NOT NULL, target INTEGER NOT NULL,
    PRIMARY KEY (source, target)
) WITHOUT ROWID;
CREATE INDEX edges_to ON edges (target, source);
-- Titles, aliases and headings, folded, with the ordinals of the passages below them.
CREATE TABLE titles (
    title TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    first INTEGER NOT NULL, last INTEGER NOT NULL, score REAL NOT NULL,
    PRIMARY KEY (title, document, first, last, score)
) WITHOUT ROWID;
CREATE INDEX titles_of ON titles (document);
"""
"""Tables of both databases, in the SQL of SQLite."""
