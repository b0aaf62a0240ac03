"""The tables of an index. Row numbers of passages are never reused, and their rows never change.

The statements are split at semicolons, so comments contain none. SQLite stores each statement with the comments inside it, and a
database with other statements is not opened. So neither the names nor those comments can change without a new format.
"""

from __future__ import annotations

from marklight.engines.relational import SHARED_TABLES

VERSION = 1
"""Format of the database; a newer one is not opened."""
APPLICATION = 0x4D4B4C54
"""`MKLT`: identifies the file among SQLite databases."""

TABLES = f"""
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    library TEXT NOT NULL,               -- the id in the marker of the index, derived files carry it too
    generation INTEGER NOT NULL DEFAULT 0,
    documents INTEGER NOT NULL DEFAULT 0,  -- counted here, so that no query scans the tables
    chunks INTEGER NOT NULL DEFAULT 0,
    boilerplate_chunks INTEGER NOT NULL DEFAULT 0, -- passages of nothing but boilerplate, without a digest
    unused_vectors INTEGER NOT NULL DEFAULT 0, -- vectors that no passage uses
    lexical TEXT NOT NULL DEFAULT '',      -- the folder of the lexical index
    lexical_commit TEXT NOT NULL DEFAULT '', -- a random id: the commit of the lexical index that belongs to this one
    opstamp INTEGER NOT NULL DEFAULT -1,   -- the number of that commit
    links_changed INTEGER NOT NULL DEFAULT 0, -- the generation in which links or names last changed
    vocabulary TEXT NOT NULL DEFAULT ''    -- the fingerprint of the function that counted the terms
);

{SHARED_TABLES}
CREATE TABLE failures (
    collection TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL,
    size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    PRIMARY KEY (collection, path)
) WITHOUT ROWID;

-- Tombstones: deleted passages that may still be in the lexical index.
CREATE TABLE tombstones (chunk INTEGER PRIMARY KEY, since REAL NOT NULL);

CREATE TABLE models (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    dimension INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,    -- number of the vector file, part of its name
    file_rows INTEGER NOT NULL DEFAULT 0, -- rows of that file, unused ones included
    last_append TEXT NOT NULL DEFAULT '', -- a random id: the append to the file that made it that long
    embedded INTEGER NOT NULL DEFAULT 0, -- passages that have a vector
    embedded_to INTEGER NOT NULL DEFAULT 0 -- all passages up to this row have one
);
-- Rows of the vectors in the file of a model, by text digest.
CREATE TABLE vectors (
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    file_row INTEGER NOT NULL, digest TEXT NOT NULL,
    checksum INTEGER NOT NULL,           -- of the vector and of what it belongs to
    PRIMARY KEY (model, file_row)
) WITHOUT ROWID;
CREATE UNIQUE INDEX vectors_by_digest ON vectors (digest, model);

-- Terms with their document frequency. The most frequent ones are the vocabulary.
CREATE TABLE terms (term TEXT PRIMARY KEY, documents INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX terms_by_frequency ON terms (documents DESC, term);
CREATE TABLE term_vectors (
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    term TEXT NOT NULL, vector BLOB NOT NULL, -- quantised to 8 bits a number
    checksum INTEGER NOT NULL,           -- of the vector and of what it belongs to
    PRIMARY KEY (model, term)
) WITHOUT ROWID;
"""
