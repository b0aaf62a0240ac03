"""Property test: after any sequence of commits, every engine returns what the in-memory engine does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight import engines
from marklight.engines import PostgresSettings, ServerSettings
from marklight.engines.embedded.engine import MAX_EXACT_VECTORS, EmbeddedEngine
from marklight.model import Batch, DocumentId, Entry, Failure, FileState
from marklight.ports import FIELD_BOOSTS, Engine, ScoredChunk, Snapshot
from marklight.query import CollectionGlob, Filters
from tests.contracts.builders import entry, link, names_of, vector, vectors
from tests.oracle import MemoryEngine
from tests.scratch import scratch_parent
from tests.servers.postgres import new_library

VOCABULARY = "apple pear plum zebra run".split()
WORDS = "apple pear plum the 日本 日本語 zebra_x c++ run".split()
PATHS = ["a.md", "b.md", "2026-01.md", "guide/a.md", "guide/deep/c.md", "notes/ü.md"]
COLLECTIONS = ["docs", "other"]
PHRASES = ["Apple pear", "pear", "the", "the plum", "日本", "本", "本 語", "C++", "zebra_x", "!"]
DATES = [None, "2025-12-31", "2026-01", "2026-01-15T10:00:00Z", "2026-01-15T23:30-08:00"]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
ids = st.builds(DocumentId, st.sampled_from(COLLECTIONS), st.sampled_from(PATHS))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    id = draw(ids)
    few = {"max_size": 2, "unique": True}
    return entry(
        id.path,
        *draw(st.lists(texts, max_size=4)),
        collection=id.collection,
        title=draw(texts),
        headings=tuple(draw(st.lists(st.sampled_from(["apple", "Pear Plum", "a"]), max_size=2))),
        merged=tuple(draw(st.lists(st.sampled_from(["apple", "run"]), max_size=2))),
        code=draw(texts),
        languages=tuple(draw(st.lists(st.sampled_from(["go", "C"]), **few))),  # type: ignore[arg-type]
        tags=tuple(draw(st.lists(st.sampled_from(["x", "x/y", "X/Z", "q"]), **few))),  # type: ignore[arg-type]
        date=draw(st.sampled_from(DATES)),
        mtime_ns=draw(st.sampled_from([0, 1_768_500_000_000_000_000])),
        metadata=draw(
            st.sampled_from([{}, {"s": "A"}, {"s": ["b", "a"], "t": 1, "due": "2024-03-12"}])
        ),
        keywords=(draw(texts),),
        links=tuple(link(key) for key in draw(st.lists(st.sampled_from("abc"), max_size=2))),
        names=names_of(id.path, *draw(st.lists(st.sampled_from("abc"), max_size=1))),
    )


batches = st.builds(
    Batch,
    entries=st.lists(entries(), max_size=4).map(tuple),
    removed=st.lists(ids, max_size=2).map(tuple),
    touched=st.lists(
        st.tuples(ids, st.builds(FileState, st.just(1), st.just(10**18))), max_size=1
    ).map(tuple),
    failures=st.lists(st.builds(Failure, ids, st.just("odd")), max_size=1).map(tuple),
    communities=st.none() | st.dictionaries(ids, st.integers(0, 3), max_size=3),
    manifest=st.dictionaries(st.sampled_from("kl"), st.sampled_from("12"), max_size=1),
)


def some(values: list[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(values), max_size=2).map(tuple)


OF_COLLECTIONS = [
    CollectionGlob(name, glob) for name in COLLECTIONS for glob in ("/*.md", "/guide")
]
filters = st.builds(
    Filters,
    collections=some(COLLECTIONS),
    paths=some(["*.md", "guide/**", "guide", "**/c.md", "a.md", "guide/*.md", *OF_COLLECTIONS]),
    exclude=some(["guide/deep", "b.md", "nowhere/**", *OF_COLLECTIONS]),
    tags=some(["x", "#x/y", "q"]),
    where=some([("s", "a"), ("S", "B"), ("t", "1")]),
    after=st.sampled_from([None, None, "2026", "2026-01-15", "2026-01-15T12:00+02:00"]),
    before=st.sampled_from([None, None, "2026-01-15", "2025", "2026-01-16T07:30"]),
    dated=some([("2026-01-01", "2026-01-31"), ("2024-03-12", "2025-12-31")]),
    languages=some(["GO", "c"]),
    documents=st.lists(ids, max_size=3).map(tuple),
    phrases=some(PHRASES),
    without=some(PHRASES),
    also=st.none() | st.builds(Filters, paths=some(["*.md", "guide/**"]), tags=some(["x", "q"])),
)
phrase_filters = st.builds(
    Filters,
    tags=some(["x"]),
    phrases=some(PHRASES),
    without=some(PHRASES),
    also=st.none()
    | st.builds(Filters, phrases=some(PHRASES), without=some(PHRASES), languages=some(["GO", "c"])),
)
"""Separate from the others: combined they match nothing."""
steps = st.lists(st.tuples(batches, st.integers(0, 3)), min_size=1, max_size=4)


@contextmanager
def both(kind: str, max_exact_vectors: int) -> Iterator[tuple[Engine, Engine]]:
    """Yield the engine in memory and another one, both empty."""
    with OPENED[kind](max_exact_vectors) as engine:
        try:
            yield MemoryEngine(), engine
        finally:
            engine.close()


@contextmanager
def embedded(max_exact_vectors: int) -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(dir=scratch_parent()) as folder:
        yield EmbeddedEngine(Path(folder) / "library", max_exact_vectors)


@contextmanager
def postgresql(max_exact_vectors: int) -> Iterator[Engine]:
    settings = PostgresSettings(exact_below=max_exact_vectors)
    with new_library() as address:
        yield engines.open(address, ServerSettings(postgres=settings))


OPENED = {"embedded": embedded, "postgresql": postgresql}


def close_to(
    actual_results: list[ScoredChunk], expected_results: list[ScoredChunk], tolerance: float
) -> None:
    """Compare passages and scores; passages with equal scores may be in another order."""
    assert [each.score for each in actual_results] == pytest.approx(
        [each.score for each in expected_results], abs=tolerance
    )
    scores = {each.chunk_id: each.score for each in expected_results}
    last = expected_results[-1].score if expected_results else 0.0
    for each in actual_results:
        assert scores.get(each.chunk_id, last) == pytest.approx(each.score, abs=tolerance)


def same_tables(expected: Snapshot, actual: Snapshot) -> None:
    assert expected.status.counts("m") == actual.status.counts("m")
    assert expected.documents.files() == actual.documents.files()
    assert list(expected.status.failures()) == list(actual.status.failures())
    assert (expected.status.manifest(), expected.status.models()) == (
        actual.status.manifest(),
        actual.status.models(),
    )
    assert expected.links.unresolved() == actual.links.unresolved()
    for key in ("s", " T ", "title", "none"):
        assert expected.metadata.has_key(key) == actual.metadata.has_key(key)
        for limit in (0, 1, 99):
            assert list(expected.metadata.values(key, limit).items()) == list(
                actual.metadata.values(key, limit).items()
            )
    assert expected.metadata.tags() == actual.metadata.tags()
    for id in expected.documents.files():
        assert expected.documents.get(id) == actual.documents.get(id)
        assert expected.documents.chunks_of(id) == actual.documents.chunks_of(id)
        own = [*(chunk.id for chunk in expected.documents.chunks_of(id)), "none"]
        assert (
            expected.documents.owners(own)
            == actual.documents.owners(own)
            == dict.fromkeys(own[:-1], id)
        )
        for one, other in zip(
            expected.documents.candidates(own).values(),
            actual.documents.candidates(own).values(),
            strict=True,
        ):
            assert (one.title, one.prose_length) == (other.title, other.prose_length)
            assert one.text_key == other.text_key
            assert other == one
        assert expected.documents.text_and_outline(id) == actual.documents.text_and_outline(id)
        assert expected.documents.chunks_around(id, 1, 1) == actual.documents.chunks_around(
            id, 1, 1
        )
        assert expected.links.outgoing(id) == actual.links.outgoing(id)
        assert expected.links.incoming(id) == actual.links.incoming(id)
        assert expected.links.incoming(id, 1) == actual.links.incoming(id, 1)
    same_graph(expected, actual)
    assert expected.vectors.pending("m", 99) == actual.vectors.pending("m", 99)
    assert expected.links.last_changed() == actual.links.last_changed()
    assert expected.documents.dates(expected.documents.files()) == actual.documents.dates(
        expected.documents.files()
    )
    assert expected.links.communities(expected.documents.files()) == actual.links.communities(
        expected.documents.files()
    )
    same_vectors(expected, actual)


def same_vectors(expected: Snapshot, actual: Snapshot) -> None:
    chunks = [
        chunk.id for id in expected.documents.files() for chunk in expected.documents.chunks_of(id)
    ]
    terms = [*VOCABULARY, "nowhere"]
    assert expected.vocabulary.document_frequencies(
        terms
    ) == actual.vocabulary.document_frequencies(terms)
    some = [each.vocabulary.terms_with_prefix("p", 4, 4, 1) for each in (expected, actual)]
    assert list(some[0].items()) == list(some[1].items())
    for expected_results, actual_results in (
        (expected.vectors.get("m", chunks), actual.vectors.get("m", chunks)),
        (expected.vocabulary.term_vectors("m", terms), actual.vocabulary.term_vectors("m", terms)),
    ):
        assert expected_results.keys() == actual_results.keys()
        for key, row in expected_results.items():
            assert actual_results[key] == pytest.approx(row, abs=1e-6)
    mean, expected_mean = actual.vocabulary.mean_vector("m"), expected.vocabulary.mean_vector("m")
    assert (mean is None) == (expected_mean is None)
    if mean is not None and expected_mean is not None:
        assert mean == pytest.approx(expected_mean, abs=1e-6)
    for limit in (0, 2, 99):
        assert expected.vocabulary.terms_without_vector(
            "m", limit
        ) == actual.vocabulary.terms_without_vector("m", limit)
        near, expected_terms = (
            each.vocabulary.nearest_terms(vector("q"), "m", limit) for each in (actual, expected)
        )
        assert [each.term for each in near] == [each.term for each in expected_terms]
        assert [each.score for each in near] == pytest.approx(
            [each.score for each in expected_terms], abs=1e-6
        )


def same_graph(expected: Snapshot, actual: Snapshot) -> None:
    every = [*expected.documents.files(), DocumentId("docs", "none.md")]
    pairs = list(expected.links.edges())
    assert list(actual.links.edges()) == pairs
    assert actual.links.orphans() == expected.links.orphans()
    assert actual.links.last_changed() == expected.links.last_changed()
    assert actual.links.neighbours(every, 99) == expected.links.neighbours(every, 99)
    assert actual.links.degrees(every, 99) == expected.links.degrees(every, 99)
    few = expected.links.degrees(every, 1)
    # Of links with a name that several documents have, not all are read.
    assert all(count <= few[id] for id, count in actual.links.degrees(every, 1).items())
    for id, near in actual.links.neighbours(every, 1).items():
        # Which of many is unspecified, but not how many.
        out, back = {b for a, b in pairs if a == id}, {a for a, b in pairs if b == id}
        assert set(near) <= out | back
        assert (min(1, len(out | back))) <= len(near) <= min(1, len(out)) + min(1, len(back))


def same_results(
    expected: Snapshot, actual: Snapshot, query_filters: Filters, limit: int, exact: bool
) -> None:
    assert actual.metadata.matching_documents(
        query_filters, limit
    ) == expected.metadata.matching_documents(query_filters, limit)
    assert actual.metadata.count_matching(query_filters) == expected.metadata.count_matching(
        query_filters
    )
    for groups in ([], [["appl"]], [["appl", "pear"], ["plum"]], [["none"], ["appl"]]):
        for field in ("whole", "title", "code"):
            assert actual.metadata.documents_with_terms(
                groups, field, query_filters
            ) == expected.metadata.documents_with_terms(groups, field, query_filters)
    query = vector("q")
    close_to(
        actual.vectors.search(query, "m", query_filters, limit),
        expected.vectors.search(query, "m", query_filters, limit),
        1e-5,
    )
    same_best_per_document(expected, actual, query_filters)
    for name in ("Apple", "pear  PLUM", "a", "C.md", "notes/ü.md", "U"):
        assert actual.documents.find_by_title(
            name, query_filters, limit
        ) == expected.documents.find_by_title(name, query_filters, limit)
    for words in (["appl"], ["appl", "pear", "pear"], ["日本", "c++", "none"]):
        actual_results = actual.lexical.search(words, FIELD_BOOSTS, query_filters, limit)
        expected_results = expected.lexical.search(words, FIELD_BOOSTS, query_filters, limit)
        same_ranking(actual_results, expected_results, limit, exact)
        chunks = [
            chunk.id
            for id in expected.documents.files()
            for chunk in expected.documents.chunks_of(id)
        ]
        coverage, expected_coverage = (
            actual.lexical.term_coverage(words, chunks),
            expected.lexical.term_coverage(words, chunks),
        )
        assert coverage.keys() == expected_coverage.keys()
        if exact:
            assert coverage == expected_coverage
    query_terms = ["appl", "pear", "plum", "zebra", "日本", "c++", "none"]
    assert actual.lexical.existing_terms(query_terms) == expected.lexical.existing_terms(
        query_terms
    )
    for names in (["zebra", "x"], ["zebra_x", "appl", "apple"]):
        actual_results, expected_results = (
            actual.lexical.search_code(names, query_filters, limit),
            expected.lexical.search_code(names, query_filters, limit),
        )
        same_ranking(actual_results, expected_results, limit, exact)


def same_best_per_document(expected: Snapshot, actual: Snapshot, query_filters: Filters) -> None:
    actual_results, expected_results = (
        each.vectors.best_per_document(vector("q"), "m", query_filters)
        for each in (actual, expected)
    )
    assert {id: each.chunk_id for id, each in actual_results.items()} == {
        id: each.chunk_id for id, each in expected_results.items()
    }
    for id, each in expected_results.items():
        assert actual_results[id].score == pytest.approx(each.score, abs=1e-5)


def same_ranking(
    actual_results: list[ScoredChunk], expected_results: list[ScoredChunk], limit: int, exact: bool
) -> None:
    """Deleted passages influence the scores of others for a while, never the set of results."""
    if exact:
        close_to(actual_results, expected_results, 2e-4)
    assert len(actual_results) == len(expected_results)
    if len(expected_results) < limit:
        assert {each.chunk_id for each in actual_results} == {
            each.chunk_id for each in expected_results
        }


arguments = given(
    steps=steps,
    query_filters=st.lists(filters | phrase_filters, min_size=4, max_size=4),
    limit=st.integers(1, 12),
    max_exact_vectors=st.sampled_from([MAX_EXACT_VECTORS, 0]),
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@arguments
def test_a_filtered_search_of_files_equals_brute_force(**drawn: Any) -> None:
    compare_with_memory("embedded", **drawn)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@arguments
def test_a_filtered_search_of_a_server_equals_brute_force(**drawn: Any) -> None:
    compare_with_memory("postgresql", **drawn)


def compare_with_memory(
    kind: str,
    steps: list[tuple[Batch, int]],
    query_filters: list[Filters],
    limit: int,
    max_exact_vectors: int,
) -> None:
    with (
        both(kind, max_exact_vectors) as (memory, engine),
        ExitStack() as stack,
    ):
        snapshots: list[tuple[Snapshot, Snapshot]] = []
        with memory.writing(60), engine.writing(60):
            for batch, embed in steps:
                assert memory.commit(batch) == engine.commit(batch)
                with memory.snapshot() as snapshot:
                    pending = [each.digest for each in snapshot.vectors.pending("m", embed)]
                    terms = snapshot.vocabulary.terms_without_vector("m", embed)
                if pending or terms:
                    more = Batch(
                        vectors=vectors(pending) if pending else None,
                        concepts=vectors(terms) if terms else None,
                    )
                    assert memory.commit(more) == engine.commit(more)
                snapshots.append(
                    (
                        stack.enter_context(memory.snapshot()),
                        stack.enter_context(engine.snapshot()),
                    )
                )
                assert memory.count_unused_vectors() == engine.count_unused_vectors()
        # PostgreSQL leaves out deleted passages in every search.
        fresh = len(steps) == 1 or kind == "postgresql"
        for expected, actual in snapshots:
            same_tables(expected, actual)
            for each in (Filters(), *query_filters):
                same_results(expected, actual, each, limit, exact=fresh)
        assert engine.check() == []
        # A check rebuilds the lexical index without deleted passages: then every score is exact.
        with memory.snapshot() as expected, engine.snapshot() as actual:
            for each in (Filters(), *query_filters):
                same_results(expected, actual, each, limit, exact=True)
        assert engine.check() == []
