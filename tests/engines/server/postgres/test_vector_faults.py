"""Vectors in PostgreSQL under concurrent commits and after a crash of the server: nothing lost, counters exact."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from marklight import engines
from marklight.engines import PostgresSettings, ServerSettings
from marklight.model import Batch
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts.builders import entry, id_of, vectors
from tests.engines.server.postgres.vector_library import VectorLibrary, brute_force, near_topics
from tests.servers.postgres import new_library, new_server

SECONDS = 30


def in_threads(*tasks: Callable[[], None]) -> None:
    """Run tasks at the same time; raise the first error."""
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def embed_all(engine: Engine, until: threading.Event) -> None:
    """Embed what is pending, as a process that indexes does, until there is no more."""
    while True:
        last = until.is_set()
        with engine.snapshot() as snapshot:
            pending = snapshot.vectors.pending("m", 7)
        if pending:
            with engine.writing(SECONDS):
                engine.commit(Batch(vectors=vectors([each.digest for each in pending])))
        elif last:
            return
        else:
            time.sleep(0.002)


def test_concurrent_commits_of_texts_and_vectors_leave_nothing_pending_and_exact_counts() -> None:
    with new_library() as address:
        settings = ServerSettings(PostgresSettings(exact_below=20))
        opened = [engines.open(address, settings) for _ in range(4)]
        done = threading.Event()
        with opened[0].writing(SECONDS):
            opened[0].commit(Batch(entries=(entry("first.md", "first"),)))

        def write(writer: int) -> None:
            engine = opened[writer]
            for turn in range(12):
                # Texts that both writers add, and that disappear again.
                texts = (f"shared {turn}", f"own {writer} {turn}", f"shared {turn // 2}")
                with engine.writing(SECONDS):
                    engine.commit(Batch(entries=(entry(f"{writer}-{turn % 5}.md", *texts),)))
                    if turn % 4 == 3:
                        engine.commit(Batch(removed=(id_of(f"{writer}-{turn % 5}.md"),)))

        def write_all() -> None:
            try:
                in_threads(lambda: write(0), lambda: write(1))
            finally:
                done.set()

        in_threads(
            write_all, lambda: embed_all(opened[2], done), lambda: embed_all(opened[3], done)
        )
        engine = opened[0]
        with engine.snapshot() as snapshot:
            counts = snapshot.status.counts("m")
            assert counts.embedded == counts.chunks > 0
            assert snapshot.vectors.pending("m", 99) == []
            used = {vector for group in snapshot.contents.vectors("m") for vector in group.digests}
        unused = engine.count_unused_vectors()
        assert engine.check() == []
        assert engine.clean(keep=["m"]) == unused
        with engine.snapshot() as snapshot:
            stored = {each for group in snapshot.contents.vectors("m") for each in group.digests}
            assert stored == used
            assert snapshot.status.counts("m").embedded == counts.embedded
        for engine in opened:
            engine.close()


def test_a_server_that_is_killed_during_the_build_loses_no_vector() -> None:
    matrix = near_topics(300)
    with new_server() as server:
        library = VectorLibrary(server.address(), exact_below=100)
        library.add(matrix[:99])
        with suppress(psycopg.Error), psycopg.connect(server.address()) as waiting:
            # The build waits for snapshots that are older.
            waiting.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            waiting.execute("SELECT count(*) FROM marklight.vectors")
            library.add(matrix[99:200], first=99)
            while not library.indexes():
                time.sleep(0.01)
            server.kill()
        server.start()
        library.index.wait()
        assert any("could not be built" in notice for notice in library.index.notices)
        again = VectorLibrary(server.address(), exact_below=100)
        query = matrix[5]
        assert again.search(query, 5) == brute_force(matrix[:200], query, 5)
        again.add(matrix[200:], first=200)
        again.build()
        assert again.indexes() == {"vectors_hnsw_1": True}
        with again.reader(settings=PostgresSettings(exact_below=0)) as reader:
            found = reader.search(query, "m", Filters(), 5)
        assert found[0] == brute_force(matrix, query, 1)[0]
        library.close()
        again.close()
