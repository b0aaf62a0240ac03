"""Ship the outbox to Qdrant: in the order of commits, by one process at a time, with the effect of exactly once.

Every write to Qdrant is idempotent. The transaction that records a commit as shipped also updates the statistics, so a
shipper that is killed at any moment leaves either all of that or nothing, and the next one repeats the commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from qdrant_client import grpc as api

from marklight.engines.lexical import analyzer_fingerprint
from marklight.engines.server.postgres.schema import lock_key
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_table import STORED
from marklight.engines.server.qdrant import collections, rebuild
from marklight.engines.server.qdrant.filters import document_filter, rows_filter
from marklight.engines.server.qdrant.outbox import (
    ADD,
    DATE,
    REMOVE,
    VECTOR,
    IndexState,
    Passage,
    Statistics,
    read_state,
    reference_lengths,
    write_state,
)
from marklight.engines.server.qdrant.points import (
    DATES,
    REMOVED,
    Payload,
    integers,
    microseconds,
    portions,
    sparse_point,
    stored_terms,
)
from marklight.engines.server.qdrant.server_errors import MissingCollection
from marklight.engines.server.qdrant.terms import sparse_vector
from marklight.errors import Busy, StoreError

if TYPE_CHECKING:
    from marklight.engines.server.postgres.connections import Connections
    from marklight.engines.server.qdrant.cluster import Cluster

GRACE_SECONDS = 60.0
"""Time for which removed passages stay in Qdrant, for readers of earlier snapshots."""
WAIT_SECONDS = 60.0
"""Time that a commit waits for another process that ships."""
POLL_SECONDS = 0.02
ROWS_AT_ONCE = 500
"""Passages that are read and written at once: some megabytes."""
_PENDING = "SELECT generation, batch FROM outbox_commits WHERE shipped IS NULL ORDER BY generation"


def ship(connections: Connections, cluster: Cluster, wait_seconds: float = WAIT_SECONDS) -> None:
    """Ship all commits in the outbox; return at once if there are none, or when another process has shipped them."""
    with shipping(connections, wait_seconds) as session:
        if session is not None:
            ship_pending(session, cluster)


@contextmanager
def shipping(connections: Connections, wait_seconds: float) -> Iterator[PostgresSession | None]:
    """Yield a session that alone may ship; None if meanwhile another process has shipped everything."""
    with connections.connection() as connection:
        session = PostgresSession(connections, connection)
        with shipping_lock(session, wait_seconds) as is_needed:
            yield session if is_needed else None


@contextmanager
def shipping_lock(session: PostgresSession, wait_seconds: float) -> Iterator[bool]:
    """Exclude other processes that ship; yield false if meanwhile one of them has shipped everything."""
    end = time.monotonic() + wait_seconds
    key = lock_key(session.connections.address.library, "outbox")
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


def is_behind(session: PostgresSession) -> bool:
    """Return true if a commit was not shipped yet."""
    return bool(
        session.value(
            "SELECT s.generation > coalesce((SELECT q.generation FROM qdrant_state q), 0) FROM state s"
        )
    )


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


def wait(connections: Connections, wait_seconds: float) -> None:
    """Wait until other processes have shipped everything; raise Busy if that takes longer."""
    end = time.monotonic() + wait_seconds
    with connections.connection() as connection:
        while is_behind(PostgresSession(connections, connection)):
            if time.monotonic() > end:
                raise Busy("The last commits are not in Qdrant yet", "Try again in a moment")
            time.sleep(POLL_SECONDS)


def ship_pending(session: PostgresSession, cluster: Cluster) -> None:
    """Ship the commits one by one; rebuild the collections if they are missing or the outbox lacks commits."""
    # In this order: a commit between the two statements is in the list, and is no gap.
    newest = session.value("SELECT generation FROM state")
    pending, state = session.all(_PENDING), read_state(session)
    shipped = state.generation if state else 0
    numbers = [generation for generation, _ in pending]
    if numbers != list(range(shipped + 1, shipped + 1 + len(numbers))) or newest > shipped + len(
        numbers
    ):
        rebuild.rebuild(session, cluster)  # commits of an engine without Qdrant
        return
    for generation, batch in pending:
        try:
            state = _Commit(session, cluster, generation, batch).ship(state)
        except MissingCollection:
            rebuild.rebuild(session, cluster)
            return
        if rebuild.is_outgrown(state):
            rebuild.rebuild(session, cluster)
            return
    purge(session, cluster)


class _Commit:
    """The changes of one commit."""

    def __init__(
        self, session: PostgresSession, cluster: Cluster, generation: int, batch: int
    ) -> None:
        self.session, self.cluster = session, cluster
        self.generation, self.batch = generation, batch
        self.statistics = Statistics()

    def ship(self, state: IndexState | None) -> IndexState:
        """Write everything to Qdrant, then record it; return the new state."""
        session, statistics = self.session, self.statistics
        if state is None:
            state = self._first_state()
        models = collections.of_models(session)
        self._add(state, models)
        self._add_vectors(state, models)
        self._remove(state, models)
        dates = [row for (row,) in self._rows(DATE, "document")]
        set_dates(session, self.cluster, [state.collection, *models.values()], dates)
        state = state._replace(
            generation=self.generation,
            passages=state.passages + statistics.passages,
            lengths=state.lengths + statistics.lengths,
        )
        with session.transaction():
            statistics.write(session, state.version)
            write_state(session, state)
            session.run(
                "DELETE FROM outbox WHERE batch = ? AND kind IN (?, ?)", [self.batch, ADD, VECTOR]
            )
            session.run(
                "UPDATE outbox_commits SET shipped = clock_timestamp() WHERE generation = ?",
                [self.generation],
            )
        return state

    def _rows(self, kind: str, columns: str) -> list[Any]:
        query = f"SELECT {columns} FROM outbox WHERE batch = ? AND kind = ? ORDER BY chunk"
        return self.session.all(query, [self.batch, kind])

    def _first_state(self) -> IndexState:
        """Create the collection of terms, with the mean lengths of this commit."""
        first = Statistics()
        for rows in self._passages():
            for passage in rows.values():
                first.add(passage.terms.dimensions, passage.terms.lengths)
        number, name = collections.new_name(self.session)
        collections.create_terms(self.cluster, name)
        zero = Statistics()
        reference = reference_lengths(first.lengths, first.passages)
        return IndexState(name, number, analyzer_fingerprint(), 0, 0, zero.lengths, reference)

    def _passages(self) -> Iterator[Mapping[int, Passage]]:
        """Yield the added passages by their rows, some at a time."""
        last = 0
        while rows := self.session.all(
            "SELECT chunk, data FROM outbox WHERE batch = ? AND kind = ? AND chunk > ?"
            " ORDER BY chunk LIMIT ?",
            [self.batch, ADD, last, ROWS_AT_ONCE],
        ):
            yield {row: Passage.unpacked(data) for row, data in rows}
            last = rows[-1][0]

    def _add(self, state: IndexState, models: dict[int, str]) -> None:
        documents = dict(self._rows(ADD, "chunk, document"))
        for passages in self._passages():
            payloads = {
                row: Payload(documents[row], each.labels, [each.date], self.generation)
                for row, each in passages.items()
            }
            points = [
                sparse_point(row, *sparse_vector(each.terms, state.reference), payloads[row])
                for row, each in passages.items()
            ]
            collections.upsert(self.cluster, state.collection, points)
            for each in passages.values():
                self.statistics.add(each.terms.dimensions, each.terms.lengths)
            vectors = self.session.all(
                f"SELECT v.model, o.chunk, {STORED} FROM integers(?) r"
                " CROSS JOIN outbox o ON o.chunk = r.value CROSS JOIN vectors v ON v.digest = o.digest"
                " WHERE o.batch = ? AND o.kind = ?",
                [list(passages), self.batch, ADD],
            )
            self._upsert_vectors(vectors, payloads, models)

    def _add_vectors(self, state: IndexState, models: dict[int, str]) -> None:
        """Ship new vectors of passages that are in the collection of terms, which has their payload."""
        rows = self.session.all(
            "SELECT m.row, c.row FROM outbox o JOIN models m ON m.name = o.model"
            " JOIN chunks c ON c.digest = o.digest WHERE o.batch = ? AND o.kind = ?",
            [self.batch, VECTOR],
        )
        for model, part in ((rows[0][0], part) for part in portions(rows, ROWS_AT_ONCE)):
            # Those that have a vector already keep the generation in which they got it.
            known = self._known_rows(models.get(model), [chunk for _, chunk in part])
            new = [chunk for _, chunk in part if chunk not in known]
            points = collections.get(
                self.cluster, state.collection, new, vectors=False, payload=True
            )
            payloads = {
                point.id.num: Payload.read(point.payload)._replace(added=self.generation)
                for point in points
            }
            vectors = self.session.all(
                f"SELECT v.model, c.row, {STORED} FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value"
                " CROSS JOIN vectors v ON v.digest = c.digest WHERE v.model = ?",
                [list(payloads), model],
            )
            self._upsert_vectors(vectors, payloads, models)

    def _known_rows(self, name: str | None, rows: Sequence[int]) -> set[int]:
        if name is None:
            return set()
        points = collections.get(self.cluster, name, rows, vectors=False, payload=False)
        return {point.id.num for point in points}

    def _upsert_vectors(
        self,
        vectors: Sequence[tuple[int, int, bytes]],
        payloads: Mapping[int, Payload],
        models: dict[int, str],
    ) -> None:
        for model in sorted({model for model, _, _ in vectors}):
            query = "SELECT dimension FROM models WHERE row = ?"
            dimension = self.session.value(query, [model])
            if model not in models:
                models[model] = collections.new_name(self.session)[1]
                collections.create_vectors(self.cluster, models[model], dimension)
                self.session.run(
                    "INSERT INTO qdrant_models (model, collection) VALUES (?, ?)",
                    [model, models[model]],
                )
            own = [(row, data) for each, row, data in vectors if each == model]
            collections.upsert_vectors(self.cluster, models[model], dimension, own, payloads)

    def _remove(self, state: IndexState, models: Mapping[int, str]) -> None:
        rows = [row for (row,) in self._rows(REMOVE, "chunk")]
        for part in portions(rows, ROWS_AT_ONCE):
            points = list(
                collections.get(self.cluster, state.collection, part, vectors=True, payload=False)
            )
            if len(points) < len(part):
                raise MissingCollection(f"{state.collection} has lost passages")
            for point in points:
                terms = stored_terms(point)
                self.statistics.add(terms.terms(), terms.lengths(), -1)
            for name in (state.collection, *models.values()):
                request = api.SetPayloadPoints(
                    collection_name=name,
                    wait=True,
                    payload={REMOVED: api.Value(integer_value=self.generation)},
                    points_selector=api.PointsSelector(filter=rows_filter(part)),
                )
                self.cluster.write("SetPayload", request)


def set_dates(
    session: PostgresSession, cluster: Cluster, names: Sequence[str], documents: Sequence[int]
) -> None:
    """Add the present dates of documents to those of earlier snapshots."""
    for document in documents:
        dates = session.all("SELECT timestamp FROM documents WHERE row = ?", [document])
        if dates:
            _set_dates(cluster, names, document, microseconds(dates[0][0]), keep=True)


def _set_dates(
    cluster: Cluster, names: Sequence[str], document: int, date: int, keep: bool
) -> None:
    condition = document_filter(document)
    first = api.ScrollPoints(collection_name=names[0], filter=condition, limit=1)
    first.with_payload.enable = True
    points = cluster.read("Scroll", first).result
    if not points:
        return
    before = Payload.read(points[0].payload).dates if keep else []
    for name in names:
        request = api.SetPayloadPoints(
            collection_name=name,
            wait=True,
            payload={DATES: integers(sorted({*before, date}))},
            points_selector=api.PointsSelector(filter=condition),
        )
        cluster.write("SetPayload", request)


def purge(session: PostgresSession, cluster: Cluster) -> None:
    """Delete what no reader can need any more: removed passages, earlier dates, replaced collections."""
    before = "shipped < clock_timestamp() - make_interval(secs => ?)"
    due = session.all(
        f"SELECT generation, batch FROM outbox_commits WHERE {before}", [GRACE_SECONDS]
    )
    state = read_state(session)
    if due and state:
        names = [state.collection, *collections.of_models(session).values()]
        batches = [batch for _, batch in due]
        rows = session.all(
            "SELECT o.kind, o.chunk, o.document, d.timestamp FROM integers(?) b"
            " CROSS JOIN outbox o ON o.batch = b.value LEFT JOIN documents d ON d.row = o.document",
            [batches],
        )
        removed = [chunk for kind, chunk, _, _ in rows if kind == REMOVE]
        for name in names:
            collections.delete_points(cluster, name, removed)
        for document, date in {each[2]: each[3] for each in rows if each[0] == DATE}.items():
            if date is not None:
                _set_dates(cluster, names, document, microseconds(date), keep=False)
    with session.transaction():
        for _, batch in due:
            session.run("DELETE FROM outbox WHERE batch = ?", [batch])
            session.run("DELETE FROM outbox_commits WHERE batch = ?", [batch])
    old = "dropped < clock_timestamp() - make_interval(secs => ?)"
    for (name,) in session.all(
        f"SELECT collection FROM qdrant_dropped WHERE {old}", [GRACE_SECONDS]
    ):
        collections.delete(cluster, name)
        session.run("DELETE FROM qdrant_dropped WHERE collection = ?", [name])
