"""Queue of texts to embed in PostgreSQL: leases by `FOR UPDATE SKIP LOCKED`, retries with a limit, failures set aside.

A commit adds its new texts and removes those that it brings vectors for, in its own transaction, so that the queue never
differs from the index. All times are those of the server, whatever the clocks of the workers show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from marklight.engines.relational.write import ChangedRows
from marklight.engines.server.postgres.connections import Connections, MissingLibrary
from marklight.engines.server.postgres.session import PostgresSession, borrowed_session
from marklight.errors import StoreError
from marklight.ports import FailedJob, Job, QueueStatus

MAX_SHOWN_FAILURES = 20
MAX_REASON = 500
"""Characters of a reason that are stored."""
RATE_MINUTES = 10
"""Minutes over which the rate is measured."""
NO_ANSWER = "the worker ended without a result"

_WITHOUT_VECTOR = (
    "NOT EXISTS (SELECT 1 FROM models m JOIN vectors v ON v.model = m.row"
    " WHERE m.name = {model} AND v.digest = {digest})"
)
_FREE = "failed_at IS NULL AND (leased_until IS NULL OR leased_until < now())"
_LEASE_END = "now() + ?::double precision * interval '1 second'"


class JobQueue:
    """The queue of one library. The primary server holds it; every method is a short transaction of its own."""

    batch_passages = 64
    """Texts that a worker takes at once: two batches of a model, so that a lost worker delays few of them."""
    lease_seconds = 120.0
    """Duration of a lease, which a worker renews; a text whose lease has expired may be taken by others."""
    attempts = 3
    """Attempts to embed a text before it is set aside; the first may fail because of another text in its batch."""

    def __init__(
        self,
        connections: Connections,
        choose_reader: Callable[[], Connections] | None = None,
    ) -> None:
        self.connections = connections
        self._choose_reader = choose_reader
        """Returns a server for the status while the primary does not answer."""

    @contextmanager
    def _session(self, reader: Connections | None = None) -> Iterator[PostgresSession]:
        with borrowed_session(reader or self.connections) as session, session.transaction():
            yield session

    # For workers

    def open(self, model: str) -> None:
        """Queue all texts without a vector of this model, now and with every later commit."""
        with self._session() as session:
            if session.value("SELECT filled FROM queued_models WHERE model = ?", [model]):
                return
            # Commits hold this lock at their end: each of them finds the model, or is complete before the queue is filled.
            session.run("SELECT 1 FROM state FOR UPDATE")
            session.run(
                "INSERT INTO queued_models (model) VALUES (?) ON CONFLICT (model) DO NOTHING",
                [model],
            )
        self.fill(model)

    def fill(self, model: str) -> int:
        """Queue the texts without a vector that are not queued yet; return how many."""
        with self._session() as session:
            session.run("SELECT pg_advisory_xact_lock(?)", [session.lock_key("queue", "fill")])
            missing = _WITHOUT_VECTOR.format(model="?", digest="c.digest")
            added = session.run(
                "INSERT INTO jobs (model, digest) SELECT ?, c.digest FROM chunks c"
                f" WHERE c.digest <> '' AND {missing} GROUP BY c.digest ORDER BY min(c.row)"
                " ON CONFLICT (model, digest) DO NOTHING",
                [model, model],
            )
            session.run("UPDATE queued_models SET filled = true WHERE model = ?", [model])
        return added

    def take(self, model: str, worker: str) -> list[Job]:
        """Lease the next texts to a worker: several new ones, or a single one that was taken before."""
        with self._session() as session:
            self._see(session, model, worker)
            self._set_aside_expired(session, model)
            # The limit is part of the text: for an unknown one, the plan would read the whole queue.
            free = session.all(
                f"SELECT digest, attempts FROM jobs WHERE model = ? AND {_FREE}"
                f" ORDER BY row LIMIT {self.batch_passages:d} FOR UPDATE SKIP LOCKED",
                [model],
            )
            # A job that was taken before comes alone: it may be the one that makes workers fail.
            chosen = [digest for digest, attempts in free if attempts == 0]
            if free and free[0][1] > 0:
                chosen = [free[0][0]]
            taken = session.all(
                f"UPDATE jobs j SET worker = ?, attempts = j.attempts + 1, leased_until = {_LEASE_END}"
                " WHERE j.model = ? AND j.digest = ANY(?::text[]) RETURNING j.digest, j.attempts, j.row,"
                " (SELECT min(c.id) FROM chunks c WHERE c.digest = j.digest)",
                [worker, self.lease_seconds, model, chosen],
            )
            gone = [digest for digest, _, _, chunk in taken if chunk is None]
            if gone:  # their documents have been changed or removed
                _delete(session, model, gone)
        return [
            Job(digest, chunk, attempts)
            for digest, attempts, _, chunk in sorted(taken, key=lambda row: row[2])
            if chunk is not None
        ]

    def _set_aside_expired(self, session: PostgresSession, model: str) -> None:
        """Set aside the texts whose last attempt ended with the worker."""
        session.run(
            "UPDATE jobs SET failed_at = now(), worker = NULL, leased_until = NULL,"
            " reason = CASE WHEN reason = '' THEN ? ELSE reason END"
            " WHERE model = ? AND worker IS NOT NULL AND failed_at IS NULL"
            " AND leased_until < now() AND attempts >= ?",
            [NO_ANSWER, model, self.attempts],
        )

    def renew(self, model: str, worker: str) -> int:
        """Extend the leases of a worker; return how many it still holds."""
        with self._session() as session:
            self._see(session, model, worker)
            return session.run(
                f"UPDATE jobs SET leased_until = {_LEASE_END} WHERE model = ? AND worker = ?",
                [self.lease_seconds, model, worker],
            )

    def release(self, model: str, worker: str) -> int:
        """Return the texts of a worker to the queue as if they had not been taken; return how many."""
        with self._session() as session:
            return session.run(
                "UPDATE jobs SET worker = NULL, leased_until = NULL, attempts = attempts - 1"
                " WHERE model = ? AND worker = ?",
                [model, worker],
            )

    def fail(self, model: str, worker: str, digests: Sequence[str], reason: str) -> None:
        """End the leases of texts that could not be embedded; those without attempts left are set aside."""
        with self._session() as session:
            session.run(
                "UPDATE jobs SET worker = NULL, leased_until = NULL, reason = ?,"
                " failed_at = CASE WHEN attempts >= ? THEN now() END"
                " WHERE model = ? AND worker = ? AND digest = ANY(?::text[])",
                [reason[:MAX_REASON], self.attempts, model, worker, list(digests)],
            )

    def retry_failed(self, model: str) -> int:
        """Queue the texts that are set aside once more; return how many."""
        with self._session() as session:
            return session.run(
                "UPDATE jobs SET failed_at = NULL, attempts = 0, reason = ''"
                " WHERE model = ? AND failed_at IS NOT NULL",
                [model],
            )

    def leave(self, worker: str) -> None:
        """Forget a worker that has stopped."""
        with self._session() as session:
            session.run("DELETE FROM workers WHERE worker = ?", [worker])

    @contextmanager
    def alone(self, task: str) -> Iterator[bool]:
        """Yield true to one process at a time for each task, false to all others."""
        with self._session() as session:
            # Released at the end of the transaction, also if the process is killed.
            key = session.lock_key("queue", task)
            yield bool(session.value("SELECT pg_try_advisory_xact_lock(?)", [key]))

    def _see(self, session: PostgresSession, model: str, worker: str) -> None:
        session.run(
            "INSERT INTO workers (worker, model) VALUES (?, ?)"
            " ON CONFLICT (worker) DO UPDATE SET model = excluded.model, seen = now()",
            [worker, model],
        )

    # For status

    def status(self, model: str) -> QueueStatus:
        """Return the state of the queue for one model; an empty one if the library does not exist."""
        try:
            return self._status(model)
        except MissingLibrary:
            return QueueStatus()
        except StoreError:
            if self._choose_reader is None:
                raise
            return self._status(model, self._choose_reader())

    def _status(self, model: str, reader: Connections | None = None) -> QueueStatus:
        with self._session(reader) as session:
            counts = session.one(
                "SELECT count(*) FILTER (WHERE failed_at IS NULL AND (worker IS NULL OR leased_until < now())),"
                " count(*) FILTER (WHERE worker IS NOT NULL AND leased_until >= now()),"
                " count(*) FILTER (WHERE failed_at IS NOT NULL) FROM jobs WHERE model = ?",
                [model],
            )
            workers = session.value(
                "SELECT count(*) FROM workers WHERE model = ?"
                " AND seen > now() - ?::double precision * interval '1 second'",
                [model, self.lease_seconds],
            )
            rate = session.value(
                "SELECT sum(texts) * 60 / greatest(extract(epoch FROM now() - min(minute)), 1)"
                " FROM embedded_per_minute WHERE model = ? AND minute > now() - ? * interval '1 minute'",
                [model, RATE_MINUTES],
            )
            failures = session.all(
                "SELECT coalesce((SELECT min(d.path) FROM chunks c JOIN documents d ON d.row = c.document"
                " WHERE c.digest = j.digest), ''), j.attempts, j.reason FROM jobs j"
                " WHERE j.model = ? AND j.failed_at IS NOT NULL ORDER BY j.failed_at DESC LIMIT ?",
                [model, MAX_SHOWN_FAILURES],
            )
        assert counts is not None
        waiting, leased, failed = counts
        shown = tuple(FailedJob(*failure) for failure in failures)
        return QueueStatus(waiting, leased, failed, workers, float(rate or 0.0), shown)

    # For commits

    def finish(self, session: PostgresSession, change: ChangedRows) -> None:
        """Queue the new texts of a commit and remove those that it has vectors for, while other commits wait.

        Under the lock of the commit's end, because inserts and deletions of the same job could deadlock otherwise.
        """
        if not session.value("SELECT EXISTS (SELECT 1 FROM queued_models)"):
            return
        digests = {chunk.digest for new in change.inserted for chunk in new.entry.chunks} - {""}
        if digests:
            missing = _WITHOUT_VECTOR.format(model="q.model", digest="t.value")
            session.run(
                "INSERT INTO jobs (model, digest) SELECT q.model, t.value"
                f" FROM queued_models q CROSS JOIN texts(?) t ON true WHERE {missing}"
                " ORDER BY t.key ON CONFLICT (model, digest) DO NOTHING",
                [sorted(digests)],
            )
        vectors = change.batch.vectors
        if vectors is not None and vectors.digests:
            done = _delete(session, vectors.model, list(vectors.digests))
            if done:
                self._count(session, vectors.model, done)

    def _count(self, session: PostgresSession, model: str, texts: int) -> None:
        session.run(
            "INSERT INTO embedded_per_minute (model, minute, texts) VALUES (?, date_trunc('minute', now()), ?)"
            " ON CONFLICT (model, minute) DO UPDATE SET texts = embedded_per_minute.texts + excluded.texts",
            [model, texts],
        )
        session.run("DELETE FROM embedded_per_minute WHERE minute < now() - interval '1 hour'")

    def clean(self, session: PostgresSession, keep: Iterable[str]) -> None:
        """Close the queues of models that are not in `keep`."""
        for table in ("queued_models", "jobs", "workers", "embedded_per_minute"):
            session.run(
                f"DELETE FROM {table} WHERE model NOT IN (SELECT t.value FROM texts(?) t)",
                [list(keep)],
            )


def _delete(session: PostgresSession, model: str, digests: list[str]) -> int:
    return session.run(
        "DELETE FROM jobs WHERE model = ? AND digest = ANY(?::text[])",
        [model, digests],
    )
