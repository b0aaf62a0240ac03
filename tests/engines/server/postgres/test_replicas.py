"""Searches from streaming replicas: staleness, read-your-writes, replicas that lag or die, a primary that is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines import PostgresSettings, ServerSettings
from marklight.engines.server.postgres.engine import PostgresEngine
from marklight.engines.server.postgres.replicas import primary_dsn, split_hosts
from marklight.errors import ReadOnly, StoreError
from marklight.model import Batch
from tests.contracts.builders import entry
from tests.making import library, write
from tests.servers.postgres import PostgresServer, replicated
from tests.servers.proxy import Proxy
from tests.waiting import until

Open = Callable[..., PostgresEngine]


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresServer]:
    """A primary with two replicas."""
    with replicated(2) as primary:
        yield primary


@pytest.fixture
def open_engine(cluster: PostgresServer) -> Iterator[Open]:
    """Return a function that opens one library on all servers; afterwards all of them run and follow again."""
    name = f"test_{time.monotonic_ns()}"
    with ExitStack() as opened:

        def open_on_all(staleness: float = 30.0, **options: str) -> PostgresEngine:
            address = address_of(cluster, library=name, **options)
            settings = PostgresSettings(staleness_seconds=staleness)
            engine = engines.open(address, ServerSettings(postgres=settings))
            assert isinstance(engine, PostgresEngine)
            opened.callback(engine.close)
            return engine

        yield open_on_all
    for server in (cluster, *cluster.replicas):
        if not server.is_running:
            server.start()
    for replica in cluster.replicas:
        replica.set(recovery_min_apply_delay="0")
    cluster.wait_for_replicas()


def address_of(cluster: PostgresServer, **options: str) -> str:
    servers = (cluster, *cluster.replicas)
    hosts = ",".join(str(server.folder) for server in servers)
    ports = ",".join(str(server.port) for server in servers)
    more = "".join(f"&{key}={value}" for key, value in options.items())
    return f"postgresql://postgres@/postgres?host={hosts}&port={ports}{more}"


def put(engine: PostgresEngine, path: str) -> int:
    with engine.writing(10):
        return engine.commit(Batch(entries=(entry(path, f"About {path}"),)))


def read(engine: PostgresEngine) -> tuple[int, bool]:
    """Return the generation of a snapshot, and whether it was read from a replica."""
    with engine.snapshot() as snapshot:
        session = getattr(snapshot, "session", None)
        in_recovery = bool(session and session.value("SELECT pg_is_in_recovery()"))
        return snapshot.generation, in_recovery


def test_an_address_with_several_hosts_is_split() -> None:
    dsn = "postgresql://u:p@h1:1,h2,h3:3/db?target_session_attrs=prefer-standby&sslmode=require"
    hosts = split_hosts(dsn)
    assert [("host=" + name in host) for name, host in zip(("h1", "h2", "h3"), hosts, strict=True)]
    assert all("dbname=db" in host and "sslmode=require" in host for host in hosts)
    assert all("target_session_attrs=any" in host for host in hosts)
    assert "target_session_attrs=read-write" in primary_dsn(dsn)
    assert split_hosts("postgresql://h1/db") == ["postgresql://h1/db"]
    assert primary_dsn("postgresql://h1/db") == "postgresql://h1/db"
    ports = [host.rpartition("port=")[2].split()[0] for host in split_hosts("host=a,b port=7")]
    assert ports == ["7", "7"]


def test_searches_read_from_replicas_and_commits_go_to_the_primary(
    open_engine: Open, cluster: PostgresServer
) -> None:
    engine = open_engine()
    generation = put(engine, "a.md")
    until(lambda: read(engine) == (generation, True))
    until(lambda: len({engine.readers.choose() for _ in range(4)}) == 2)  # both, in turns
    assert put(engine, "b.md") == generation + 1


def test_a_process_sees_its_own_commits_at_once(open_engine: Open) -> None:
    engine = open_engine()
    for number in range(30):
        generation = put(engine, f"{number}.md")
        assert read(engine)[0] == generation


def test_a_process_that_starts_sees_all_earlier_commits(open_engine: Open) -> None:
    writer = open_engine()
    for number in range(5):
        generation = put(writer, f"{number}.md")
        assert read(open_engine())[0] == generation


def test_a_replica_that_is_behind_is_left_out_until_it_has_caught_up(
    open_engine: Open, cluster: PostgresServer
) -> None:
    slow, other = cluster.replicas
    writer, reader = open_engine(), open_engine(staleness=3.0)
    put(writer, "a.md")
    until(lambda: read(reader)[1])
    slow.set(recovery_min_apply_delay="30s")
    generation = put(writer, "b.md")
    until(lambda: read(reader)[0] == generation)
    deadline = time.monotonic() + 6
    time.sleep(3.5)  # from now on, the slow one is outside the bound
    while time.monotonic() < deadline:
        assert read(reader) == (generation, True)
    hosts = reader.server()["hosts"]
    assert hosts[f"{slow.folder}:{slow.port}"]["searched"] is False
    assert hosts[f"{slow.folder}:{slow.port}"]["behind_bytes"] > 0
    assert hosts[f"{other.folder}:{other.port}"]["searched"] is True
    other.set(recovery_min_apply_delay="30s")
    generation = put(writer, "c.md")
    time.sleep(4.5)
    assert read(reader) == (generation, False)  # only the primary is left
    for replica in cluster.replicas:
        replica.set(recovery_min_apply_delay="0")
    until(lambda: read(reader) == (generation, True))


def test_a_replica_that_dies_is_left_out_and_tried_again_later(
    open_engine: Open, cluster: PostgresServer
) -> None:
    engine = open_engine()
    generation = put(engine, "a.md")
    until(lambda: read(engine)[1])
    cluster.replicas[0].kill()
    for _ in range(20):
        assert read(engine) == (generation, True)
    cluster.replicas[1].kill()
    for _ in range(20):
        assert read(engine) == (generation, False)
    assert [host["role"] for host in engine.server()["hosts"].values()] == [
        "primary",
        "unreachable",
        "unreachable",
    ]
    for replica in cluster.replicas:
        replica.start()
    until(lambda: read(engine) == (generation, True))
    assert engine.take_notices() == []


def test_searches_continue_with_a_notice_while_the_primary_is_gone(
    open_engine: Open, cluster: PostgresServer
) -> None:
    engine = open_engine()
    generation = put(engine, "a.md")
    cluster.wait_for_replicas()
    until(lambda: read(engine)[1])
    assert engine.take_notices() == []
    cluster.kill()
    for _ in range(10):
        assert read(engine) == (generation, True)
    until(lambda: _notices(engine))
    fresh = open_engine()  # a process that starts now
    assert read(fresh) == (generation, True)
    assert "primary server does not answer" in fresh.take_notices()[0]
    assert fresh.server()["access"] == "read"
    with pytest.raises(ReadOnly, match="does not answer, so the index cannot be changed"):
        put(engine, "b.md")
    cluster.start()
    until(lambda: _can_put(engine))
    assert read(engine)[0] == generation + 1
    until(lambda: not _notices(engine))


def _notices(engine: PostgresEngine) -> list[str]:
    """Return the notices of a search without a bound of a few seconds for known positions."""
    engine.readers.staleness_seconds = 0.1
    read(engine)
    return engine.take_notices()


def _can_put(engine: PostgresEngine) -> bool:
    try:
        put(engine, "b.md")
    except StoreError:
        return False
    return True


def test_a_library_is_searched_with_a_notice_while_the_primary_is_gone(
    cluster: PostgresServer, open_engine: Open, tmp_path: Path
) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Zebra\n\nA zebra has stripes.\n"})
    address = str(open_engine().address)
    with library(folder, engine=address) as indexing:
        indexing.index()
    cluster.wait_for_replicas()
    cluster.kill()
    with library(folder, engine=address) as searching:
        answer = searching.search("zebra stripes")
        assert [hit.chunk.path for hit in answer.hits] == ["a.md"]
        assert any("primary server does not answer" in notice for notice in answer.notices)
        with pytest.raises(ReadOnly, match="does not answer, so the index cannot be changed"):
            searching.index()
        assert searching.status()["documents"] == 1


def test_the_attributes_of_the_address_choose_the_servers(open_engine: Open) -> None:
    generation = put(open_engine(), "a.md")
    assert read(open_engine(target_session_attrs="primary")) == (generation, False)
    only = open_engine(staleness=0.0, target_session_attrs="standby")
    until(lambda: read(only) == (generation, True))
    assert only.take_notices() == [
        "All replicas are more than 0 s behind the primary; results come from the most recent one"
    ]


def test_a_promoted_replica_receives_the_commits() -> None:
    with replicated(1) as primary:
        engine = engines.open(address_of(primary, library="promoted"))
        assert isinstance(engine, PostgresEngine)
        generation = put(engine, "a.md")
        primary.wait_for_replicas()
        primary.kill()
        primary.replicas[0].promote()
        until(lambda: _can_put(engine))
        assert read(engine)[0] == generation + 1
        engine.close()


def test_searches_continue_when_the_network_to_a_replica_is_split(cluster: PostgresServer) -> None:
    """Nothing arrives from one replica, not even the end of the connection; also for a search that waits for it."""
    proxies = [Proxy(server.port) for server in (cluster, *cluster.replicas)]
    login = cluster.tcp_address().removeprefix("postgresql://").partition("@")[0]
    hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
    name = f"test_{time.monotonic_ns()}"
    engine = engines.open(f"postgresql://{login}@{hosts}/postgres?library={name}")
    assert isinstance(engine, PostgresEngine)
    generation = put(engine, "a.md")
    until(lambda: len({engine.readers.choose() for _ in range(4)}) == 2)
    for _ in range(4):
        read(engine)
    proxies[1].split()
    started = time.monotonic()
    for _ in range(6):
        with suppress(StoreError):  # the library repeats a search whose connection was lost
            assert read(engine)[0] == generation
    assert time.monotonic() - started < 20
    assert [read(engine) for _ in range(6)] == [(generation, True)] * 6
    problem = engine.server()["hosts"][f"127.0.0.1:{proxies[1].port}"]
    assert problem["role"] == "unreachable"
    proxies[1].heal()
    until(lambda: len({engine.readers.choose() for _ in range(4)}) == 2)
    assert [read(engine)[0] for _ in range(6)] == [generation] * 6
    engine.close()
    for proxy in proxies:
        proxy.close()


def test_no_thread_and_no_connection_is_left_after_closing(
    open_engine: Open, cluster: PostgresServer
) -> None:
    import threading

    engine = open_engine()
    put(engine, "a.md")
    read(engine)
    engine.close()
    assert not [each for each in threading.enumerate() if each.name == "marklight-probe"]
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'marklight%'"
    servers = (cluster, *cluster.replicas)
    until(lambda: all(server.sql(open_ones) == [(0,)] for server in servers))
