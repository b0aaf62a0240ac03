"""Outbox in PostgreSQL: changes of each commit, written in its transaction, until they are shipped to Qdrant; and the state of the collections."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marklight.engines.lexical import document_terms, passage_terms
from marklight.engines.metadata_filters import metadata_pairs, timestamp
from marklight.engines.server.postgres.vector_table import pack_integers
from marklight.engines.server.qdrant.points import document_labels, microseconds, passage_labels
from marklight.engines.server.qdrant.terms import FIELDS, PassageTerms, passage_vector_terms

if TYPE_CHECKING:
    from marklight.engines.bm25 import Floats, Ints
    from marklight.engines.relational.session import Row
    from marklight.engines.server.postgres.indexes import Change
    from marklight.engines.server.postgres.session import PostgresSession

TABLE_NAMES = (
    "outbox",
    "outbox_commits",
    "qdrant_state",
    "qdrant_models",
    "qdrant_dropped",
    "term_frequencies",
)
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

ADD, REMOVE, DATE, VECTOR = "add", "remove", "date", "vector"
_HEADER = struct.Struct("<qI")


class Passage(NamedTuple):
    """A passage to ship: the labels and the date for filters, and its terms."""

    labels: list[int]
    date: int
    terms: PassageTerms

    def packed(self) -> bytes:
        """Return the passage as bytes."""
        labels = np.array(self.labels, dtype="<i8").tobytes()
        return _HEADER.pack(self.date, len(self.labels)) + labels + self.terms.packed()

    @classmethod
    def unpacked(cls, data: bytes) -> Passage:
        """Return the passage that was packed."""
        date, count = _HEADER.unpack_from(data)
        labels = np.frombuffer(data, dtype="<i8", count=count, offset=_HEADER.size)
        terms = PassageTerms.unpacked(data[_HEADER.size + labels.nbytes :])
        return cls(labels.tolist(), date, terms)


def fill(session: PostgresSession, change: Change) -> None:
    """Write what a commit changes, in its transaction; `seal` gives it a place in the order of commits."""
    # Kept for the rest of the transaction only.
    batch = int(
        session.value("SELECT set_config('marklight.batch', nextval('outbox_batches')::text, true)")
    )
    rows = ((batch, *row) for row in _rows(change))
    session.insert("outbox", "batch, kind, chunk, document, model, digest, data", rows)


def _rows(change: Change) -> Iterator[tuple[Any, ...]]:
    for row in change.deleted_chunks:
        yield REMOVE, row, None, None, None, None
    for touched in change.touched:
        yield DATE, None, touched, None, None, None
    for indexed in change.inserted:
        document = indexed.entry.document
        shared_terms = document_terms(document)
        shared_labels = document_labels(document.id, metadata_pairs(document))
        date = microseconds(timestamp(document.date, document.file.mtime_ns))
        for chunk, row in zip(indexed.entry.chunks, indexed.chunks, strict=True):
            passage = Passage(
                passage_labels(shared_labels, chunk.languages),
                date,
                passage_vector_terms(passage_terms(shared_terms, chunk)),
            )
            yield ADD, row, indexed.document, None, chunk.digest, passage.packed()
    vectors = change.batch.vectors
    if vectors:
        for digest in vectors.digests:
            yield VECTOR, None, None, vectors.model, digest, None


def seal(session: PostgresSession, generation: int) -> None:
    """Give the changes that this transaction wrote, if any, their place in the order of commits."""
    session.run(
        "INSERT INTO outbox_commits (generation, batch) VALUES (?, coalesce("
        "nullif(current_setting('marklight.batch', true), '')::bigint, nextval('outbox_batches')))",
        [generation],
    )


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
    collection, version, analyzer, generation, passages, lengths, reference = row
    return IndexState(
        collection,
        version,
        analyzer,
        generation,
        passages,
        np.frombuffer(lengths, "<i8"),
        np.frombuffer(reference, "<f8"),
    )


def write_state(session: PostgresSession, state: IndexState) -> None:
    """Store the state, in the transaction that records what was shipped."""
    values = [
        *state[:5],
        state.lengths.astype("<i8").tobytes(),
        state.reference.astype("<f8").tobytes(),
    ]
    session.run(
        "INSERT INTO qdrant_state (id, collection, version, analyzer, generation, passages, lengths, reference)"
        " VALUES (1, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET collection = excluded.collection,"
        " version = excluded.version, analyzer = excluded.analyzer, generation = excluded.generation,"
        " passages = excluded.passages, lengths = excluded.lengths, reference = excluded.reference",
        values,
    )


class Statistics:
    """Changes of document frequencies, field lengths and the number of passages."""

    def __init__(self) -> None:
        self.passages = 0
        self.lengths: Ints = np.zeros(len(FIELDS), dtype=np.int64)
        self.frequencies: dict[int, int] = {}

    def add(self, dimensions: Ints, lengths: Ints, sign: int = 1) -> None:
        """Count a passage that is added, or with a sign of -1 removed."""
        self.passages += sign
        self.lengths = self.lengths + sign * lengths
        for dimension in dimensions.tolist():
            self.frequencies[dimension] = self.frequencies.get(dimension, 0) + sign

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
