"""Rebuild the collections from PostgreSQL: terms from the stored texts, vectors from the stored ones. Nothing is embedded.

A rebuild fills new collections, which replace the others in one transaction, so searches continue meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.pq import TransactionStatus

from marklight.engines.lexical import (
    CODE,
    NO_TERMS,
    WHOLE,
    analyzer_fingerprint,
    passage_terms,
    shared_terms,
)
from marklight.engines.relational.records import CHUNK, chunk
from marklight.engines.server.postgres.vector_table import STORED
from marklight.engines.server.qdrant import collections
from marklight.engines.server.qdrant.filters import living_filter
from marklight.engines.server.qdrant.outbox import (
    IndexState,
    Passage,
    Statistics,
    read_state,
    reference_lengths,
    write_state,
)
from marklight.engines.server.qdrant.points import (
    Payload,
    document_labels,
    microseconds,
    passage_labels,
    sparse_point,
)
from marklight.engines.server.qdrant.terms import FIELD_NUMBERS, passage_vector_terms, sparse_vector

if TYPE_CHECKING:
    from marklight.engines.server.postgres.session import PostgresSession
    from marklight.engines.server.qdrant.cluster import Cluster

PASSAGES_AT_ONCE = 500
OUTGROWN = 2.0
"""Ratio of mean lengths, those of now to those of the stored values, from which candidates are selected too roughly."""
MIN_PASSAGES = 1_000
"""Passages below which that does not matter: a search compares a large part of them anyway."""
_MEASURED = [FIELD_NUMBERS[field] for field in ("title", "headings", "body", WHOLE, CODE)]
"""Fields that most passages have."""


def is_outgrown(state: IndexState) -> bool:
    """Return true if the mean lengths have changed so much that the stored values should be computed again."""
    ratios = state.means[_MEASURED] / state.reference[_MEASURED]
    is_far = (ratios > OUTGROWN) | ((ratios < 1 / OUTGROWN) & (ratios > 0))
    return state.passages >= MIN_PASSAGES and bool(is_far.any())


class StoredPassage(NamedTuple):
    """A passage as PostgreSQL stores it."""

    row: int
    document: int
    passage: Passage


def rebuild(session: PostgresSession, cluster: Cluster) -> IndexState:
    """Write all passages and vectors to new collections; the session must be the only one that ships."""
    before, names = read_state(session), collections.of_models(session)
    dropped = [*([before.collection] if before else []), *names.values()]
    is_outermost = session.connection.info.transaction_status == TransactionStatus.IDLE
    with session.transaction():
        if is_outermost:  # else no other writer is active, so there is nothing to see
            session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        _delete_orphans(session, cluster, dropped)
        generation = session.value("SELECT generation FROM state")
        number, name = collections.new_name(session)
        collections.create_terms(cluster, name)
        models = {
            model: (dimension, collections.new_name(session)[1])
            for model, dimension in session.all("SELECT row, dimension FROM models ORDER BY row")
        }
        for dimension, own in models.values():
            collections.create_vectors(cluster, own, dimension)
        statistics, reference = Statistics(), _reference(session, before)
        for part in _portions(stored_passages(session)):
            _write(session, cluster, name, models, part, generation, reference)
            for each in part:
                statistics.add(each.passage.terms.dimensions, each.passage.terms.lengths)
        state = IndexState(
            name,
            number,
            analyzer_fingerprint(),
            generation,
            statistics.passages,
            statistics.lengths,
            reference,
        )
        session.run("DELETE FROM term_frequencies")
        statistics.write(session, number)
        write_state(session, state)
        session.run("DELETE FROM qdrant_models")
        session.many(
            "INSERT INTO qdrant_models (model, collection) VALUES (?, ?)",
            [(model, own) for model, (_, own) in models.items()],
        )
        session.many(
            "INSERT INTO qdrant_dropped (collection, dropped) VALUES (?, clock_timestamp())",
            [(own,) for own in dropped],
        )
        session.run(
            "DELETE FROM outbox o USING outbox_commits c WHERE o.batch = c.batch AND c.generation <= ?",
            [generation],
        )
        session.run("DELETE FROM outbox_commits WHERE generation <= ?", [generation])
    return state


def _delete_orphans(session: PostgresSession, cluster: Cluster, used: Sequence[str]) -> None:
    """Delete collections of rebuilds that were interrupted."""
    kept = {*used, *(name for (name,) in session.all("SELECT collection FROM qdrant_dropped"))}
    for name in collections.names(cluster, session.value("SELECT library FROM state")):
        if name not in kept:
            collections.delete(cluster, name)


def _write(
    session: PostgresSession,
    cluster: Cluster,
    name: str,
    models: Mapping[int, tuple[int, str]],
    part: Sequence[StoredPassage],
    generation: int,
    reference: Any,
) -> None:
    payloads = {
        each.row: Payload(each.document, each.passage.labels, [each.passage.date], generation)
        for each in part
    }
    points = [
        sparse_point(each.row, *sparse_vector(each.passage.terms, reference), payloads[each.row])
        for each in part
    ]
    collections.upsert(cluster, name, points)
    vectors: dict[int, list[tuple[int, bytes]]] = {}
    for model, row, data in session.all(
        f"SELECT v.model, c.row, {STORED} FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value"
        " CROSS JOIN vectors v ON v.digest = c.digest",
        [list(payloads)],
    ):
        vectors.setdefault(model, []).append((row, data))
    for model, own in vectors.items():
        dimension, collection = models[model]
        collections.upsert_vectors(cluster, collection, dimension, own, payloads)


def _reference(session: PostgresSession, before: IndexState | None) -> Any:
    """Return the mean lengths of now, or those of the first passages where they are not known."""
    if before and before.passages and before.analyzer == analyzer_fingerprint():
        return reference_lengths(before.lengths, before.passages)
    first = Statistics()
    for each in islice(stored_passages(session), MIN_PASSAGES):
        first.add(each.passage.terms.dimensions, each.passage.terms.lengths)
    return reference_lengths(first.lengths, first.passages)


def stored_passages(session: PostgresSession) -> Iterator[StoredPassage]:
    """Yield the labels and terms of all passages, those of a document one after another."""
    last, shared_labels, date = -1, set[int](), 0
    terms = NO_TERMS
    for row, document, when, record, *columns in session.each(
        f"SELECT c.row, c.document, d.timestamp, t.record, {CHUNK} FROM chunks c"
        " JOIN documents d ON d.row = c.document JOIN contents t ON t.document = c.document"
        " ORDER BY c.document, c.row"
    ):
        own = chunk(columns)
        if document != last:
            pairs = session.all("SELECT key, value FROM metadata WHERE document = ?", [document])
            last, terms = document, shared_terms(json.loads(record))
            shared_labels, date = document_labels(own.document, pairs), microseconds(when)
        labels = passage_labels(shared_labels, own.languages)
        found = passage_vector_terms(passage_terms(terms, own))
        yield StoredPassage(row, document, Passage(labels, date, found))


def _portions(passages: Iterator[StoredPassage]) -> Iterator[list[StoredPassage]]:
    while part := list(islice(passages, PASSAGES_AT_ONCE)):
        yield part


def find_difference(session: PostgresSession, cluster: Cluster) -> str:
    """Return how the collections differ from the passages; empty if they do not."""
    state = read_state(session)
    stored = {row for (row,) in session.all("SELECT row FROM chunks")}
    if state is None:
        return "it was never built" if stored else ""
    if state.analyzer != analyzer_fingerprint():
        return "another analyzer produced its terms"
    names = {state.collection: stored}
    for model, name in collections.of_models(session).items():
        rows = session.all(
            "SELECT c.row FROM chunks c JOIN vectors v ON v.digest = c.digest WHERE v.model = ?",
            [model],
        )
        names[name] = {row for (row,) in rows}
    for name, expected in names.items():
        if not collections.exists(cluster, name):
            return "a collection is missing"
        found = set(collections.rows_in(cluster, name, living_filter(state.generation)))
        if expected - found:
            return f"{len(expected - found)} of {len(expected)} passages were missing"
        if found - expected:
            return f"it had {len(found - expected)} deleted passages"
    if state.passages != len(stored):
        return "the number of its passages is wrong"
    return ""
