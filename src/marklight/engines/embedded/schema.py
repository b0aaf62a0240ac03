"""The tables of an index. Row numbers of passages are never reused, and their rows never change.

The statements are split at semicolons, so comments contain none. SQLite stores each statement with the comments inside it, and a
database with other statements is not opened. So neither the names nor those comments can change without a new format.
"""

from __future__ import annotations

VERSION = 1
"""Format of the database; a newer one is not opened."""
APPLICATION = 0x4D4B4C54
"""`MKLT`: identifies the file among SQLite databases."""

TABLES = """
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
    edges_updated INTEGER NOT NULL DEFAULT 0, -- the value of links_changed that the edge table belongs to
    vocabulary TEXT NOT NULL DEFAULT ''    -- the fingerprint of the function that counted the terms
);
CREATE TABLE manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Columns that every run reads, without the long texts.
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, recipe TEXT NOT NULL,
    date TEXT, timestamp TEXT NOT NULL,  -- the own date as written, and that date or the file time in UTC
    community INTEGER,
    checksum INTEGER NOT NULL DEFAULT 0, -- of everything stored about the document but its passages
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
CREATE TABLE failures (
    collection TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL,
    size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    PRIMARY KEY (collection, path)
) WITHOUT ROWID;

CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, digest TEXT NOT NULL,
    kind TEXT NOT NULL, parent TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    title TEXT NOT NULL, headings TEXT NOT NULL, merged TEXT NOT NULL, languages TEXT NOT NULL,
    code TEXT NOT NULL, text TEXT NOT NULL,
    boilerplate TEXT NOT NULL,           -- parts of the text that many documents share
    levels TEXT NOT NULL,                -- context levels of the passage
    checksum INTEGER NOT NULL            -- of this row
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
-- Tombstones: deleted passages that may still be in the lexical index.
CREATE TABLE tombstones (chunk INTEGER PRIMARY KEY, since REAL NOT NULL);

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
    row INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    first INTEGER NOT NULL, last INTEGER NOT NULL, score REAL NOT NULL
);
CREATE INDEX titles_by_title ON titles (title, document, first, last, score);
CREATE INDEX titles_of ON titles (document);

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
-- Vectors as the model returned them, float32: float16 would save a tenth of an index and change every score.
CREATE TABLE vectors (
    row INTEGER PRIMARY KEY,
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    digest TEXT NOT NULL, file_row INTEGER NOT NULL, vector BLOB NOT NULL,
    checksum INTEGER NOT NULL            -- of the vector and of what it belongs to
);
CREATE UNIQUE INDEX vectors_by_digest ON vectors (digest, model, file_row);
CREATE INDEX vectors_by_file_row ON vectors (model, file_row, digest);

-- Terms with their document frequency. The most frequent ones are the vocabulary.
CREATE TABLE terms (term TEXT PRIMARY KEY, documents INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX terms_by_frequency ON terms (documents DESC, term);
-- A row is never changed and its number never reused, so cached rows stay valid.
CREATE TABLE term_vectors (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    term TEXT NOT NULL, vector BLOB NOT NULL,
    checksum INTEGER NOT NULL            -- of the vector and of what it belongs to
);
CREATE UNIQUE INDEX term_vectors_by_term ON term_vectors (model, term);
"""
