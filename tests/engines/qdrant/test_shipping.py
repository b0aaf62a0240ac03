"""Shipping of the outbox: in order, once in effect, resumed after a crash, and never half visible."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Any

import pytest

from marklight import engines
from marklight.batch import Batch
from marklight.engines import QdrantSettings, ServerSettings
from marklight.engines.memory import MemoryEngine
from marklight.engines.postgres.engine import PostgresEngine
from marklight.engines.postgres.session import PostgresSession
from marklight.engines.qdrant import cluster, collections, rebuild, shipper
from marklight.engines.qdrant.cluster import Cluster
from marklight.engines.qdrant.filters import living_filter
from marklight.engines.qdrant.outbox import read_state
from marklight.engines.qdrant.server_errors import MissingCollection, Unreachable
from marklight.model import FileState
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters
from tests.contracts.builders import commit, embedding, entry, find, id_of, put, vector
from tests.faults.committing import batches
from tests.servers.proxy import Proxy
from tests.servers.qdrant import free_port, new_fleet_library, shared_node

EXACT = ServerSettings(qdrant=QdrantSettings(exact=True, timeout_seconds=2.0))
KILLS = int(os.environ.get("MARKLIGHT_KILLS", "2"))
"""Processes that are killed; 50 for a thorough run."""


@pytest.fixture
def address() -> Iterator[str]:
    with new_fleet_library() as address:
        yield address


@contextmanager
def opened(address: str) -> Iterator[PostgresEngine]:
    engine = engines.open(address, EXACT)
    assert isinstance(engine, PostgresEngine)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def session_of(engine: PostgresEngine) -> Iterator[PostgresSession]:
    with engine.maintenance.connection() as connection:
        yield PostgresSession(engine.maintenance, connection)


def nodes_of(engine: PostgresEngine) -> Cluster:
    return Cluster(engine.address.vectors, engine.settings.qdrant)


def statistics(engine: PostgresEngine) -> dict[str, Any]:
    """Return everything that a rebuild computes anew."""
    with session_of(engine) as session:
        state = read_state(session)
        assert state is not None
        return {
            "generation": state.generation,
            "passages": state.passages,
            "lengths": state.lengths.tolist(),
            "frequencies": dict(
                session.all("SELECT dimension, passages FROM term_frequencies WHERE passages <> 0")
            ),
        }


def equals_a_rebuild(engine: PostgresEngine) -> None:
    """Compare the collections with PostgreSQL, and the statistics with those of a rebuild."""
    assert engine.check() == []
    before = statistics(engine)
    with session_of(engine) as session:
        rebuild.rebuild(session, nodes_of(engine))
    assert statistics(engine) == before


def same_searches(engine: Engine, memory: MemoryEngine) -> None:
    with engine.snapshot() as actual, memory.snapshot() as expected:
        assert actual.generation == expected.generation
        for terms in (["appl"], ["pear", "plum"], ["quinc", "medlar", "cherri"]):
            found, wanted = (
                each.lexical.search(terms, FIELD_BOOSTS, Filters(), 50)
                for each in (actual, expected)
            )
            assert [each.score for each in found] == pytest.approx(
                [each.score for each in wanted], abs=2e-4
            )
        found, wanted = (
            each.vectors.search(vector("q"), "m", Filters(), 50) for each in (actual, expected)
        )
        assert [each.chunk_id for each in found] == [each.chunk_id for each in wanted]


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
        program = [sys.executable, "-m", "tests.engines.qdrant.writing", address, str(seed)]
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


def test_while_qdrant_is_unreachable_commits_are_saved_and_shown_later_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "LEFT_OUT_SECONDS", 0.1)
    proxy = Proxy(shared_node().grpc_port)
    with new_fleet_library() as direct:
        address = f"{direct.rpartition(':')[0]}:{proxy.port}"
        with opened(address) as engine:
            put(engine, entry("a.md", "apple"))
            proxy.split()
            assert put(engine, entry("b.md", "apple pear"), entry("c.md", "apple")) == 2
            (notice,) = engine.take_notices()
            assert notice.startswith("Searches do not find the newest changes yet. ")
            proxy.heal()
            with opened(address) as other, other.snapshot() as snapshot:
                assert len(find(snapshot, "apple")) == 3
            with engine.snapshot() as snapshot:
                assert len(find(snapshot, "apple")) == 3
    proxy.close()


def test_readers_see_no_part_of_a_commit_that_is_being_shipped(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    with opened(address) as engine:
        put(engine, entry("old.md", "apple"))
        commit(engine, embedding(entry("old.md", "apple")))
        real = collections.upsert

        def upsert(nodes: Cluster, name: str, points: Any) -> None:
            real(nodes, name, points)
            with opened_for_reading(address) as reader, reader.snapshot() as snapshot:
                found = snapshot.vectors.search(vector("q"), "m", Filters(), 9)
                seen.append([*find(snapshot, "apple"), str(len(found))])

        monkeypatch.setattr(collections, "upsert", upsert)
        new = [entry(f"{at}.md", f"apple {at}") for at in range(3)]
        put(engine, *new)
        commit(engine, embedding(*new))
        monkeypatch.undo()
        # During the first commit nothing of it; during the second all passages, but none of its vectors.
        assert seen[0] == ["old.md", "1"]
        assert sorted(seen[1]) == sorted(["old.md", "0.md", "1.md", "2.md", "1"])
        with engine.snapshot() as snapshot:
            assert len(snapshot.vectors.search(vector("q"), "m", Filters(), 9)) == 4


@contextmanager
def opened_for_reading(address: str) -> Iterator[PostgresEngine]:
    """Open an engine that does not ship what it finds in the outbox."""
    with opened(address) as engine:
        engine.lexical.prepare = lambda connections: None  # type: ignore[method-assign]
        yield engine


def test_several_engines_write_and_ship_at_once(address: str) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with opened(address) as engine:
                for at in range(4):
                    put(engine, entry(f"{number}-{at}.md", f"apple word{number}x{at}"))
                    with engine.snapshot() as snapshot:
                        assert find(snapshot, f"word{number}x{at}") == [f"{number}-{at}.md"]
        except BaseException as error:
            failures.append(error)

    with opened(address) as engine:
        put(engine, entry("first.md", "apple"))
        threads = [Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        with engine.snapshot() as snapshot:
            assert snapshot.generation == 17
            assert len(find(snapshot, "apple", limit=99)) == 17
        equals_a_rebuild(engine)


def test_removed_passages_are_deleted_when_no_reader_needs_them(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as engine:
        put(engine, entry("a.md", "apple"), entry("b.md", "apple"))
        commit(engine, embedding(entry("a.md", "apple")))
        with engine.snapshot() as before:
            commit(engine, Batch(removed=(id_of("a.md"),)))
            assert sorted(find(before, "apple")) == ["a.md", "b.md"]
            with engine.snapshot() as after:
                assert find(after, "apple") == ["b.md"]
        monkeypatch.setattr(shipper, "GRACE_SECONDS", 0.0)
        put(engine, entry("c.md", "pear"))
        with session_of(engine) as session:
            state = read_state(session)
            assert state is not None
            names = [state.collection, *collections.of_models(session).values()]
            assert session.value("SELECT count(*) FROM outbox") == 0
        everything = living_filter(10**6)
        del everything.must_not[:]
        found = [list(collections.rows_in(nodes_of(engine), name, everything)) for name in names]
        assert [len(rows) for rows in found] == [2, 1]  # both had the same text, so one vector


def test_a_changed_file_time_applies_to_new_snapshots_only(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_2020, in_2021 = Filters(before="2020"), Filters(after="2021")
    with opened(address) as engine:
        put(engine, entry("a.md", "apple", mtime_ns=1_590_000_000 * 10**9))
        with engine.snapshot() as before:
            commit(engine, Batch(touched=((id_of("a.md"), FileState(5, 1_620_000_000 * 10**9)),)))
            with engine.snapshot() as after:
                assert (find(before, "apple", in_2020), find(before, "apple", in_2021)) == (
                    ["a.md"],
                    [],
                )
                assert (find(after, "apple", in_2020), find(after, "apple", in_2021)) == (
                    [],
                    ["a.md"],
                )
        monkeypatch.setattr(shipper, "GRACE_SECONDS", 0.0)
        put(engine, entry("b.md", "pear"))
        with engine.snapshot() as later:
            assert find(later, "apple", in_2021) == ["a.md"]


def test_stored_weights_are_written_again_when_the_mean_length_has_doubled(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "MIN_PASSAGES", 3)
    memory = MemoryEngine()
    with opened(address) as engine:
        for batch in (
            Batch(entries=tuple(entry(f"{at}.md", "apple pear") for at in range(3))),
            Batch(entries=tuple(entry(f"{at}.md", "apple plum " * 40) for at in range(3, 20))),
        ):
            commit(engine, batch)
            commit(memory, batch)
        with session_of(engine) as session:
            state = read_state(session)
        assert state is not None
        assert state.means.tolist() == pytest.approx(
            [each if mean else 0.0 for each, mean in zip(state.reference, state.means, strict=True)]
        )
        same_searches(engine, memory)


def test_a_cleaned_model_loses_its_collection_when_no_reader_needs_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = entry("a.md", "apple")
    with opened(address) as engine:
        put(engine, one)
        commit(engine, embedding(one))
        commit(engine, embedding(one, model="other"))
        assert engine.clean(["other"]) == 1
        with session_of(engine) as session:
            library = session.value("SELECT library FROM state")
            assert len(collections.of_models(session)) == 1
            before = read_state(session)
        assert len(collections.names(nodes_of(engine), library)) == 3
        monkeypatch.setattr(shipper, "GRACE_SECONDS", 0.0)
        put(engine, entry("b.md", "apple"))
        assert len(collections.names(nodes_of(engine), library)) == 2
        with session_of(engine) as session:
            after = read_state(session)
        assert before is not None
        assert after is not None
        assert before.version == after.version  # nothing was rebuilt
