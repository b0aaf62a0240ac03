"""The writer lock: writers share it, maintenance takes it alone, and it ends with its connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from marklight.engines import parse_address
from marklight.engines.server.postgres.commit import Writers, lock_documents
from marklight.engines.server.postgres.connections import Connections, ServerAddress
from marklight.errors import Busy
from marklight.model import DocumentId
from tests.servers.postgres import PostgresServer, new_library


@pytest.fixture(scope="module")
def address(server: PostgresServer) -> Iterator[ServerAddress]:
    with new_library(server) as address:
        parsed = parse_address(address)
        yield ServerAddress(parsed.dsn, parsed.library)


@pytest.fixture
def writers(address: ServerAddress) -> Iterator[list[Writers]]:
    """Three processes that write to the same library."""
    pools = [Connections(address) for _ in range(3)]
    yield [Writers(pool, (), lambda: None) for pool in pools]
    for pool in pools:
        pool.close()


def test_many_writers_hold_the_lock_at_once(writers: list[Writers]) -> None:
    one, other, _ = writers
    with one.hold(1), other.hold(1), one.hold(1):
        assert one.session.value("SELECT generation FROM state") == 0
        assert other.session.value("SELECT 1") == 1


def test_a_thread_that_does_not_hold_the_lock_has_no_session(writers: list[Writers]) -> None:
    raised: list[BaseException] = []

    def use() -> None:
        try:
            assert writers[0].session
        except RuntimeError as error:
            raised.append(error)

    with writers[0].hold(1):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert len(raised) == 1


def test_maintenance_excludes_writers_and_waits_for_them(writers: list[Writers]) -> None:
    one, other, third = writers
    with one.alone(1), pytest.raises(Busy, match=r"waited 0\.1 s"), other.hold(0.1):
        pass
    with one.hold(1):
        with pytest.raises(Busy), other.alone(0.1):
            pass
        with one.alone(0.1):  # this thread shares it already
            pass
        with third.hold(0.1):
            pass
    with other.alone(0.1):
        pass


def test_the_lock_ends_with_its_connection(writers: list[Writers], server: PostgresServer) -> None:
    one, other, _ = writers
    with one.hold(1):
        pid = one.session.value("SELECT pg_backend_pid()")
        server.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
        with other.alone(1):
            pass
        one.session.connection.close()
        assert one.session.value("SELECT pg_backend_pid()") != pid  # and holds the lock again
        with pytest.raises(Busy), other.alone(0.1):
            pass


def held_seconds(
    writers: list[Writers], first: list[str], second: list[str], **more: bool
) -> float:
    """Return how long a commit of some documents waits for another one, which takes 0.3 s."""
    one, other, _ = writers
    locked = threading.Event()

    def hold() -> None:
        with one.hold(1), one.session.transaction():
            ids = [DocumentId("docs", path) for path in first]
            lock_documents(one.session, ids, all=False)
            locked.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()
    with other.hold(1), other.session.transaction():
        started = time.monotonic()
        ids = [DocumentId("docs", path) for path in second]
        lock_documents(other.session, ids, all=more.get("all", False))
        waited = time.monotonic() - started
    thread.join()
    return waited


def test_commits_of_different_documents_do_not_wait_for_each_other(writers: list[Writers]) -> None:
    assert held_seconds(writers, ["a.md"], ["b.md", "c.md"]) < 0.15


def test_commits_of_the_same_document_are_serialised(writers: list[Writers]) -> None:
    assert held_seconds(writers, ["b.md", "a.md"], ["a.md", "b.md"]) > 0.2


def test_a_very_large_commit_excludes_all_others(writers: list[Writers]) -> None:
    assert held_seconds(writers, ["a.md"], [f"{at}.md" for at in range(2000)]) > 0.2
    assert held_seconds(writers, ["a.md"], [], all=True) > 0.2
