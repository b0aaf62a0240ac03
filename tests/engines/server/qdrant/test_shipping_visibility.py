"""Shipping of the outbox beside readers and writers: never half visible, and cleaned up when no reader needs the old points."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from marklight.engines.server.qdrant import cluster, collections, shipper
from marklight.engines.server.qdrant.cluster import Cluster
from marklight.engines.server.qdrant.collections import living_filter
from marklight.engines.server.qdrant.outbox import read_state
from marklight.model import Batch, FileState
from marklight.query import Filters
from tests.contracts.builders import commit, embedding, entry, find, id_of, put, vector
from tests.engines.server.qdrant.shipping import (
    equals_a_rebuild,
    nodes_of,
    opened,
    opened_for_reading,
    same_searches,
    session_of,
)
from tests.oracle import MemoryEngine
from tests.servers.proxy import Proxy
from tests.servers.qdrant import new_fleet_library, shared_node


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
    monkeypatch.setattr(shipper, "MIN_PASSAGES", 3)
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
