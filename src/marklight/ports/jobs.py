"""Protocol for the queue of passages to embed: worker processes on any machine take leases from it.

Only engines on servers have one: an engine that implements `QueueOwner` returns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable


class Job(NamedTuple):
    """A text without a vector, leased to one worker."""

    digest: str
    chunk_id: str
    """A passage with this text."""
    attempts: int
    """Number of times that a worker has taken it, this one included."""


class FailedJob(NamedTuple):
    """A text that is set aside because every attempt to embed it failed."""

    path: str
    """Document of a passage with this text; empty if there is none any more."""
    attempts: int
    reason: str


class QueueStatus(NamedTuple):
    """State of the queue for one model."""

    waiting: int = 0
    leased: int = 0
    """Texts that workers have in hand."""
    failed: int = 0
    """Texts that are set aside."""
    workers: int = 0
    """Workers that took texts or renewed leases within the time of a lease."""
    per_minute: float = 0.0
    """Texts embedded per minute, over the last ten minutes or since the first of them."""
    failures: Sequence[FailedJob] = ()
    """Some of the texts that are set aside, those that failed last first."""


class EmbeddingQueue(Protocol):
    """Texts without a vector, in order of arrival. Commits add to it, and remove the texts that they have vectors for."""

    lease_seconds: float
    """Duration of a lease, unless it is renewed."""

    def open(self, model: str) -> None:
        """Queue all texts without a vector of this model, now and with every later commit."""

    def fill(self, model: str) -> int:
        """Queue the texts without a vector that an open queue lacks; return how many."""

    def take(self, model: str, worker: str) -> list[Job]:
        """Lease the next texts to a worker: several new ones, or a single one that was taken before.

        A text whose lease has expired is taken again, until its attempts are used up; then it is set aside.
        """

    def renew(self, model: str, worker: str) -> int:
        """Extend the leases of a worker; return how many it still holds."""

    def release(self, model: str, worker: str) -> int:
        """Return the texts of a worker to the queue as if they had not been taken; return how many."""

    def fail(self, model: str, worker: str, digests: Sequence[str], reason: str) -> None:
        """End the leases of texts that could not be embedded; those without attempts left are set aside."""

    def retry_failed(self, model: str) -> int:
        """Queue the texts that are set aside once more; return how many."""

    def leave(self, worker: str) -> None:
        """Forget a worker that has stopped."""

    def alone(self, task: str) -> AbstractContextManager[bool]:
        """Yield true to one process at a time for each task, false to all others."""

    def status(self, model: str) -> QueueStatus:
        """Return the state of the queue for one model."""


@runtime_checkable
class QueueOwner(Protocol):
    """An engine with a queue."""

    @property
    def queue(self) -> EmbeddingQueue: ...
