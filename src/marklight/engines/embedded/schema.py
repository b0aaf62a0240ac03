"""The tables of an index. Row numbers of passages are never reused, and their rows never change.

The statements are split at semicolons, so comments contain none. SQLite stores each statement with the comments inside it,
and a database with other statements is not opened. So neither the names nor those comments can change without a new format.
Older than our terms: `callings` (titles and headings), `concepts` (vocabulary), `dead` (tombstones), `facts` (metadata), `moment` (date), `place` (row of a vector file).
"""

from __future__ import annotations

VERSION = 5
"""Format of the database; a newer one is not opened."""
APPLICATION = 0x4D4B4C54
"""`MKLT`: identifies the file among SQLite databases."""

TABLES = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    library TEXT NOT NULL,               -- the id in the marker of the index, derived files carry it too
    generation INTEGER NOT NULL DEFAULT 0,
    documents INTEGER NOT NULL DEFAULT 0,  -- counted here, so that nobody has to scan
    chunks INTEGER NOT NULL DEFAULT 0,
    waste INTEGER NOT NULL DEFAULT 0,      -- vectors that no passage uses
    opstamp INTEGER NOT NULL DEFAULT -1,   -- of the lexical index that holds all passages of this generation
    lexical_commit TEXT NOT NULL DEFAULT '', -- a random id: the commit of the lexical index that belongs to this one
    linked INTEGER NOT NULL DEFAULT 0,     -- the generation in which links or names last changed
    vocabulary TEXT NOT NULL DEFAULT '',   -- in which way the words of concepts were found
    paired INTEGER NOT NULL DEFAULT 0      -- the value of linked that edges are right for
);
CREATE TABLE manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Columns that every run reads, without the long texts.
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, recipe TEXT NOT NULL,
    date TEXT, moment TEXT NOT NULL,
    community INTEGER,
    checksum INTEGER NOT NULL DEFAULT 0, -- of everything stored about the document but its passages
    UNIQUE (path, collection)            -- in this order a path alone is found by it too
);
CREATE TABLE contents (
    document INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    record TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE facts (
    key TEXT NOT NULL, value TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (key, value, document)
) WITHOUT ROWID;
CREATE INDEX facts_of ON facts (document);
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
    levels TEXT NOT NULL,                -- context levels of the passage
    checksum INTEGER NOT NULL            -- of this row, the lexical index holds it too
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
-- Tombstones: deleted passages that may still be in the lexical index.
CREATE TABLE dead (chunk INTEGER PRIMARY KEY, since REAL NOT NULL);

CREATE TABLE links (
    row INTEGER PRIMARY KEY,
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
-- Source and target of links between different documents.
CREATE TABLE edges (
    source INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    target INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (source, target)
) WITHOUT ROWID;
CREATE INDEX edges_to ON edges (target, source);
-- Titles, aliases and headings, folded, with the ordinals of the passages below them.
CREATE TABLE callings (
    row INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    first INTEGER NOT NULL, last INTEGER NOT NULL, score REAL NOT NULL
);
CREATE INDEX callings_by_name ON callings (name, document, first, last, score);
CREATE INDEX callings_of ON callings (document);

CREATE TABLE models (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    dimension INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,    -- which file of the matrix
    places INTEGER NOT NULL DEFAULT 0,   -- how many rows it has, dropped ones included
    last_append TEXT NOT NULL DEFAULT '', -- a random id: the append to the file that made it that long
    embedded INTEGER NOT NULL DEFAULT 0, -- passages that have a vector
    done INTEGER NOT NULL DEFAULT 0      -- all passages up to this row have one
);
-- Vectors as the model returned them, float32: float16 would save a tenth of an index and change every score.
CREATE TABLE vectors (
    row INTEGER PRIMARY KEY,
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    digest TEXT NOT NULL, place INTEGER NOT NULL, vector BLOB NOT NULL,
    checksum INTEGER NOT NULL            -- of the vector and of what it belongs to
);
CREATE UNIQUE INDEX vectors_by_digest ON vectors (digest, model, place);
CREATE INDEX vectors_by_place ON vectors (model, place, digest);

-- Terms with their document frequency. The most frequent ones are the vocabulary.
CREATE TABLE concepts (term TEXT PRIMARY KEY, documents INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX concepts_by_frequency ON concepts (documents DESC, term);
-- A row is never changed and its number never reused, so cached rows stay valid.
CREATE TABLE concept_vectors (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    term TEXT NOT NULL, vector BLOB NOT NULL,
    checksum INTEGER NOT NULL            -- of the vector and of what it belongs to
);
CREATE UNIQUE INDEX concept_vectors_by_term ON concept_vectors (model, term);
"""
