"""Tables in PostgreSQL that Qdrant's collections are written from: the outbox, and statistics of what was shipped."""

from __future__ import annotations

TABLES = """
CREATE SEQUENCE outbox_batches;

CREATE TABLE outbox (
    batch bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('add', 'remove', 'date', 'vector')),
    chunk bigint,
    document bigint,
    model text COLLATE "C",
    digest text COLLATE "C",
    data bytea
);
CREATE INDEX outbox_batch ON outbox (batch);

CREATE TABLE outbox_commits (
    generation bigint PRIMARY KEY,
    batch bigint NOT NULL UNIQUE,
    shipped timestamptz
);

CREATE TABLE qdrant_state (
    id integer PRIMARY KEY CHECK (id = 1),
    collection text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    analyzer text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    passages bigint NOT NULL,
    lengths bytea NOT NULL,
    reference bytea NOT NULL
);

CREATE TABLE qdrant_models (
    model bigint PRIMARY KEY,
    collection text COLLATE "C" NOT NULL
);

CREATE TABLE qdrant_dropped (
    collection text COLLATE "C" PRIMARY KEY,
    dropped timestamptz NOT NULL
);

CREATE TABLE term_frequencies (
    version bigint NOT NULL,
    dimension bigint NOT NULL,
    passages bigint NOT NULL,
    PRIMARY KEY (version, dimension)
) WITH (fillfactor = 70);
"""
"""`outbox` has the changes of each commit, a row for each passage: terms of added ones, removed ones, documents with
another date, new vectors by model and digest. `outbox_commits` gives them their order. A commit stays, with its removed
passages, until no reader can need them.

`qdrant_state` describes the collection of terms: its name, the last generation that was shipped completely, and for that
generation the number of passages and the total length of each field. `reference` has the mean lengths that the stored
weights were computed with, `analyzer` the fingerprint of the analyzer. `version` is another number after each rebuild. `term_frequencies` has the passages that contain a term in a field.
`qdrant_models` has the collection of each model, `qdrant_dropped` those that a rebuild replaced and that are deleted when no
reader can need them.
"""
