"""Write changes to Qdrant: ship the outbox, or rebuild the collections from PostgreSQL. Nothing is embedded.

One process ships at a time. All commits in the outbox are shipped together, from one snapshot of PostgreSQL. Every write to Qdrant is
idempotent and concerns points that no reader sees yet, and the transaction that records the commits as shipped also updates the
statistics. So a shipper that is killed at any moment leaves either all of that or nothing, and the next one repeats it. A rebuild
fills new collections, which replace the others in one transaction, so searches continue meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from psycopg.pq import TransactionStatus
from qdrant_client import grpc as api

from marklight.engines.relational.documents import passages_to_index
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import STORED
from marklight.engines.server.qdrant import collections
from marklight.engines.server.qdrant.cluster import MissingCollection
from marklight.engines.server.qdrant.collections import (
    REMOVED,
    Payload,
    document_labels,
    living_filter,
    passage_labels,
    portions,
    rows_filter,
    sparse_point,
)
from marklight.engines.server.qdrant.lexical import (
    PassageTerms,
    passage_vector_terms,
    sparse_vector,
    stored_terms,
)
from marklight.engines.server.qdrant.outbox import (
    ADD,
    COMMIT,
    REMOVE,
    VECTOR,
    IndexState,
    Statistics,
    read_state,
    reference_lengths,
    write_state,
)
from marklight.errors import Busy, StoreError
from marklight.lexical import CODE, FIELDS, WHOLE, analyzer_fingerprint, passage_terms

if TYPE_CHECKING:
    from marklight.engines.server.bm25 import Floats
    from marklight.engines.server.qdrant.cluster import Cluster
    from marklight.lexical import DocumentTerms
    from marklight.model import Chunk

GRACE_SECONDS = 60.0
"""Time for which removed passages stay in Qdrant, for readers of earlier snapshots."""
WAIT_SECONDS = 60.0
"""Time that a commit waits for another process that ships."""
POLL_SECONDS = 0.02
ROWS_AT_ONCE = 500
"""Passages that are read and written at once: some megabytes."""
OUTGROWN = 2.0
"""Ratio of mean lengths, those of now to those of the stored values, from which candidates are selected too roughly."""
MIN_PASSAGES = 1_000
"""Passages below which that does not matter: a search compares a large part of them anyway."""
_MEASURED = [FIELDS.index(field) for field in ("title", "headings", "body", WHOLE, CODE)]
"""Fields that most passages have."""


def ship(session: PostgresSession, cluster: Cluster, wait_seconds: float = WAIT_SECONDS) -> None:
    """Ship all commits in the outbox; return at once if there are none, or when another process has shipped them."""
    with shipping_lock(session, wait_seconds) as is_needed:
        if is_needed:
            ship_pending(session, cluster)


@contextmanager
def shipping_lock(session: PostgresSession, wait_seconds: float) -> Iterator[bool]:
    """Exclude other processes that ship; yield false if meanwhile one of them has shipped everything."""
    end = time.monotonic() + wait_seconds
    key = session.lock_key("outbox")
    while not session.value("SELECT pg_try_advisory_lock(?)", [key]):
        if not is_behind(session):
            yield False
            return
        if time.monotonic() > end:
            raise Busy(
                f"Another process has been writing to Qdrant for {wait_seconds:g} s",
                "The changes are saved and will be searchable when it is done",
            )
        time.sleep(POLL_SECONDS)
    try:
        yield True
    finally:
        with suppress(StoreError):  # the lock ends with the connection
            session.value("SELECT pg_advisory_unlock(?)", [key])


class Backlog(NamedTuple):
    """State of the outbox: commits that wait in it, and the right of this role to ship them."""

    is_behind: bool
    may_ship: bool
    analyzer: str
    """Fingerprint of the analyzer that produced the terms in Qdrant; empty if there are none."""


def read_backlog(session: PostgresSession) -> Backlog:
    """Return the state of the outbox, in one query."""
    row = session.one(
        "SELECT s.generation > coalesce(q.generation, 0), NOT pg_is_in_recovery()"
        " AND has_table_privilege('outbox', 'DELETE'), coalesce(q.analyzer, '')"
        " FROM state s LEFT JOIN qdrant_state q ON true"
    )
    return Backlog(*row) if row else Backlog(False, False, "")


def is_behind(session: PostgresSession) -> bool:
    """Return true if a commit was not shipped yet."""
    return read_backlog(session).is_behind


def wait(session: PostgresSession, wait_seconds: float) -> None:
    """Wait until other processes have shipped everything; raise Busy if that takes longer."""
    end = time.monotonic() + wait_seconds
    while is_behind(session):
        if time.monotonic() > end:
            raise Busy("The last commits are not in Qdrant yet", "Try again in a moment")
        time.sleep(POLL_SECONDS)


@contextmanager
def _consistent(session: PostgresSession) -> Iterator[None]:
    """Read one snapshot of PostgreSQL in one transaction; within another one, no other writer is active."""
    is_outermost = session.connection.info.transaction_status == TransactionStatus.IDLE
    with session.transaction():
        if is_outermost:
            session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def ship_pending(session: PostgresSession, cluster: Cluster) -> None:
    """Ship all commits in the outbox; rebuild the collections if they are missing or the outbox lacks commits."""
    try:
        with _consistent(session):
            state = _ship(session, cluster)
    except MissingCollection:
        state = None
    if state is None or is_outgrown(state):
        rebuild(session, cluster)
    purge(session, cluster)


def _ship(session: PostgresSession, cluster: Cluster) -> IndexState | None:
    """Write the changes to Qdrant, then record that; return the new state, None if a rebuild is needed."""
    state, generation = read_state(session), session.value("SELECT generation FROM state")
    commits = {
        number
        for (number,) in session.all(
            "SELECT generation FROM outbox WHERE kind = ? AND shipped IS NULL", [COMMIT]
        )
    }
    if state is None or commits != set(range(state.generation + 1, generation + 1)):
        return None  # it was never built, or an engine without Qdrant has committed
    before, statistics = state.generation, Statistics()

    def rows(kind: str) -> set[int]:
        query = "SELECT row FROM outbox WHERE generation > ? AND kind = ?"
        return {row for (row,) in session.all(query, [before, kind])}

    added, removed = rows(ADD), rows(REMOVE)
    target = _Target(session, cluster, state.collection, state.reference, generation)
    target.write(stored_passages(session, sorted(added - removed)), statistics)
    with_vector: dict[int, list[int]] = {}
    for model, row in session.all(
        "SELECT DISTINCT m.row, c.row FROM outbox o JOIN models m ON m.name = o.model"
        " JOIN chunks c ON c.digest = o.digest WHERE o.generation > ? AND o.kind = ? ORDER BY 1, 2",
        [before, VECTOR],
    ):
        if row not in added:
            with_vector.setdefault(model, []).append(row)
    for model, numbers in with_vector.items():
        target.write_new_vectors(model, numbers)
    for name in target.names:
        # A shipper that was killed may have written passages that have been removed since.
        collections.delete_points(cluster, name, sorted(added & removed))
    _remove(target, sorted(removed - added), statistics)
    state = state._replace(
        generation=generation,
        passages=state.passages + statistics.passages,
        lengths=state.lengths + statistics.lengths,
    )
    statistics.write(session, state.version)
    write_state(session, state)
    session.run("DELETE FROM outbox WHERE generation > ? AND kind IN (?, ?)", [before, ADD, VECTOR])
    session.run("UPDATE outbox SET shipped = clock_timestamp() WHERE generation > ?", [before])
    return state


class StoredPassage(NamedTuple):
    """A passage as PostgreSQL stores it."""

    row: int
    document: int
    chunk: Chunk
    shared: DocumentTerms
    labels: list[int]

    def terms(self) -> PassageTerms:
        """Return the terms of the passage."""
        return passage_vector_terms(passage_terms(self.shared, self.chunk))


def stored_passages(
    session: PostgresSession, rows: Sequence[int] | None = None
) -> Iterator[StoredPassage]:
    """Yield all passages, or those of some rows."""
    last, shared_labels = -1, set[int]()
    for row, document, passage, shared in passages_to_index(session, rows):
        if document != last:
            pairs = session.all("SELECT key, value FROM metadata WHERE document = ?", [document])
            last, shared_labels = document, document_labels(passage.document, pairs)
        labels = passage_labels(shared_labels, passage.languages)
        yield StoredPassage(row, document, passage, shared, labels)


class _Target:
    """The collections that passages and vectors of one generation are written to."""

    def __init__(
        self,
        session: PostgresSession,
        cluster: Cluster,
        terms: str,
        reference: Floats,
        generation: int,
    ) -> None:
        """Take the name of the collection of terms, and the mean lengths that its values are computed with."""
        self.session, self.cluster = session, cluster
        self.terms, self.reference, self.generation = terms, reference, generation
        self._models = collections.of_models(session)
        self._dimensions: dict[int, int] = dict(session.all("SELECT row, dimension FROM models"))

    @property
    def names(self) -> list[str]:
        return [self.terms, *self._models.values()]

    def write(self, passages: Iterator[StoredPassage], statistics: Statistics) -> None:
        """Write passages with their vectors, and count them."""
        while part := list(islice(passages, ROWS_AT_ONCE)):
            payloads = self._payloads(part)
            points = []
            for passage in part:
                terms = passage.terms()
                statistics.add(terms)
                vector = sparse_vector(terms, self.reference)
                points.append(sparse_point(passage.row, *vector, payloads[passage.row]))
            collections.upsert(self.cluster, self.terms, points)
            for model in self._dimensions:
                self._write_vectors(model, payloads)

    def write_new_vectors(self, model: int, rows: Sequence[int]) -> None:
        """Write the vectors of passages whose terms were written before."""
        for part in portions(rows, ROWS_AT_ONCE):
            written = set[int]()
            if model in self._models:
                # Those that have a vector already keep the generation in which they got it.
                points = collections.get(self.cluster, self._models[model], part, vectors=False)
                written = {point.id.num for point in points}
            new = [row for row in part if row not in written]
            self._write_vectors(model, self._payloads(stored_passages(self.session, new)))

    def _payloads(self, passages: Iterable[StoredPassage]) -> dict[int, Payload]:
        return {
            passage.row: Payload(passage.document, passage.labels, self.generation)
            for passage in passages
        }

    def _write_vectors(self, model: int, payloads: Mapping[int, Payload]) -> None:
        vectors = self.session.all(
            f"SELECT c.row, {STORED} FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value"
            " CROSS JOIN vectors v ON v.digest = c.digest AND v.model = ?",
            [list(payloads), model],
        )
        if not vectors:
            return
        dimension = self._dimensions[model]
        if model not in self._models:
            self._models[model] = collections.new_name(self.session)[1]
            collections.create_vectors(self.cluster, self._models[model], dimension)
            self.session.run(
                "INSERT INTO qdrant_models (model, collection) VALUES (?, ?)",
                [model, self._models[model]],
            )
        collections.upsert_vectors(self.cluster, self._models[model], dimension, vectors, payloads)


def _remove(target: _Target, rows: Sequence[int], statistics: Statistics) -> None:
    """Mark passages as removed, and subtract them from the statistics."""
    for part in portions(rows, ROWS_AT_ONCE):
        points = list(collections.get(target.cluster, target.terms, part, vectors=True))
        if len(points) < len(part):
            raise MissingCollection(f"{target.terms} has lost passages")
        for point in points:
            terms = stored_terms(point)
            statistics.count(terms.terms(), terms.lengths(), -1)
        for name in target.names:
            request = api.SetPayloadPoints(
                collection_name=name,
                wait=True,
                payload={REMOVED: api.Value(integer_value=target.generation)},
                points_selector=api.PointsSelector(filter=rows_filter(part)),
            )
            target.cluster.write("SetPayload", request)


def purge(session: PostgresSession, cluster: Cluster) -> None:
    """Delete what no reader can need any more: removed passages, replaced collections."""
    due = session.value(
        "SELECT max(generation) FROM outbox WHERE shipped < clock_timestamp() - make_interval(secs => ?)",
        [GRACE_SECONDS],
    )
    state = read_state(session)
    if due and state:
        removed = session.all(
            "SELECT row FROM outbox WHERE generation <= ? AND kind = ?", [due, REMOVE]
        )
        for name in (state.collection, *collections.of_models(session).values()):
            collections.delete_points(cluster, name, [row for (row,) in removed])
        session.run("DELETE FROM outbox WHERE generation <= ?", [due])
    old = "dropped < clock_timestamp() - make_interval(secs => ?)"
    for (name,) in session.all(
        f"SELECT collection FROM qdrant_dropped WHERE {old}", [GRACE_SECONDS]
    ):
        collections.delete(cluster, name)
        session.run("DELETE FROM qdrant_dropped WHERE collection = ?", [name])


def is_outgrown(state: IndexState) -> bool:
    """Return true if the mean lengths have changed so much that the stored values should be computed again."""
    ratios = state.means[_MEASURED] / state.reference[_MEASURED]
    is_far = (ratios > OUTGROWN) | ((ratios < 1 / OUTGROWN) & (ratios > 0))
    return state.passages >= MIN_PASSAGES and bool(is_far.any())


def rebuild(session: PostgresSession, cluster: Cluster) -> None:
    """Write all passages and vectors to new collections; the session must be the only one that ships."""
    with _consistent(session):
        before, statistics = read_state(session), Statistics()
        dropped = [
            *([before.collection] if before else []),
            *collections.of_models(session).values(),
        ]
        _delete_orphans(session, cluster, dropped)
        session.run("DELETE FROM qdrant_models")
        session.run("DELETE FROM term_frequencies")
        generation = session.value("SELECT generation FROM state")
        version, name = collections.new_name(session)
        collections.create_terms(cluster, name)
        reference = _reference(session, before)
        target = _Target(session, cluster, name, reference, generation)
        target.write(stored_passages(session), statistics)
        statistics.write(session, version)
        counts = statistics.passages, statistics.lengths
        write_state(
            session,
            IndexState(name, version, analyzer_fingerprint(), generation, *counts, reference),
        )
        session.many(
            "INSERT INTO qdrant_dropped (collection, dropped) VALUES (?, clock_timestamp())",
            [(collection,) for collection in dropped],
        )
        session.run("DELETE FROM outbox WHERE generation <= ?", [generation])


def _delete_orphans(session: PostgresSession, cluster: Cluster, used: Sequence[str]) -> None:
    """Delete collections of rebuilds that were interrupted."""
    kept = {*used, *(name for (name,) in session.all("SELECT collection FROM qdrant_dropped"))}
    for name in collections.names(cluster, session.value("SELECT library FROM state")):
        if name not in kept:
            collections.delete(cluster, name)


def _reference(session: PostgresSession, before: IndexState | None) -> Floats:
    """Return the mean lengths of now, or those of the first passages where they are not known."""
    if before and before.passages and before.analyzer == analyzer_fingerprint():
        return reference_lengths(before.lengths, before.passages)
    first = Statistics()
    for passage in islice(stored_passages(session), MIN_PASSAGES):
        first.add(passage.terms())
    return reference_lengths(first.lengths, first.passages)


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
        indexed = set(collections.rows_in(cluster, name, living_filter(state.generation)))
        if expected - indexed:
            return f"{len(expected - indexed)} of {len(expected)} passages were missing"
        if indexed - expected:
            return f"it had {len(indexed - expected)} deleted passages"
    if state.passages != len(stored):
        return "the number of its passages is wrong"
    return ""
