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
from marklight.answer import Filters
from marklight.engines.embedded import links
from marklight.engines.embedded.engine import MAX_EXACT_VECTORS, EmbeddedEngine
from marklight.model import Batch, DocumentId, Entry, Failure, FileState
from marklight.ports import FIELD_BOOSTS, Engine, ScoredChunk, Snapshot
from tests.contracts.builders import entry, link, names_of, vector, vectors
from tests.contracts.conftest import SHM

VOCABULARY = "apple pear plum zebra run".split()
WORDS = "apple pear plum the 日本 日本語 zebra_x c++ run".split()
PATHS = ["a.md", "b.md", "guide/a.md", "guide/deep/c.md", "notes/ü.md"]
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
        metadata=draw(st.sampled_from([{}, {"s": "A"}, {"s": ["b", "a"], "t": 1}])),
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


filters = st.builds(
    Filters,
    collections=some(COLLECTIONS),
    paths=some(["*.md", "guide/**", "guide", "**/c.md", "a.md", "guide/*.md"]),
    exclude=some(["guide/deep", "b.md", "nowhere/**"]),
    tags=some(["x", "#x/y", "q"]),
    where=some([("s", "a"), ("S", "B"), ("t", "1")]),
    after=st.sampled_from([None, None, "2026", "2026-01-15", "2026-01-15T12:00+02:00"]),
    before=st.sampled_from([None, None, "2026-01-15", "2025", "2026-01-16T07:30"]),
    languages=some(["GO", "c"]),
    documents=st.lists(ids, max_size=3).map(tuple),
    phrases=some(PHRASES),
    without=some(PHRASES),
    also=st.none() | st.builds(Filters, paths=some(["*.md", "guide/**"]), tags=some(["x", "q"])),
)
worded = st.builds(Filters, tags=some(["x"]), phrases=some(PHRASES), without=some(PHRASES))
"""Separate from the others: combined they match nothing."""
steps = st.lists(st.tuples(batches, st.integers(0, 3)), min_size=1, max_size=4)


@contextmanager
def both(max_exact_vectors: int, followed: int) -> Iterator[tuple[Engine, Engine]]:
    # In memory where the system has that: waiting for the disk tells nothing here.
    with (
        tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(links, "MAX_LINKS_RESOLVED", followed)
        engine = EmbeddedEngine(Path(folder) / "library", max_exact_vectors)
        yield engines.open("memory:"), engine
        engine.close()


def close_to(found: list[ScoredChunk], oracle: list[ScoredChunk], tolerance: float) -> None:
    """Compare passages and scores; passages with equal scores may be in another order."""
    assert [each.score for each in found] == pytest.approx(
        [each.score for each in oracle], abs=tolerance
    )
    scores = {each.chunk_id: each.score for each in oracle}
    last = oracle[-1].score if oracle else 0.0
    for each in found:
        assert scores.get(each.chunk_id, last) == pytest.approx(each.score, abs=tolerance)


def same_tables(one: Snapshot, two: Snapshot) -> None:
    assert one.status.counts("m") == two.status.counts("m")
    assert one.documents.files() == two.documents.files()
    assert list(one.status.failures()) == list(two.status.failures())
    assert (one.status.manifest(), one.status.models()) == (
        two.status.manifest(),
        two.status.models(),
    )
    assert one.links.unresolved() == two.links.unresolved()
    for key in ("s", " T ", "title", "none"):
        assert one.metadata.has_key(key) == two.metadata.has_key(key)
        for limit in (0, 1, 99):
            assert list(one.metadata.values(key, limit).items()) == list(
                two.metadata.values(key, limit).items()
            )
    assert one.metadata.tags() == two.metadata.tags()
    for id in one.documents.files():
        assert one.documents.get(id) == two.documents.get(id)
        assert one.documents.chunks_of(id) == two.documents.chunks_of(id)
        own = [*(chunk.id for chunk in one.documents.chunks_of(id)), "none"]
        assert one.documents.owners(own) == two.documents.owners(own) == dict.fromkeys(own[:-1], id)
        assert one.documents.text_and_outline(id) == two.documents.text_and_outline(id)
        assert one.documents.chunks_around(id, 1, 1) == two.documents.chunks_around(id, 1, 1)
        assert one.links.outgoing(id) == two.links.outgoing(id)
        assert one.links.incoming(id) == two.links.incoming(id)
        assert one.links.incoming(id, 1) == two.links.incoming(id, 1)
    same_graph(one, two)
    assert one.vectors.pending("m", 99) == two.vectors.pending("m", 99)
    assert one.links.last_changed() == two.links.last_changed()
    assert one.documents.dates(one.documents.files()) == two.documents.dates(one.documents.files())
    assert one.links.communities(one.documents.files()) == two.links.communities(
        one.documents.files()
    )
    same_vectors(one, two)


def same_vectors(one: Snapshot, two: Snapshot) -> None:
    chunks = [chunk.id for id in one.documents.files() for chunk in one.documents.chunks_of(id)]
    terms = [*VOCABULARY, "nowhere"]
    assert one.vocabulary.document_frequencies(terms) == two.vocabulary.document_frequencies(terms)
    some = [each.vocabulary.terms_with_prefix("p", 4, 4, 1) for each in (one, two)]
    assert list(some[0].items()) == list(some[1].items())
    for oracle, found in (
        (one.vectors.get("m", chunks), two.vectors.get("m", chunks)),
        (one.vocabulary.term_vectors("m", terms), two.vocabulary.term_vectors("m", terms)),
    ):
        assert oracle.keys() == found.keys()
        for key, row in oracle.items():
            assert found[key] == pytest.approx(row, abs=1e-6)
    centre, oracle_centre = two.vocabulary.mean_vector("m"), one.vocabulary.mean_vector("m")
    assert (centre is None) == (oracle_centre is None)
    if centre is not None and oracle_centre is not None:
        assert centre == pytest.approx(oracle_centre, abs=1e-6)
    for limit in (0, 2, 99):
        assert one.vocabulary.terms_without_vector(
            "m", limit
        ) == two.vocabulary.terms_without_vector("m", limit)
        near, oracle_near = (
            each.vocabulary.nearest_terms(vector("q"), "m", limit) for each in (two, one)
        )
        assert [each.term for each in near] == [each.term for each in oracle_near]
        assert [each.score for each in near] == pytest.approx(
            [each.score for each in oracle_near], abs=1e-6
        )


def same_graph(one: Snapshot, two: Snapshot) -> None:
    every = [*one.documents.files(), DocumentId("docs", "none.md")]
    pairs = list(one.links.edges())
    assert list(two.links.edges()) == pairs
    assert two.links.orphans() == one.links.orphans()
    assert two.links.last_changed() == one.links.last_changed()
    assert two.links.neighbours(every, 99) == one.links.neighbours(every, 99)
    assert two.links.degrees(every, 99) == one.links.degrees(every, 99)
    few = one.links.degrees(every, 1)
    # Of links with a name that several documents have not all are looked at.
    assert all(count <= few[id] for id, count in two.links.degrees(every, 1).items())
    for id, near in two.links.neighbours(every, 1).items():
        # Which of many is not promised, but how many.
        out, back = {b for a, b in pairs if a == id}, {a for a, b in pairs if b == id}
        assert set(near) <= out | back
        assert (min(1, len(out | back))) <= len(near) <= min(1, len(out)) + min(1, len(back))


def same_answers(one: Snapshot, two: Snapshot, asked: Filters, limit: int, exact: bool) -> None:
    assert two.metadata.matching_documents(asked, limit) == one.metadata.matching_documents(
        asked, limit
    )
    assert two.metadata.count_matching(asked) == one.metadata.count_matching(asked)
    question = vector("q")
    close_to(
        two.vectors.search(question, "m", asked, limit),
        one.vectors.search(question, "m", asked, limit),
        1e-5,
    )
    same_leading(one, two, asked)
    for name in ("Apple", "pear  PLUM", "a", "C.md", "notes/ü.md", "U"):
        assert two.documents.find_by_title(name, asked, limit) == one.documents.find_by_title(
            name, asked, limit
        )
    for words in (["appl"], ["appl", "pear", "pear"], ["日本", "c++", "none"]):
        found = two.lexical.search(words, FIELD_BOOSTS, asked, limit)
        oracle = one.lexical.search(words, FIELD_BOOSTS, asked, limit)
        same_ranking(found, oracle, limit, exact)
        chunks = [chunk.id for id in one.documents.files() for chunk in one.documents.chunks_of(id)]
        have, oracle_have = (
            two.lexical.term_coverage(words, chunks),
            one.lexical.term_coverage(words, chunks),
        )
        assert have.keys() == oracle_have.keys()
        if exact:
            assert have == oracle_have
    asked_words = ["appl", "pear", "plum", "zebra", "日本", "c++", "none"]
    assert two.lexical.existing_terms(asked_words) == one.lexical.existing_terms(asked_words)
    for names in (["zebra", "x"], ["zebra_x", "appl", "apple"]):
        found, oracle = (
            two.lexical.search_code(names, asked, limit),
            one.lexical.search_code(names, asked, limit),
        )
        same_ranking(found, oracle, limit, exact)


def same_leading(one: Snapshot, two: Snapshot, asked: Filters) -> None:
    found, oracle = (each.vectors.best_per_document(vector("q"), "m", asked) for each in (two, one))
    assert {id: each.chunk_id for id, each in found.items()} == {
        id: each.chunk_id for id, each in oracle.items()
    }
    for id, each in oracle.items():
        assert found[id].score == pytest.approx(each.score, abs=1e-5)


def same_ranking(
    found: list[ScoredChunk], oracle: list[ScoredChunk], limit: int, exact: bool
) -> None:
    """Deleted passages influence the scores of others for a while, never the set of results."""
    if exact:
        close_to(found, oracle, 2e-4)
    assert len(found) == len(oracle)
    if len(oracle) < limit:
        assert {each.chunk_id for each in found} == {each.chunk_id for each in oracle}


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    steps=steps,
    asked=st.lists(filters | worded, min_size=4, max_size=4),
    limit=st.integers(1, 12),
    max_exact_vectors=st.sampled_from([MAX_EXACT_VECTORS, 0]),
    followed=st.sampled_from([links.MAX_LINKS_RESOLVED, 0]),
)
def test_a_filtered_search_equals_brute_force(
    steps: list[tuple[Batch, int]],
    asked: list[Filters],
    limit: int,
    max_exact_vectors: int,
    followed: int,
) -> None:
    with both(max_exact_vectors, followed) as (memory, engine), ExitStack() as views:
        kept: list[tuple[Snapshot, Snapshot]] = []
        with memory.writing(1), engine.writing(1):
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
                kept.append(
                    (
                        views.enter_context(memory.snapshot()),
                        views.enter_context(engine.snapshot()),
                    )
                )
                assert memory.count_unused_vectors() == engine.count_unused_vectors()
        fresh = len(steps) == 1
        for one, two in kept:
            same_tables(one, two)
            for each in (Filters(), *asked):
                same_answers(one, two, each, limit, exact=fresh)
        assert engine.check() == []
        # A check leaves words as if all had been written in one go: then every rank is the oracle's.
        with memory.snapshot() as one, engine.snapshot() as two:
            for each in (Filters(), *asked):
                same_answers(one, two, each, limit, exact=True)
        assert engine.check() == []
