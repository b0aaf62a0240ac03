"""The queue of texts to embed: leases, retries, failures and commits, on a real server with concurrent workers."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from marklight.engines import PostgresSettings, parse_address
from marklight.engines.relational.write import ChangedRows, InsertedEntry
from marklight.engines.server.postgres import schema
from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.engines.server.postgres.jobs import NO_ANSWER, JobQueue
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.postgres.vector_index import PostgresVectors, add_vectors
from marklight.model import Batch, Vectors
from marklight.ports import Job
from tests.contracts.builders import entry
from tests.servers.postgres import new_library

M = "model"


class QueuedLibrary:
    """Documents, passages, vectors and the queue of one library, written as an engine's commit does."""

    def __init__(self, address: str) -> None:
        parsed = parse_address(address)
        self.connections = Connections(ServerAddress(parsed.dsn, parsed.library), max_size=16)
        with self.connections.connection() as connection:
            schema.prepare(self.connections, connection, [PostgresVectors(PostgresSettings())])

    def queue(self, **settings: float) -> JobQueue:
        queue = JobQueue(self.connections)
        for name, value in settings.items():
            setattr(queue, name, value)
        return queue

    @contextmanager
    def commit(self) -> Iterator[PostgresSession]:
        """Open the transaction of a commit, at its end under the lock of all commits."""
        with self.connections.connection() as connection:
            session = PostgresSession(self.connections, connection)
            with session.transaction():
                yield session

    def add(self, path: str, *texts: str) -> list[str]:
        """Commit a document; return the digests of its passages."""
        new = entry(path, *texts)
        with self.commit() as session:
            (document,) = session.next_rows("documents", 1)
            rows = session.next_rows("chunks", len(new.chunks))
            session.insert(
                "documents",
                "row, collection, path, size, mtime_ns, ctime_ns, digest, recipe, timestamp",
                [(document, "docs", path, 1, 1, 1, "", "", "")],
            )
            session.insert(
                "chunks",
                "row, id, document, ordinal, digest, kind, parent, anchor, first_line, last_line,"
                " title, headings, merged, languages, code, text, boilerplate, levels",
                [
                    (
                        row,
                        chunk.id,
                        document,
                        chunk.ordinal,
                        chunk.digest,
                        "prose",
                        *("", "", 1, 1),
                        *([""] * 8),
                    )
                    for row, chunk in zip(rows, new.chunks, strict=True)
                ],
            )
            session.run("SELECT 1 FROM state FOR UPDATE")
            change = ChangedRows(Batch(entries=(new,)), [InsertedEntry(new, document, rows)])
            self.queue().finish(session, change)
        return [chunk.digest for chunk in new.chunks]

    def remove(self, path: str) -> None:
        with self.commit() as session:
            session.run("DELETE FROM documents WHERE path = ?", [path])

    def embed(self, jobs: Sequence[Job]) -> None:
        """Commit a vector for each job."""
        matrix = np.ones((len(jobs), 4), np.float32)
        vectors = Vectors(M, tuple(job.digest for job in jobs), matrix)
        with self.commit() as session:
            add_vectors(session, vectors)
            session.run("SELECT 1 FROM state FOR UPDATE")
            self.queue().finish(session, ChangedRows(Batch(vectors=vectors)))

    def vectors(self) -> int:
        with self.commit() as session:
            return int(session.value("SELECT count(*) FROM vectors"))


@pytest.fixture
def library() -> Iterator[QueuedLibrary]:
    with new_library() as address:
        made = QueuedLibrary(address)
        yield made
        made.connections.close()


def digests(jobs: Sequence[Job]) -> list[str]:
    return [job.digest for job in jobs]


def test_texts_from_before_and_after_the_queue_was_opened_are_in_it(library: QueuedLibrary) -> None:
    first = library.add("a.md", "one", "two")
    queue = library.queue()
    assert queue.take(M, "w") == []
    queue.open(M)
    second = library.add("b.md", "three")
    queue.open(M)
    assert queue.status(M)[:3] == (3, 0, 0)
    assert digests(queue.take(M, "w")) == [*first, *second]


def test_a_commit_of_vectors_ends_the_jobs_of_their_texts(library: QueuedLibrary) -> None:
    library.add("a.md", "one", "two", "three")
    queue = library.queue(batch_passages=2)
    queue.open(M)
    jobs = queue.take(M, "w")
    assert queue.status(M)[:4] == (1, 2, 0, 1)
    library.embed(jobs)
    status = queue.status(M)
    assert status[:3] == (1, 0, 0)
    assert status.per_minute > 0
    library.embed(queue.take(M, "w"))
    assert queue.status(M)[:3] == (0, 0, 0)
    library.add("b.md", "one")  # has a vector
    assert queue.status(M).waiting == 0


def test_two_workers_never_have_the_same_text_in_hand(library: QueuedLibrary) -> None:
    texts = [f"text {number}" for number in range(200)]
    library.add("a.md", *texts)
    queue = library.queue(batch_passages=7)
    queue.open(M)
    taken: Counter[str] = Counter()

    def work(number: int) -> list[str]:
        mine: list[str] = []
        while jobs := queue.take(M, f"w{number}"):
            mine += digests(jobs)
            time.sleep(random.random() / 100)
            library.embed(jobs)
        return mine

    with ThreadPoolExecutor(6) as pool:
        for mine in pool.map(work, range(6)):
            taken.update(mine)
    assert len(taken) == 200
    assert set(taken.values()) == {1}
    assert library.vectors() == 200
    assert queue.status(M)[:3] == (0, 0, 0)


def test_the_texts_of_a_worker_that_stops_without_a_word_are_taken_by_another(
    library: QueuedLibrary,
) -> None:
    library.add("a.md", "one", "two")
    queue = library.queue(lease_seconds=1)
    queue.open(M)
    lost = digests(queue.take(M, "dead"))
    assert queue.take(M, "alive") == []
    time.sleep(1.1)
    again = [queue.take(M, "alive"), queue.take(M, "alive")]
    assert [digests(jobs) for jobs in again] == [[digest] for digest in lost]
    assert queue.renew(M, "dead") == 0


def test_a_renewed_lease_does_not_expire(library: QueuedLibrary) -> None:
    library.add("a.md", "one")
    queue = library.queue(lease_seconds=1)
    queue.open(M)
    queue.take(M, "slow")
    for _ in range(4):
        time.sleep(0.4)
        assert queue.renew(M, "slow") == 1
        assert queue.take(M, "other") == []


def test_released_texts_are_taken_again_at_once_and_together(library: QueuedLibrary) -> None:
    library.add("a.md", "one", "two")
    queue = library.queue()
    queue.open(M)
    before = queue.take(M, "first")
    assert queue.release(M, "first") == 2
    assert queue.take(M, "second") == before


def test_the_text_that_fails_is_set_aside_with_its_reason_and_the_others_are_not(
    library: QueuedLibrary,
) -> None:
    library.add("a.md", "good", "poison", "fine")
    queue = library.queue(attempts=3)
    queue.open(M)
    poison = queue.take(M, "w")[1].digest
    queue.fail(M, "w", [job.digest for job in queue.take(M, "none")], "nothing")
    queue.release(M, "w")
    sizes = []
    while jobs := queue.take(M, "w"):
        sizes.append(len(jobs))
        if poison in digests(jobs):
            queue.fail(M, "w", digests(jobs), "The model refuses it\0" + "x" * 1000)
        else:
            library.embed(jobs)
    assert sizes == [3, 1, 1, 1, 1]  # together once, then each alone
    status = queue.status(M)
    assert status[:3] == (0, 0, 1)
    (failure,) = status.failures
    assert (failure.path, failure.attempts) == ("a.md", 3)
    assert failure.reason.startswith("The model refuses it\0x")
    assert library.vectors() == 2
    assert queue.retry_failed(M) == 1
    library.embed(queue.take(M, "w"))
    assert queue.status(M)[:3] == (0, 0, 0)


def test_a_text_that_ends_every_worker_is_set_aside(library: QueuedLibrary) -> None:
    library.add("a.md", "one")
    queue = library.queue(lease_seconds=1, attempts=2)
    queue.open(M)
    for _ in range(2):
        assert len(queue.take(M, "w")) == 1
        time.sleep(1.1)
    assert queue.take(M, "w") == []
    assert [failure.reason for failure in queue.status(M).failures] == [NO_ANSWER]


def test_a_text_of_which_no_passage_is_left_is_dropped(library: QueuedLibrary) -> None:
    queue = library.queue(batch_passages=1)
    queue.open(M)
    library.add("a.md", "one")
    (kept,) = library.add("b.md", "two")
    library.remove("a.md")
    assert queue.take(M, "w") == []
    assert digests(queue.take(M, "w")) == [kept]
    assert queue.status(M)[:3] == (0, 1, 0)


def test_a_commit_that_fails_queues_nothing(library: QueuedLibrary) -> None:
    queue = library.queue()
    queue.open(M)
    new = entry("a.md", "one")

    def fail(session: PostgresSession) -> None:
        queue.finish(session, ChangedRows(Batch(entries=(new,)), [InsertedEntry(new, 1, [1])]))
        raise RuntimeError

    with pytest.raises(RuntimeError), library.commit() as session:
        fail(session)
    assert queue.status(M).waiting == 0


def test_no_text_is_missed_while_a_queue_is_opened(library: QueuedLibrary) -> None:
    queue = library.queue()
    names = iter(range(1000))

    def add(_: int) -> list[str]:
        number = next(names)
        return library.add(f"{number}.md", f"text {number}")

    with ThreadPoolExecutor(4) as pool:
        added = [pool.submit(add, number) for number in range(40)]
        opened = [pool.submit(queue.open, M) for _ in range(2)]
        added += [pool.submit(add, number) for number in range(40)]
        for future in opened:
            future.result()
        expected = {digest for future in added for digest in future.result()}
    found: set[str] = set()
    while jobs := queue.take(M, "w"):
        found.update(digests(jobs))
    assert found == expected


def test_one_process_at_a_time_works_alone_on_a_task(library: QueuedLibrary) -> None:
    queue = library.queue()
    with queue.alone("vocabulary") as first, queue.alone("vocabulary") as second:
        assert (first, second) == (True, False)
        with queue.alone("other") as third:
            assert third
    with queue.alone("vocabulary") as again:
        assert again


def test_queues_of_models_that_are_not_kept_are_closed(library: QueuedLibrary) -> None:
    queue = library.queue()
    for model in (M, "old"):
        queue.open(model)
    library.add("a.md", "one")
    with library.commit() as session:
        queue.clean(session, [M])
    library.add("b.md", "two")
    assert (queue.status(M).waiting, queue.status("old").waiting) == (2, 0)
