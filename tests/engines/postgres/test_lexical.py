"""The lexical index in a real database: commits, tombstones, merges, repair and caches, compared with the in-memory engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight.answer import Filters
from marklight.engines.memory import MemoryEngine
from marklight.engines.postgres import lexical_index, lexical_merge
from marklight.engines.postgres.connections import Connections, ServerAddress
from marklight.engines.postgres.indexes import Change, IndexedEntry
from marklight.engines.postgres.lexical_cache import LexicalCache
from marklight.engines.postgres.lexical_index import TABLES, PostgresLexical
from marklight.engines.postgres.lexical_search import PostgresLexicalReader
from marklight.engines.postgres.session import PostgresSession
from marklight.engines.relational.filters import RowFilter
from marklight.errors import StoreError
from marklight.model import Batch, Entry
from marklight.ports import FIELD_BOOSTS, LexicalReader
from tests.contracts.builders import commit, entry, id_of
from tests.servers.postgres import PostgresServer

CHUNKS = 'CREATE TABLE chunks (row bigint PRIMARY KEY, id text COLLATE "C", document bigint)'


class Store:
    """The lexical index with just the table of passages that it needs, and the same commits in memory."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.index = PostgresLexical(1_000_000)
        self.memory = MemoryEngine()
        self.rows = itertools.count(1)
        self.documents: dict[str, int] = {}

    def commit(self, batch: Batch) -> None:
        with self.connections.connection() as connection:
            session = PostgresSession(self.connections, connection)
            with session.transaction():
                self.apply(session, batch)
        commit(self.memory, batch)

    def apply(self, session: PostgresSession, batch: Batch) -> None:
        paths = [
            *(id.path for id in batch.removed),
            *(each.document.id.path for each in batch.entries),
        ]
        deleted = [
            self.documents.pop(path) for path in dict.fromkeys(paths) if path in self.documents
        ]
        session.run("DELETE FROM chunks WHERE document = ANY(?)", [deleted])
        inserted = []
        for each in {each.document.id: each for each in batch.entries}.values():
            document = self.documents[each.document.id.path] = next(self.rows)
            rows = [next(self.rows) for _ in each.chunks]
            inserted.append(IndexedEntry(each, document, rows))
            session.insert(
                "chunks",
                "row, id, document",
                [(row, chunk.id, document) for row, chunk in zip(rows, each.chunks, strict=True)],
            )
        self.index.apply(session, Change(batch, inserted, deleted, ()))

    @contextmanager
    def reader(self, rows: RowFilter | None = None) -> Iterator[PostgresLexicalReader]:
        with self.connections.connection() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SELECT 1 FROM chunks")
            session = PostgresSession(self.connections, connection)
            yield self.index.reader(SimpleNamespace(session=session, row_filter=lambda _: rows))
            connection.execute("ROLLBACK")

    def merge(self) -> None:
        self.index.after_commit(self.connections)

    def segments(self) -> int:
        with self.connections.connection() as connection:
            return int(connection.execute("SELECT count(*) FROM segments").fetchall()[0][0])


_names = itertools.count(1)


@contextmanager
def new_store(server: PostgresServer) -> Iterator[Store]:
    name = f"lexical_{next(_names)}"
    server.sql(f"CREATE SCHEMA {name}")
    connections = Connections(ServerAddress(server.address(), name))
    try:
        with connections.connection() as connection:
            for statement in (*TABLES.split(";"), CHUNKS):
                connection.execute(statement.encode())
        yield Store(connections)
    finally:
        connections.close()
        server.sql("SET client_min_messages = warning", f"DROP SCHEMA {name} CASCADE")


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


def same(expected: LexicalReader, actual: LexicalReader, chunks: Sequence[str]) -> None:
    assert actual.existing_terms(TERMS) == expected.existing_terms(TERMS)
    for terms in (["appl"], ["pear", "user", "pear"], TERMS):
        for limit in (1, 3, 99):
            for own, wanted in (
                [
                    reader.search(terms, FIELD_BOOSTS, Filters(), limit)
                    for reader in (actual, expected)
                ],
                [reader.search_code(terms, Filters(), limit) for reader in (actual, expected)],
            ):
                assert [each.score for each in own] == pytest.approx(
                    [each.score for each in wanted], abs=2e-4
                )
        coverage = actual.term_coverage(terms, chunks)
        assert coverage == expected.term_coverage(terms, chunks)
    every = {
        each.chunk_id: each.score for each in expected.search(TERMS, FIELD_BOOSTS, Filters(), 99)
    }
    found = {
        each.chunk_id: each.score for each in actual.search(TERMS, FIELD_BOOSTS, Filters(), 99)
    }
    assert found == pytest.approx(every, abs=2e-4)


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=st.lists(batches, min_size=1, max_size=6), factor=st.integers(2, 3))
def test_every_snapshot_equals_the_memory_engine(
    server: PostgresServer, steps: list[Batch], factor: int
) -> None:
    with new_store(server) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical_merge, "MERGE_FACTOR", factor)
        patch.setattr(lexical_merge, "MIN_DELETED", 0)
        for batch in steps:
            store.commit(batch)
            with store.memory.snapshot() as expected, store.reader() as actual:
                chunks = [
                    chunk.id
                    for id in expected.documents.files()
                    for chunk in expected.documents.chunks_of(id)
                ]
                same(expected.lexical, actual, [*chunks, "none"])
                store.merge()
                # The snapshot is older than the merge.
                same(expected.lexical, actual, [*chunks, "none"])
                with store.reader() as merged:
                    same(expected.lexical, merged, [*chunks, "none"])


def test_writers_at_once_each_add_a_segment(store: Store) -> None:
    barrier = Barrier(4)
    rows = itertools.count(1000, 100)

    def write(path: str, first: int) -> None:
        with store.connections.connection() as connection:
            session = PostgresSession(store.connections, connection)
            with session.transaction():
                item = IndexedEntry(entry(path, f"apple {path}"), first, [first])
                store.index.apply(session, Change(Batch(), [item], (), ()))
                barrier.wait(10)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, f"{at}.md", next(rows)) for at in range(4)]:
            done.result()
    assert store.segments() == 4
    with store.reader() as reader:
        assert sorted(reader.rows_with_terms(["appl"], None)) == [1000, 1100, 1200, 1300]


def test_merges_while_others_commit_lose_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_merge, "MERGE_FACTOR", 2)
    with ThreadPoolExecutor(3) as pool:
        merging = []
        for at in range(40):
            store.commit(Batch(entries=(entry(f"{at % 7}.md", f"apple w{at}", "pear"),)))
            merging += [pool.submit(store.merge) for _ in range(2)]
        for each in merging:
            each.result()
    store.merge()
    assert store.segments() <= 4
    with store.memory.snapshot() as expected, store.reader() as actual:
        chunks = [c.id for at in range(7) for c in expected.documents.chunks_of(id_of(f"{at}.md"))]
        same(expected.lexical, actual, chunks)
        assert actual.existing_terms([f"w{at}" for at in range(40)]) == {
            f"w{at}" for at in range(33, 40)
        }


def test_an_interrupted_merge_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_merge, "MERGE_FACTOR", 2)
    for at in range(3):
        store.commit(Batch(entries=(entry(f"{at}.md", "apple"),)))

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lexical_merge, "insert_postings", fail)
        with pytest.raises(KeyboardInterrupt):
            store.merge()
    assert store.segments() == 3
    store.merge()
    assert store.segments() == 1
    with store.reader() as reader:
        assert len(reader.search(["appl"], FIELD_BOOSTS, Filters(), 9)) == 3


def test_many_commits_leave_few_segments_and_no_deleted_passages(store: Store) -> None:
    for at in range(70):
        store.commit(Batch(entries=(entry("same.md", *[f"apple w{at}"] * 8),)))
        store.merge()
    assert store.segments() <= 2 * lexical_merge.MERGE_FACTOR
    with store.connections.connection() as connection:
        ((passages, living, tombstones),) = connection.execute(
            "SELECT sum(passages), sum(net_passages), sum(length(deleted)) / 8 FROM segments"
        ).fetchall()
    assert living == 8
    # Those of the last few commits remain: each tier has at most seven segments.
    assert passages <= 8 * 2 * lexical_merge.MERGE_FACTOR
    assert tombstones <= 2 * lexical_merge.MERGE_FACTOR


def test_segments_with_many_deleted_passages_are_rewritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_merge, "MIN_DELETED", 3)
    store.commit(Batch(entries=tuple(entry(f"{at}.md", "apple", "pear") for at in range(10))))
    store.commit(Batch(removed=tuple(id_of(f"{at}.md") for at in range(3))))
    store.merge()
    with store.connections.connection() as connection:
        rows = connection.execute("SELECT passages, length(deleted) FROM segments ORDER BY 1")
        assert rows.fetchall() == [(0, 24), (14, 0)]
    # Nothing is left to do, although the tombstones stay until their segment is merged.
    store.merge()
    assert store.segments() == 2


def test_a_commit_of_many_passages_is_divided(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_index, "MAX_PASSAGES", 4)
    store.commit(Batch(entries=(entry("a.md", *["apple"] * 6), entry("b.md", *["apple"] * 5))))
    assert store.segments() == 3
    store.commit(Batch(entries=(entry("c.md", "pear"),), removed=(id_of("a.md"),)))
    with store.memory.snapshot() as expected, store.reader() as actual:
        same(expected.lexical, actual, [c.id for c in expected.documents.chunks_of(id_of("b.md"))])


def test_merging_in_slices_gives_the_same_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_merge, "MERGE_FACTOR", 2)
    monkeypatch.setattr(lexical_merge, "SLICE_BYTES", 100)
    words = [f"word{at}x" for at in range(900)]
    for at in range(3):
        store.commit(Batch(entries=(entry(f"{at}.md", " ".join(words[at::2]), title="apple"),)))
    store.merge()
    assert store.segments() == 1
    with store.memory.snapshot() as expected, store.reader() as actual:
        assert actual.existing_terms(words) == set(words)
        wanted = expected.lexical.search(words[:40], FIELD_BOOSTS, Filters(), 9)
        found = actual.search(words[:40], FIELD_BOOSTS, Filters(), 9)
        assert dict(found) == pytest.approx(dict(wanted), abs=2e-4)


def test_a_filter_selects_documents_or_passages_before_ranking(store: Store) -> None:
    store.commit(Batch(entries=tuple(entry(f"{at}.md", "apple", "apple pear") for at in range(5))))
    chosen = [store.documents["1.md"], store.documents["3.md"]]
    wanted = {
        "document": {f"{at}.md" for at in (1, 3)},
        "others": {f"{at}.md" for at in (0, 2, 4)},
    }
    for exclude, name in ((False, "document"), (True, "others")):
        rows = RowFilter("document", chosen, exclude)
        with store.reader(rows) as reader, store.memory.snapshot() as snapshot:
            found = reader.search(["appl", "pear"], FIELD_BOOSTS, Filters(), 99)
            paths = {each.path for each in snapshot.documents.chunks([id for id, _ in found])}
            assert paths == wanted[name]
            assert len(found) == 2 * len(paths)
            assert len(reader.rows_with_terms(["appl", "pear"], rows)) == len(paths)
    first = RowFilter("row", [2])
    with store.reader(first) as reader:
        assert len(reader.search(["appl"], FIELD_BOOSTS, Filters(), 99)) == 1


def test_cached_postings_are_not_read_again_and_stay_within_the_limit(store: Store) -> None:
    store.commit(Batch(entries=tuple(entry(f"{at}.md", f"apple w{at}") for at in range(50))))
    for _ in range(2):
        with store.reader() as reader:
            reader.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    with store.connections.connection() as connection:
        connection.execute("DELETE FROM postings")
    with store.reader() as reader:
        assert len(reader.search(["appl"], FIELD_BOOSTS, Filters(), 99)) == 50
        assert reader.search(["w1"], FIELD_BOOSTS, Filters(), 99) == []
    small = LexicalCache(2_000)
    for at in range(100):
        small.add({(1, b"%d" % at): None})
    assert small.size <= 2_000
    assert (1, b"99") in small.known([1], [b"99"])
    assert small.known([1], [b"0"]) == {}


def test_threads_share_one_reader(store: Store) -> None:
    for at in range(12):
        store.commit(Batch(entries=(entry(f"{at}.md", "apple pear plum", f"w{at} apple"),)))
    with store.reader() as reader, ThreadPoolExecutor(8) as pool:
        terms = [["appl"], ["pear", "plum"], ["w3"], ["appl", "w5"]] * 8
        found = list(pool.map(lambda own: reader.search(own, FIELD_BOOSTS, Filters(), 99), terms))
    assert [len(each) for each in found] == [24, 12, 1, 24] * 8


def test_a_segment_of_another_analyzer_is_refused_with_a_hint(store: Store) -> None:
    store.commit(Batch(entries=(entry("a.md", "apple"),)))
    with store.connections.connection() as connection:
        connection.execute("UPDATE segments SET analyzer = 'older'")
    with store.reader() as reader, pytest.raises(StoreError) as raised:
        reader.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    assert "Another version of Marklight" in str(raised.value)
    assert "doctor" in (raised.value.hint or "")


def test_damaged_postings_raise_an_error_with_a_hint(store: Store) -> None:
    store.commit(Batch(entries=(entry("a.md", "apple"),)))
    with store.connections.connection() as connection:
        connection.execute("UPDATE postings SET data = substr(data, 1, 20)")
    with store.reader() as reader, pytest.raises(StoreError) as raised:
        reader.search(["appl"], FIELD_BOOSTS, Filters(), 9)
    assert "damaged" in str(raised.value)
    assert "doctor" in (raised.value.hint or "")
