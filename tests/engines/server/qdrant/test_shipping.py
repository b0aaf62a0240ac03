"""Shipping of the outbox after crashes and losses: resumed, rebuilt and shipped later, in order and once in effect."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from itertools import count
from typing import Any

import pytest

from marklight import engines
from marklight.engines.server.qdrant import collections, shipper
from marklight.engines.server.qdrant.cluster import Cluster, MissingCollection, Unreachable
from marklight.engines.server.qdrant.collections import living_filter
from marklight.engines.server.qdrant.outbox import read_state
from marklight.query import Filters
from tests.contracts.builders import commit, embedding, entry, find, put, vector
from tests.engines.server.qdrant.shipping import (
    equals_a_rebuild,
    nodes_of,
    opened,
    opened_for_reading,
    same_searches,
    session_of,
)
from tests.faults.committing import batches
from tests.oracle import MemoryEngine
from tests.servers.qdrant import free_port

KILLS = int(os.environ.get("MARKLIGHT_KILLS", "2"))
"""Processes that are killed; 50 for a thorough run."""


class Killed(BaseException):
    """Ends a shipper as a kill does: no handler of exceptions of the engine runs."""


def test_a_shipper_that_dies_at_any_moment_is_resumed(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, memory, calls = random.Random(3), MemoryEngine(), count()
    real, fatal = Cluster.write, [0]

    def write(self: Cluster, *arguments: Any, **options: Any) -> Any:
        if next(calls) == fatal[0]:
            if chance.random() < 0.5:  # before the request, or after it and before its answer
                real(self, *arguments, **options)
            raise Killed
        return real(self, *arguments, **options)

    deaths = 0
    for batch in batches():
        with opened(address) as engine, monkeypatch.context() as patch:
            patch.setattr(Cluster, "write", write)
            fatal[0] = next(calls) + chance.randint(1, 5)
            try:
                commit(engine, batch)
            except Killed:
                deaths += 1
        generation = commit(memory, batch)
        with opened_for_reading(address) as engine, engine.snapshot() as snapshot:
            committed = snapshot.generation
        if committed < generation:  # it died while it shipped the commit before
            with opened(address) as engine:
                commit(engine, batch)
        if chance.random() < 0.3:
            with opened(address) as engine:  # opening it ships what is left
                same_searches(engine, memory)
    assert deaths > 10
    with opened(address) as engine:
        same_searches(engine, memory)
        equals_a_rebuild(engine)
        same_searches(engine, memory)


def test_a_killed_process_leaves_nothing_half_done(address: str) -> None:
    chance = random.Random(5)
    with opened(address) as engine:
        commit(engine, next(batches()))
    for seed in range(KILLS):
        program = [sys.executable, "-m", "tests.engines.server.qdrant.writing", address, str(seed)]
        with subprocess.Popen(program, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.05, 0.6))
            child.kill()
        with (
            opened(address) as engine,
            engine.snapshot() as snapshot,
            session_of(engine) as session,
        ):
            assert not shipper.is_behind(session)  # opening it has shipped the rest
            assert snapshot.lexical.existing_terms(["appl"]) <= {"appl"}
    with opened(address) as engine:
        equals_a_rebuild(engine)


def test_a_deleted_collection_is_reported_and_rebuilt_without_embedding(address: str) -> None:
    memory = MemoryEngine()
    with opened(address) as engine:
        for batch in list(batches())[:6]:
            commit(engine, batch)
            commit(memory, batch)
        with session_of(engine) as session:
            library = session.value("SELECT library FROM state")
        for name in collections.names(nodes_of(engine), library):
            collections.delete(nodes_of(engine), name)
        with engine.snapshot() as snapshot, pytest.raises(MissingCollection, match="missing"):
            find(snapshot, "apple")
        assert ["rebuilt" in problem for problem in engine.check()] == [True]
        same_searches(engine, memory)
        assert engine.check() == []


def test_a_commit_rebuilds_a_deleted_collection(address: str) -> None:
    first, second = entry("a.md", "apple"), entry("b.md", "apple pear")
    with opened(address) as engine:
        put(engine, first)
        commit(engine, embedding(first))
        with session_of(engine) as session:
            library = session.value("SELECT library FROM state")
        for name in collections.names(nodes_of(engine), library):
            collections.delete(nodes_of(engine), name)
        put(engine, second)
        with engine.snapshot() as snapshot:
            assert sorted(find(snapshot, "apple")) == ["a.md", "b.md"]
            assert len(snapshot.vectors.search(vector("q"), "m", Filters(), 9)) == 1


def test_lost_points_are_found_by_a_check(address: str) -> None:
    with opened(address) as engine:
        put(engine, *(entry(f"{at}.md", "apple") for at in range(5)))
        with session_of(engine) as session:
            state = read_state(session)
        assert state is not None
        nodes = nodes_of(engine)
        rows = list(collections.rows_in(nodes, state.collection, living_filter(1)))
        collections.delete_points(nodes, state.collection, rows[:2])
        (problem,) = engine.check()
        assert "2 of 5 passages were missing" in problem
        with engine.snapshot() as snapshot:
            assert len(find(snapshot, "apple")) == 5


def test_commits_without_qdrant_are_shipped_later(address: str) -> None:
    alone = address.partition("&vectors=")[0]
    put(engines.open(alone), entry("a.md", "apple"))
    with opened(address) as engine, engine.snapshot() as snapshot:
        assert find(snapshot, "apple") == ["a.md"]
    other = engines.open(alone)
    put(other, entry("b.md", "apple pear"))
    other.close()
    with opened(address) as engine, engine.snapshot() as snapshot:
        assert sorted(find(snapshot, "apple")) == ["a.md", "b.md"]


def test_a_library_that_was_never_shipped_is_an_error_not_an_empty_answer(address: str) -> None:
    alone = address.partition("&vectors=")[0]
    before = engines.open(alone)
    put(before, entry("a.md", "apple"))
    before.close()
    with (
        opened(f"{alone}&vectors=qdrant://127.0.0.1:{free_port()}") as engine,
        engine.snapshot() as snapshot,
    ):
        for search in (
            lambda: find(snapshot, "apple"),
            lambda: snapshot.vectors.search(vector("q"), "m", Filters(), 9),
            lambda: snapshot.lexical.existing_terms(["appl"]),
        ):
            with pytest.raises(Unreachable, match="Cannot connect to Qdrant"):
                search()
    with opened(address) as engine, engine.snapshot() as snapshot:
        assert find(snapshot, "apple") == ["a.md"]
