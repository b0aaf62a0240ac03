"""The lexical index in a real database: commits, tombstones, merges, repair and caches, compared with the in-memory engine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight import engines
from marklight.engines.server.postgres import lexical_index, lexical_search
from marklight.engines.server.postgres.lexical_search import LexicalCache
from marklight.errors import StoreError
from marklight.lexical import FIELDS
from marklight.model import Batch, Entry
from marklight.ports import FIELD_BOOSTS, Snapshot
from marklight.query import Filters
from tests.contracts.builders import commit, entry, id_of, put
from tests.oracle import MemoryEngine
from tests.servers.postgres import PostgresServer, new_library, new_server


class Store:
    """A library on the server, and one in memory with the same commits."""

    def __init__(self, server: PostgresServer, address: str) -> None:
        self._server = server
        self.address = address
        self.schema = address.rpartition("library=")[2]
        self.engine = engines.open(address)
        self.memory = MemoryEngine()

    def commit(self, batch: Batch) -> None:
        commit(self.engine, batch)
        commit(self.memory, batch)

    def put(self, *entries: Entry) -> None:
        self.commit(Batch(entries=entries))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self._server.sql(f"SET search_path = {self.schema}", statement)

    def segments(self) -> int:
        return int(self.sql("SELECT count(*) FROM segments")[0][0])

    def matches_memory(self) -> None:
        with self.memory.snapshot() as expected, self.engine.snapshot() as actual:
            same(expected, actual)


@contextmanager
def new_store(server: PostgresServer) -> Iterator[Store]:
    with new_library(server) as address:
        store = Store(server, address)
        try:
            yield store
        finally:
            store.engine.close()


@pytest.fixture
def store(server: PostgresServer) -> Iterator[Store]:
    with new_store(server) as store:
        yield store


WORDS = "apple pear plum getUserById zebra 日本語 run c++".split()
TERMS = ["appl", "pear", "user", "日本", "c++", "run", "none"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    return entry(
        draw(st.sampled_from(["a.md", "b.md", "c.md", "d.md"])),
        *draw(st.lists(texts, max_size=3)),
        title=draw(texts),
        code=draw(texts),
    )


batches = st.builds(
    Batch,
    entries=st.lists(entries(), max_size=3).map(tuple),
    removed=st.lists(st.sampled_from(["a.md", "b.md", "c.md"]).map(id_of), max_size=2).map(tuple),
)


def same(expected: Snapshot, actual: Snapshot) -> None:
    files = expected.documents.files()
    chunks = [chunk.id for id in files for chunk in expected.documents.chunks_of(id)] + ["none"]
    memory, own = expected.lexical, actual.lexical
    assert own.existing_terms(TERMS) == memory.existing_terms(TERMS)
    for terms in (["appl"], ["pear", "user", "pear"], TERMS):
        for limit in (1, 3, 99):
            for found, wanted in (
                [each.search(terms, FIELD_BOOSTS, Filters(), limit) for each in (own, memory)],
                [each.search_code(terms, Filters(), limit) for each in (own, memory)],
            ):
                assert [each.score for each in found] == pytest.approx(
                    [each.score for each in wanted], abs=2e-4
                )
        assert own.term_coverage(terms, chunks) == memory.term_coverage(terms, chunks)
    every = dict(memory.search(TERMS, FIELD_BOOSTS, Filters(), 99))
    assert dict(own.search(TERMS, FIELD_BOOSTS, Filters(), 99)) == pytest.approx(every, abs=2e-4)


@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=st.lists(batches, min_size=1, max_size=6), factor=st.integers(2, 3))
def test_every_snapshot_equals_the_memory_engine(
    server: PostgresServer, steps: list[Batch], factor: int
) -> None:
    with (
        new_store(server) as store,
        pytest.MonkeyPatch.context() as patch,
        ExitStack() as snapshots,
    ):
        patch.setattr(lexical_index, "MERGE_FACTOR", factor)
        patch.setattr(lexical_index, "MIN_DELETED", 0)
        opened = []
        for batch in steps:
            store.commit(batch)
            store.matches_memory()
            opened.append(
                [snapshots.enter_context(each.snapshot()) for each in (store.memory, store.engine)]
            )
        # Snapshots that are older than commits and merges see what they saw, whether they looked before or not.
        for expected, actual in opened:
            same(expected, actual)
        assert store.engine.check() == []


def test_segments_of_documents_without_words_are_merged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_index, "MERGE_FACTOR", 2)
    for name in ("a.md", "b.md", "c.md"):
        store.put(entry(name, ""))
        store.matches_memory()
    assert store.engine.check() == []


def test_merges_while_others_commit_lose_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_index, "MERGE_FACTOR", 2)
    put(store.engine, entry("0.md", "first"))  # creates the library

    def write(writer: int) -> None:
        for at in range(8):
            put(store.engine, entry(f"{writer}{at % 3}.md", f"apple w{writer}{at}", "pear"))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, writer) for writer in range(4)]:
            done.result()
    put(store.engine, entry("0.md", "last"))
    assert store.segments() <= 6
    with store.engine.snapshot() as snapshot:
        every = [f"w{writer}{at}" for writer in range(4) for at in range(8)]
        living = {f"w{writer}{at}" for writer in range(4) for at in (5, 6, 7)}
        assert snapshot.lexical.existing_terms([*every, "first", "last"]) == {*living, "last"}
        assert len(snapshot.lexical.search(["pear"], FIELD_BOOSTS, Filters(), 99)) == 12
    assert store.engine.check() == []


def test_an_interrupted_merge_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(3):
        store.put(entry(f"{at}.md", "apple"))
    monkeypatch.setattr(lexical_index, "MERGE_FACTOR", 2)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lexical_index, "_merged_blocks", fail)
        with pytest.raises(KeyboardInterrupt):
            put(store.engine, entry("3.md", "apple"))
    assert store.segments() == 4
    put(store.engine, entry("4.md", "apple"))
    assert store.segments() == 1
    with store.engine.snapshot() as snapshot:
        assert len(snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 9)) == 5


def test_a_server_that_is_killed_during_a_merge_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with new_server() as server, new_store(server) as store:
        for at in range(4):
            store.put(entry(f"{at}.md", "apple pear", f"plum w{at}"))
        monkeypatch.setattr(lexical_index, "MERGE_FACTOR", 2)

        def kill(*_: object) -> list[tuple[bytes, bytes]]:
            server.kill()
            return []

        with monkeypatch.context() as patch:
            patch.setattr(lexical_index, "_merged_blocks", kill)
            store.commit(Batch(removed=(id_of("0.md"),)))
        # The commit is stored; why the merge failed is a notice.
        assert any("connection" in notice for notice in store.engine.take_notices())
        server.start()
        assert store.segments() == 5
        store.matches_memory()
        store.put(entry("5.md", "apple run"))
        assert store.segments() == 1
        store.matches_memory()
        assert store.engine.check() == []


def test_many_commits_leave_few_segments_and_no_deleted_passages(store: Store) -> None:
    for at in range(70):
        store.put(entry("same.md", *[f"apple w{at}"] * 8))
    assert store.segments() <= 2 * lexical_index.MERGE_FACTOR
    ((passages, living, tombstones),) = store.sql(
        "SELECT sum(passages)::int, sum(net_passages)::int, sum(length(deleted))::int / 8 FROM segments"
    )
    assert living == 8
    # Those of the last few commits remain: each tier has at most seven segments.
    assert passages <= 8 * 2 * lexical_index.MERGE_FACTOR
    assert tombstones <= 2 * lexical_index.MERGE_FACTOR


def test_segments_with_many_deleted_passages_are_rewritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_index, "MIN_DELETED", 3)
    store.put(*(entry(f"{at}.md", "apple", "pear") for at in range(10)))
    store.commit(Batch(removed=tuple(id_of(f"{at}.md") for at in range(3))))
    # The tombstones stay until their own segment is merged.
    stored = store.sql("SELECT passages, length(deleted) FROM segments ORDER BY 1")
    assert stored == [(0, 24), (14, 0)]
    store.matches_memory()


def test_a_commit_of_many_passages_is_divided(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_index, "MAX_PASSAGES", 4)
    store.put(entry("a.md", *["apple"] * 6), entry("b.md", *["apple"] * 5))
    assert store.segments() == 3
    store.commit(Batch(entries=(entry("c.md", "pear"),), removed=(id_of("a.md"),)))
    store.matches_memory()
    assert store.engine.check() == []


def test_merging_in_slices_gives_the_same_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_index, "MERGE_FACTOR", 2)
    monkeypatch.setattr(lexical_index, "SLICE_BYTES", 100)
    words = [f"word{at}x" for at in range(900)]
    for at in range(3):
        store.put(entry(f"{at}.md", " ".join(words[at::2]), title="apple"))
    assert store.segments() == 1
    with store.memory.snapshot() as expected, store.engine.snapshot() as actual:
        assert actual.lexical.existing_terms(words) == set(words)
        wanted = expected.lexical.search(words[:40], FIELD_BOOSTS, Filters(), 9)
        found = actual.lexical.search(words[:40], FIELD_BOOSTS, Filters(), 9)
        assert dict(found) == pytest.approx(dict(wanted), abs=2e-4)


def test_cached_postings_are_not_read_again(store: Store) -> None:
    store.put(*(entry(f"{at}.md", f"apple w{at}") for at in range(50)))
    with store.engine.snapshot() as snapshot:
        snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    store.sql("DELETE FROM postings")
    with store.engine.snapshot() as snapshot:
        assert len(snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 99)) == 50
        assert snapshot.lexical.search(["w1"], FIELD_BOOSTS, Filters(), 99) == []


def test_a_search_looks_up_its_blocks_without_statistics_of_the_tables(store: Store) -> None:
    words = [f"w{at}x{part}" for at in range(200) for part in range(40)]
    store.put(*(entry(f"{at}.md", " ".join(words[at * 40 :][:40])) for at in range(200)))
    assert store.sql("SELECT reltuples FROM pg_class WHERE oid = 'postings'::regclass") == [(-1.0,)]
    query = lexical_search._BLOCKS.replace("$1", "'{appl}'").replace("$3", "'{appl}'")
    plan = store.sql(f"EXPLAIN {query.replace('$2', '0')}".replace("ANY(0::bigint[])", "ANY('{}')"))
    assert not any("Seq Scan on postings" in line for (line,) in plan)


def test_the_cache_counts_segments_and_postings(store: Store) -> None:
    store.put(entry("a.md", *["apple"] * 100))
    with store.engine.snapshot() as snapshot:
        snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    size = store.engine.lexical.cache.size  # type: ignore[attr-defined]
    assert size > 100 * (8 + 8 + 2 * len(FIELDS) + 6)


def test_the_cache_drops_what_was_used_least_recently() -> None:
    cache = LexicalCache(2_000)
    cache.add({(1, b"first"): None})
    for at in range(100):
        cache.add({(1, b"%d" % at): None})
        assert cache.size <= 2_000
        assert cache.known([1], [b"first"]) == {(1, b"first"): None}
    assert cache.known([1], [b"99", b"0"]) == {(1, b"99"): None}


def test_threads_share_one_snapshot(store: Store) -> None:
    for at in range(12):
        store.put(entry(f"{at}.md", "apple pear plum", f"w{at} apple"))
    terms = [["appl"], ["pear", "plum"], ["w3"], ["appl", "w5"]] * 8
    with store.engine.snapshot() as snapshot, ThreadPoolExecutor(8) as pool:
        reader = snapshot.lexical
        found = list(pool.map(lambda own: reader.search(own, FIELD_BOOSTS, Filters(), 99), terms))
    assert [len(each) for each in found] == [24, 12, 1, 24] * 8


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM segments WHERE passages = 1",
        "DELETE FROM postings",
        "UPDATE postings SET data = substr(data, 1, 20)",
        "UPDATE postings SET data = set_byte(data, length(data) - 1, 7)",
        "UPDATE segments SET lengths = set_byte(lengths, 0, 9)",
        "UPDATE segments SET net_passages = net_passages + 1",
        "UPDATE segments SET passage_rows = set_byte(passage_rows, 0, 77)",
        "UPDATE segments SET document_rows = substr(document_rows, 1, 8)",
        "UPDATE segments SET deleted = document_rows",
        "INSERT INTO postings VALUES (1, 'a', 'b')",
    ],
)
def test_a_check_finds_and_repairs_damage(store: Store, damage: str) -> None:
    store.put(entry("a.md", "apple pear", "plum", title="run"), entry("b.md", "pear"))
    store.put(entry("c.md", "getUserById apple", code="run c++"))
    store.sql(damage)
    (finding,) = store.engine.check()
    assert "The lexical index was rebuilt" in finding
    assert store.engine.check() == []
    store.matches_memory()


def test_damaged_postings_raise_an_error_with_a_hint(store: Store) -> None:
    store.put(entry("a.md", "apple"))
    store.sql("UPDATE postings SET data = substr(data, 1, 20)")
    with store.engine.snapshot() as snapshot, pytest.raises(StoreError) as raised:
        snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    assert "damaged" in raised.value.message
    assert "marklight doctor" in raised.value.hint


def test_an_index_of_another_analyzer_is_rebuilt_when_the_library_is_opened(store: Store) -> None:
    store.put(entry("a.md", "apple pear"), entry("b.md", "plum"))
    store.sql("UPDATE segments SET analyzer = 'older'")
    updated = engines.open(store.address)
    with store.memory.snapshot() as expected, updated.snapshot() as actual:
        same(expected, actual)
    assert "analyzes text differently" in updated.take_notices()[0]
    updated.close()
    store.matches_memory()


def test_documents_that_were_indexed_without_it_are_in_the_index_when_the_library_is_opened(
    store: Store,
) -> None:
    store.put(entry("a.md", "apple pear"), entry("b.md", "plum"))
    store.sql("DELETE FROM segments")
    with store.engine.snapshot() as snapshot, pytest.raises(StoreError, match="0 passages instead"):
        snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    updated = engines.open(store.address)
    with store.memory.snapshot() as expected, updated.snapshot() as actual:
        same(expected, actual)
    assert "indexed without it" in updated.take_notices()[0]
    updated.close()


def test_a_reader_of_another_version_is_told_what_to_do(store: Store) -> None:
    store.put(entry("a.md", "apple"))
    store.sql("UPDATE segments SET analyzer = 'older'")
    with store.engine.writing(1):  # nobody else can rebuild it now
        other = engines.open(store.address)
        with other.snapshot() as snapshot, pytest.raises(StoreError) as raised:
            snapshot.lexical.search(["appl"], FIELD_BOOSTS, Filters(), 9)
        other.close()
    assert "Another version of Marklight" in raised.value.message
    assert "same version on all machines" in raised.value.hint
