"""Outbox in PostgreSQL: changes of each commit, written in its transaction, until they are shipped to Qdrant; and the state of the collections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marklight.engines.server.postgres.vector_index import pack_integers
from marklight.lexical import FIELDS

if TYPE_CHECKING:
    from marklight.engines.relational import Row
    from marklight.engines.relational.write import ChangedRows
    from marklight.engines.server.bm25 import Floats, Ints
    from marklight.engines.server.postgres.session import PostgresSession
    from marklight.engines.server.qdrant.lexical import PassageTerms

TABLE_NAMES = (
    "outbox",
    "qdrant_state",
    "qdrant_models",
    "qdrant_dropped",
    "term_frequencies",
)
TABLES = """
CREATE SEQUENCE collection_numbers;

CREATE TABLE outbox (
    generation bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('commit', 'add', 'remove', 'vector')),
    row bigint,
    model text COLLATE "C",
    digest text COLLATE "C",
    shipped timestamptz
);
CREATE INDEX outbox_generation ON outbox (generation);

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
"""`outbox` has the changes of each commit: a row for the commit itself, rows of passages that it added or removed, and new vectors
by model and digest. A commit stays, with its removed passages, until no reader can need them.

`qdrant_state` describes the collection of terms: its name, the last generation that was shipped completely, and for that
generation the number of passages and the total length of each field. `reference` has the mean lengths that the stored
weights were computed with, `analyzer` the fingerprint of the analyzer. `version` is another number after each rebuild. `term_frequencies` has the passages that contain a term in a field.
`qdrant_models` has the collection of each model, `qdrant_dropped` those that a rebuild replaced and that are deleted when no
reader can need them.
"""

COMMIT, ADD, REMOVE, VECTOR = "commit", "add", "remove", "vector"


def fill(session: PostgresSession, change: ChangedRows, generation: int) -> None:
    """Write what a commit changes, in its transaction."""
    rows = ((generation, *row) for row in _rows(change))
    session.insert("outbox", "generation, kind, row, model, digest", rows)


def _rows(change: ChangedRows) -> Iterator[tuple[str, int | None, str | None, str | None]]:
    yield COMMIT, None, None, None
    for row in change.deleted_chunks:
        yield REMOVE, row, None, None
    for entry in change.inserted:
        for row in entry.chunk_rows:
            yield ADD, row, None, None
    if vectors := change.batch.vectors:
        for digest in vectors.digests:
            yield VECTOR, None, vectors.model, digest


class IndexState(NamedTuple):
    """The collection of terms, the last generation in it, and the statistics of that generation."""

    collection: str
    version: int
    analyzer: str
    generation: int
    passages: int
    lengths: Ints
    """Total length of each field."""
    reference: Floats
    """Mean lengths that the stored values were computed with."""

    @property
    def means(self) -> Floats:
        """Return the mean length of each field."""
        means: Floats = self.lengths / max(1, self.passages)
        return means


_STATE = "q.collection, q.version, q.analyzer, q.generation, q.passages, q.lengths, q.reference"


def read_state(session: PostgresSession) -> IndexState | None:
    """Return the state of the index; None before the first shipment."""
    row = session.one(f"SELECT {_STATE} FROM qdrant_state q")
    return _decode_state(row) if row else None


def read_index(session: PostgresSession) -> tuple[IndexState | None, dict[str, str]]:
    """Return the state of the index and the collections of models by name, in one query."""
    row = session.one(
        f"SELECT {_STATE}, (SELECT json_object_agg(m.name, o.collection)::text"
        " FROM qdrant_models o JOIN models m ON m.row = o.model) FROM qdrant_state q"
    )
    return (_decode_state(row[:-1]), json.loads(row[-1] or "{}")) if row else (None, {})


def _decode_state(row: Row) -> IndexState:
    *values, lengths, reference = row
    arrays = np.frombuffer(lengths, "<i8"), np.frombuffer(reference, "<f8")
    return IndexState._make([*values, *arrays])


def write_state(session: PostgresSession, state: IndexState) -> None:
    """Store the state, in the transaction that records what was shipped."""
    arrays = state.lengths.astype("<i8").tobytes(), state.reference.astype("<f8").tobytes()
    session.run("DELETE FROM qdrant_state")
    session.run(
        "INSERT INTO qdrant_state (id, collection, version, analyzer, generation, passages, lengths, reference)"
        " VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
        [*state[:5], *arrays],
    )


class Statistics:
    """Changes of document frequencies, field lengths and the number of passages."""

    def __init__(self) -> None:
        self.passages = 0
        self.lengths: Ints = np.zeros(len(FIELDS), dtype=np.int64)
        self.frequencies: dict[int, int] = {}

    def count(self, dimensions: Ints, lengths: Ints, sign: int) -> None:
        """Count a passage that is added, or with a sign of -1 removed."""
        self.passages += sign
        self.lengths = self.lengths + sign * lengths
        for dimension in dimensions.tolist():
            self.frequencies[dimension] = self.frequencies.get(dimension, 0) + sign

    def add(self, terms: PassageTerms) -> None:
        """Count a passage that is added."""
        self.count(terms.dimensions, terms.lengths, 1)

    def write(self, session: PostgresSession, version: int) -> None:
        """Add the changes of document frequencies to the table."""
        changed = sorted((key, count) for key, count in self.frequencies.items() if count)
        session.run(
            "INSERT INTO term_frequencies (version, dimension, passages)"
            " SELECT ?, * FROM unnest(?::bigint[], ?::bigint[])"
            " ON CONFLICT (version, dimension) DO UPDATE"
            " SET passages = term_frequencies.passages + excluded.passages",
            [
                version,
                pack_integers([key for key, _ in changed]),
                pack_integers([count for _, count in changed]),
            ],
        )


def reference_lengths(lengths: Ints, passages: int) -> Floats:
    """Return mean lengths to compute stored values with; 1 for a field that no passage has yet."""
    means = lengths / max(1, passages)
    return np.where(means > 0, means, 1.0)
