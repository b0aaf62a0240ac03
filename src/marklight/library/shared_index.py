"""An index on a server, which other machines use too: rights to write, folders that belong to it, files that are elsewhere, and embedding workers.

A worker takes texts from the queue of the index, embeds them and commits their vectors. Any number of workers run on any
number of machines. One that is killed loses nothing: its leases expire, and another worker takes its texts. One that is
stopped finishes the texts that it has in hand.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from marklight.errors import Message, ModelError, ModelServerError, StoreError, UsageError
from marklight.formatting import counted
from marklight.library.refresh import embeds_here
from marklight.model import Batch, Chunk, DocumentId, Vectors
from marklight.place import is_library, remember
from marklight.ports import WRITER_SECONDS, Embedder, IndexedFile, Job, QueueStatus, no_progress

if TYPE_CHECKING:
    from marklight.engines.server.postgres.jobs import JobQueue
    from marklight.library import Library


ELSEWHERE = "Documents whose files are not on this machine are shown as they were indexed"


def queue_of(library: Library) -> JobQueue | None:
    """Return the queue of passages to embed; None if the engine of a library has none."""
    return getattr(library.engine, "queue", None)


class SharedIndex:
    """The index of a library on a server. Each notice is given once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._given: set[str] = set()
        self._lock = Lock()
        self._is_member: bool | None = None

    @property
    def indexes_here(self) -> bool:
        """Return true if changes of files on this machine are indexed.

        A search in a folder that nobody added to the index must not add it: the address of the engine may be that of
        all folders of this user.
        """
        library = self._library
        if library.engine.read_only() or not self.is_member:
            return False
        return any(map(os.path.isdir, library.collections.values()))

    @property
    def is_member(self) -> bool:
        """Return true if the folder belongs to the index: it has settings, was indexed before, or is the first one."""
        if self._is_member is None:
            library = self._library
            declared = bool(library.settings["collections"]) or is_library(library.place.folder)
            if not declared:
                with library.engine.snapshot() as snapshot:
                    declared = not snapshot.status.counts("").documents
            self._is_member = declared
        return self._is_member

    def remember_folder(self) -> None:
        """Record that the folder belongs to the index, after it was indexed."""
        with suppress(OSError):  # then commands must be run in the folder itself
            remember(self._library.place.folder)
        self._is_member = True

    def not_indexed_notices(self) -> tuple[str, ...]:
        """Return the notice why changes are not indexed here."""
        library = self._library
        if library.engine.read_only():
            if not self._is_first("read only"):
                return ()
            written = library.engine.server().get("last_write")
            when = f"It was last updated {written}" if written else "Nothing is indexed yet"
            return (f"You may only read the index {library.address}. {when}",)
        if self.is_member or not self._is_first("not a member"):
            return ()  # folders that are missing have notices of their own
        statement = f"{library.place.folder} is not part of the index {library.address}"
        return (Message(f"{statement}; `marklight index` adds its documents", statement),)

    def other_collections(self, names: Iterable[str]) -> list[str]:
        """Return the collections that other machines added, if any of the given names is not configured here."""
        library = self._library
        if set(names) <= library.collections.keys():
            return []
        with library.engine.snapshot() as snapshot:
            stored = {id.collection for id in snapshot.documents.files()}
        return sorted(stored - library.collections.keys())

    def open_queue(self) -> None:
        """Queue the passages without a vector for workers, now and with every later commit."""
        fingerprint = self._library.models.fingerprint()[0]
        if (queue := queue_of(self._library)) and fingerprint:
            queue.open(fingerprint)

    def queue_status(self, fingerprint: str) -> dict[str, Any]:
        """Return the state of the queue of a model for `status`; empty if workers do not embed and nothing waits."""
        queue = queue_of(self._library)
        if queue is None or not fingerprint:
            return {}
        state = queue.status(fingerprint)
        if state == QueueStatus() and embeds_here(self._library):
            return {}
        failures = [failure._asdict() for failure in state.failures]
        return {"queue": {**state._asdict(), "failures": failures}}

    def missing_notices(self) -> list[str]:
        """Return notices about collections whose folder is not on this machine."""
        return [notice for notice in self._library.files.missing() if self._is_first(notice)]

    def elsewhere_notices(self, files: Mapping[DocumentId, IndexedFile]) -> tuple[str, ...]:
        """Return the notice that results come from files that are not on this machine."""
        if not self.is_member:
            return ()
        is_here = self._library.files.is_here
        away = any(indexed.file.is_elsewhere and not is_here(id) for id, indexed in files.items())
        return (ELSEWHERE,) if away and self._is_first(ELSEWHERE) else ()

    def _is_first(self, notice: str) -> bool:
        with self._lock:
            is_first = notice not in self._given
            self._given.add(notice)
        return is_first


RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
"""Pause after an error of the database or of the model's server; it doubles with every further one."""
REFILL_SECONDS = 600.0
"""Time between two comparisons of an empty queue with the index, such as after vectors were deleted."""
REPORT_SECONDS = 60.0
"""Time between two reports of progress."""
POLL_SECONDS = 2.0
"""Time between two checks of an empty queue."""
PROBE = "test"
"""Text that any model can embed: shows whether a failure is due to the texts or to the model's server."""
NOT_FINITE = "The model returns a vector with numbers that are not finite"


class EmbeddingWorker:
    """Embeds the queued texts of one library until it is stopped."""

    def __init__(self, library: Library, notify: Callable[[str], None]) -> None:
        self.library = library
        self.notify = notify
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        """Unique, since the leases of a worker are found by its name."""
        self.embedded = 0
        """Texts embedded so far."""
        self.stopping = Event()
        queue, embedder = queue_of(library), library.models.embedder
        if queue is None:
            raise UsageError(
                f"The engine {library.engine.describe()} has no queue: each process embeds its passages itself",
                'Workers need an index on a server: engine = "postgresql://…"',
            )
        if embedder is None:
            raise UsageError(
                'A worker needs a model, but model.name is "none"', "Set model.name to a model"
            )
        self.queue: JobQueue = queue
        self.embedder: Embedder = embedder
        self.model = embedder.fingerprint
        self._pause_seconds = RETRY_SECONDS
        self._problem = ""
        self._refill_at = self._report_at = 0.0

    def run(self, *, drain: bool = False) -> None:
        """Embed texts until stopped; with `drain`, until the queue is empty or an error occurs."""
        try:
            while not self.stopping.is_set():
                try:
                    if self._work():
                        continue
                    if drain:
                        break
                except (ModelServerError, StoreError) as error:
                    if drain:
                        raise
                    self._wait_after(str(error))
                else:
                    self.stopping.wait(POLL_SECONDS)
        finally:
            # If the database cannot be reached, the leases expire.
            with suppress(StoreError):
                self.queue.release(self.model, self.name)
                self.queue.leave(self.name)

    def stop(self) -> None:
        """Stop after the texts in hand."""
        self.stopping.set()

    def _work(self) -> bool:
        """Embed one batch; return false if there is nothing to do."""
        self.queue.open(self.model)
        jobs = self.queue.take(self.model, self.name)
        if jobs:
            with self._renewing():
                self._embed(jobs)
        elif not self._refill() and not self._replace_outdated():
            self._embed_vocabulary()
            return False
        self._pause_seconds, self._problem = RETRY_SECONDS, ""
        self._report()
        return True

    def _embed(self, jobs: Sequence[Job]) -> None:
        """Embed texts and commit their vectors; texts that fail are counted, all others are given back."""
        engine = self.library.engine
        with engine.snapshot() as snapshot:
            passages = snapshot.documents.chunks([job.chunk_id for job in jobs])
        chunks = {chunk.id: chunk for chunk in passages}
        batch = [(job, chunks[job.chunk_id]) for job in jobs if job.chunk_id in chunks]
        try:
            if batch:
                self._embed_batch(batch)
        finally:
            # What is still leased now was not tried: a passage that is gone, or a lost connection.
            with suppress(StoreError):
                self.queue.release(self.model, self.name)

    def _embed_batch(self, batch: Sequence[tuple[Job, Chunk]]) -> None:
        import numpy as np

        from marklight.ingest.embedding import embed_chunks
        from marklight.vector_math import round_vectors

        digests = [job.digest for job, _ in batch]
        try:
            matrix = embed_chunks(self.embedder, [chunk for _, chunk in batch])
        except ModelServerError as error:
            if not self._model_answers():
                raise
            self._fail(digests, str(error))
            return
        except ModelError:
            raise
        except Exception as error:
            self._fail(digests, f"{type(error).__name__}: {error}")
            return
        finite = [bool(np.isfinite(row).all()) for row in matrix]
        if bad := list(compress(digests, [not is_finite for is_finite in finite])):
            self._fail(bad, NOT_FINITE)
        if good := tuple(compress(digests, finite)):
            engine = self.library.engine
            with engine.writing(WRITER_SECONDS):
                vectors = Vectors(self.model, good, round_vectors(matrix[finite]))
                engine.commit(Batch(vectors=vectors))
            self.embedded += len(good)

    def _model_answers(self) -> bool:
        try:
            self.embedder.embed_passages([PROBE])
            return True
        except ModelError:
            return False

    def _fail(self, digests: Sequence[str], reason: str) -> None:
        self.queue.fail(self.model, self.name, digests, reason)
        self.notify(f"{counted(len(digests), 'text')} could not be embedded: {reason}")

    def _refill(self) -> bool:
        """Queue texts that an empty queue lacks; return true if there were any."""
        if time.monotonic() < self._refill_at:
            return False
        self._refill_at = time.monotonic() + REFILL_SECONDS
        status = self.queue.status(self.model)
        if status.waiting or status.leased:
            return False
        with self.library.engine.snapshot() as snapshot:
            pending = snapshot.status.counts(self.model).pending
        return pending > status.failed and self.queue.fill(self.model) > 0

    def _replace_outdated(self) -> bool:
        """Replace some documents that were chunked with other settings; return true if there were any."""
        ingest = self.library.ingest
        if not ingest.outdated:
            ingest.find_outdated()
        if not ingest.outdated:
            return False
        until = time.monotonic() + self.queue.lease_seconds
        done = ingest.replace_outdated(no_progress, until)
        self.embedded += done.passages
        return bool(done.passages or done.replaced)

    def _embed_vocabulary(self) -> None:
        """Embed the terms of the vocabulary once all passages are embedded; one worker at a time."""
        ingest = self.library.ingest
        if not ingest.has_pending():
            return
        status = self.queue.status(self.model)
        if status.waiting or status.leased:
            return
        with self.queue.alone(f"vocabulary {self.model}") as alone:
            if alone:
                ingest.store_model_names()
                ingest.embed_vocabulary()

    def _wait_after(self, problem: str) -> None:
        """Report a problem once, and wait before the next attempt."""
        if problem != self._problem:
            self.notify(f"{problem}. Trying again")
        self._problem = problem
        self.stopping.wait(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, MAX_RETRY_SECONDS)

    def _report(self) -> None:
        now = time.monotonic()
        if not self._report_at:
            self._report_at = now + REPORT_SECONDS
        elif now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            status = self.queue.status(self.model)
            self.notify(
                f"{self.embedded:,} texts embedded here, {status.waiting + status.leased:,} left"
                f" ({status.per_minute:,.0f} per minute by {status.workers} workers)"
            )

    @contextmanager
    def _renewing(self) -> Iterator[None]:
        """Renew the leases in a thread while texts are embedded."""
        done = Event()

        def renew() -> None:
            while not done.wait(self.queue.lease_seconds / 3):
                with suppress(StoreError):
                    self.queue.renew(self.model, self.name)

        thread = Thread(target=renew, name="marklight-leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
