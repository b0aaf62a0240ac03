"""Faults of a cluster of three: a node killed during writes and searches, and a network split; nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from marklight import engines
from marklight.engines import QdrantSettings, ServerSettings
from marklight.engines.server.qdrant import cluster as cluster_module
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.ports import Engine
from tests.contracts.builders import commit, embedding, entry, find
from tests.engines.server.qdrant.shipping import equals_a_rebuild, same_searches
from tests.oracle import MemoryEngine
from tests.servers.proxy import Proxy
from tests.servers.qdrant import Node, free_port, new_fleet_library, running_nodes

SETTINGS = ServerSettings(qdrant=QdrantSettings(shards=3, replicas=2))
STEPS = 12


def steps(first: int = 0) -> Iterator[Batch]:
    if not first:
        yield Batch(entries=(entry("fixed.md", "apple tree"),))
    for at in range(first, first + STEPS):
        own = entry(f"{at % 7}.md", f"apple pear word{at}", "plum " * (at % 5 + 1))
        yield Batch(entries=(own,), vectors=embedding(own).vectors)


@contextmanager
def opened(address: str) -> Iterator[Engine]:
    engine = engines.open(address, SETTINGS)
    try:
        yield engine
    finally:
        engine.close()


class Searching:
    """Searches in a loop, each in a snapshot of its own, and counts.

    A document that is being replaced is not found until its commit is shipped; any other one always is.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.done, self.slowest = engine, 0, 0.0
        self.failures: list[BaseException] = []
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                with self.engine.snapshot() as snapshot:
                    assert "fixed.md" in find(snapshot, "apple", limit=20)
                self.done += 1
            except BaseException as error:
                self.failures.append(error)
            self.slowest = max(self.slowest, time.monotonic() - begin)

    def __enter__(self) -> Searching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_node_loses_nothing_and_stops_no_search(
    cluster: list[Node], victim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "LEFT_OUT_SECONDS", 1.0)
    memory = MemoryEngine()
    with new_fleet_library(cluster) as address, opened(address) as engine, opened(address) as other:
        for batch in steps():
            commit(engine, batch)
            commit(memory, batch)
        with Searching(other) as searching:
            for at, batch in enumerate(steps(STEPS)):
                if at == 3:
                    cluster[victim].kill()
                if at == 8:
                    cluster[victim].start()
                commit(engine, batch)
                commit(memory, batch)
        assert searching.failures == []
        assert searching.done > 5
        assert engine.take_notices() == []
        same_searches(engine, memory)
        equals_a_rebuild(engine)  # type: ignore[arg-type]
        same_searches(other, memory)


def test_a_network_split_to_one_node_delays_but_loses_nothing(
    cluster: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FIRST_TRY_SECONDS", 0.5)
    monkeypatch.setattr(cluster_module, "FIRST_WRITE_SECONDS", 1.5)
    memory, proxy = MemoryEngine(), Proxy(cluster[0].grpc_port)
    with new_fleet_library(cluster) as direct:
        address = direct.replace(f":{cluster[0].grpc_port}", f":{proxy.port}")
        with opened(address) as engine, opened(address) as other:
            for batch in steps():
                commit(engine, batch)
                commit(memory, batch)
            with Searching(other) as searching:
                proxy.split()
                for batch in list(steps(STEPS))[:2]:
                    commit(engine, batch)
                    commit(memory, batch)
                time.sleep(1.0)
                proxy.heal()
            assert searching.failures == []
            assert searching.slowest < 10
            same_searches(engine, memory)
            equals_a_rebuild(engine)  # type: ignore[arg-type]
    proxy.close()


def test_the_status_counts_replicas_of_shards_and_names_silent_nodes(cluster: list[Node]) -> None:
    silent = f"127.0.0.1:{free_port()}"
    with new_fleet_library(cluster) as address, opened(f"{address},{silent}") as engine:
        own = entry("a.md", "apple")
        commit(engine, Batch(entries=(own,), vectors=embedding(own).vectors))
        # A collection of terms and one of vectors, with three shards and two replicas each.
        assert engine.server()["qdrant"] == {
            "nodes": 4,
            "unreachable": silent,
            "unshipped_commits": 0,
            "shards": {"active": 12},
        }


def test_without_two_of_three_nodes_searches_fail_soon_and_the_status_shows_lost_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_module, "READ_SECONDS", 3.0)
    with running_nodes(3) as nodes, new_fleet_library(nodes) as address, opened(address) as engine:
        own = entry("a.md", *["apple"] * 20)
        commit(engine, Batch(entries=(own,), vectors=embedding(own).vectors))
        for node in nodes[1:]:
            node.kill()
        seconds = []
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreError), engine.snapshot() as snapshot:
                find(snapshot, "apple")
            seconds.append(time.monotonic() - began)
        # The first search tries again for a while, the next ones do not.
        assert seconds[1] < 2.5 < seconds[0] < 9
        # One shard in three has both of its replicas on the two nodes.
        assert engine.server()["qdrant"]["shards"] == {"active": 4, "unreachable": 8}
        for node in nodes[1:]:
            node.start()
        with engine.snapshot() as snapshot:
            assert "a.md" in find(snapshot, "apple")
