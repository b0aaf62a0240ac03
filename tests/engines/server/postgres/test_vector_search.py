"""Vector search in PostgreSQL: exact results, recall of the HNSW index with and without filters, and its use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marklight import engines
from marklight.engines import PostgresSettings, ServerSettings
from marklight.engines.relational.filters import RowFilter
from marklight.errors import StoreError
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts import test_engine_vectors
from tests.engines.server.postgres.vector_library import (
    VectorLibrary,
    brute_force,
    near_topics,
)
from tests.servers.postgres import new_library

COUNT, DOCUMENTS = 4000, 400
ALWAYS, NEVER = PostgresSettings(exact_below=0), PostgresSettings(exact_below=10**8)
MATRIX = near_topics(COUNT)
QUERIES = near_topics(40, seed=7)

PROMISES = [test for name, test in vars(test_engine_vectors).items() if name.startswith("test_")]

Make = Callable[..., VectorLibrary]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that creates a library in a schema of its own."""
    opened: list[VectorLibrary] = []
    with new_library() as address:

        def create(options: str = "", **settings: int) -> VectorLibrary:
            opened.append(VectorLibrary(address + options, **settings))
            return opened[-1]

        yield create
        for library in opened:
            library.close()


@pytest.fixture
def indexing_engine() -> Iterator[Engine]:
    """An engine that uses the HNSW index in libraries of any size."""
    with new_library() as address:
        engine = engines.open(address, ServerSettings(ALWAYS))
        yield engine
        engine.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_contract_of_vector_readers_holds_with_the_index(
    promise: Callable[[Engine], None], indexing_engine: Engine
) -> None:
    promise(indexing_engine)


@pytest.fixture(scope="module")
def large() -> Iterator[VectorLibrary]:
    """A library with an HNSW index, and documents whose passages are spread over all topics."""
    with new_library() as address:
        library = VectorLibrary(address, exact_below=COUNT // 2)
        library.add(MATRIX, documents=DOCUMENTS)
        library.build()
        yield library
        library.close()


def documents_with_share(share: float) -> tuple[RowFilter, list[int]]:
    """Return a filter on this share of all documents, and the numbers of their passages."""
    chosen = np.random.default_rng(1).permutation(DOCUMENTS)[: int(share * DOCUMENTS)] + 1
    numbers = [at for at in range(COUNT) if VectorLibrary.document(at, DOCUMENTS) in chosen]
    if 2 * share <= 1:
        return RowFilter("document", sorted(chosen.tolist())), numbers
    others = set(range(1, DOCUMENTS + 1)) - set(chosen.tolist())
    return RowFilter("document", sorted(others), exclude=True), numbers


def recall(
    library: VectorLibrary, settings: PostgresSettings, share: float | None, limit: int = 10
) -> float:
    rows, numbers = documents_with_share(share) if share else (None, None)
    shares = []
    with library.reader(rows, settings) as reader:
        for query in QUERIES:
            best = dict(brute_force(MATRIX, query, limit, numbers))
            found = dict(reader.search(query, "m", Filters(), limit))
            assert len(found) == limit
            both = best.keys() & found.keys()
            assert {id: found[id] for id in both} == {id: best[id] for id in both}
            shares.append(len(both) / limit)
    return float(np.mean(shares))


@pytest.mark.parametrize("share", [None, 0.01, 0.1, 0.5, 0.9])
def test_a_search_of_all_vectors_equals_brute_force(
    large: VectorLibrary, share: float | None
) -> None:
    assert recall(large, NEVER, share) == 1.0


@pytest.mark.parametrize("share", [None, 0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("always", [True, False])
def test_the_index_finds_nearly_all_of_the_best_with_their_exact_scores(
    large: VectorLibrary, share: float | None, always: bool
) -> None:
    before = large.index_scans()
    assert recall(large, ALWAYS if always else large.index.settings, share) >= 0.95
    used = large.index_scans() - before
    # Among one or ten percent of the passages, comparing all of them is faster.
    assert used == (len(QUERIES) if always or share in (None, 0.5, 0.9) else 0)


def test_more_results_than_the_candidates_of_one_scan_are_found(large: VectorLibrary) -> None:
    with large.reader(settings=ALWAYS) as reader:
        found = reader.search(QUERIES[0], "m", Filters(), 900)
    assert len(found) == 900
    best = {each.chunk_id for each in brute_force(MATRIX, QUERIES[0], 900)}
    assert len(best & {each.chunk_id for each in found}) >= 0.95 * 900


@pytest.mark.parametrize("mode", ["auto", "force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("share", [None, 0.1, 0.5])
def test_the_planner_uses_the_index_with_any_kind_of_plan(
    large: VectorLibrary, mode: str, share: float | None
) -> None:
    rows, _ = documents_with_share(share) if share else (None, None)
    before = large.index_scans()
    with large.reader(rows, ALWAYS) as reader:
        reader._session.run(f"SET LOCAL plan_cache_mode = {mode}")
        for query in QUERIES[:12]:  # after five, PostgreSQL may choose a plan for any parameters
            assert len(reader.search(query, "m", Filters(), 10)) == 10
    assert large.index_scans() == before + 12


def test_a_filter_that_excludes_all_neighbours_falls_back_to_comparing_all(
    large: VectorLibrary,
) -> None:
    query = QUERIES[0]
    near = {int(each.chunk_id[2:]) + 1 for each in brute_force(MATRIX, query, COUNT - 15)}
    rows = RowFilter("row", sorted(near), exclude=True)
    with large.reader(rows, ALWAYS) as reader:
        found = reader.search(query, "m", Filters(), 10)
    far = [number for number in range(COUNT) if number + 1 not in near]
    assert found == brute_force(MATRIX, query, 10, far)


def test_vectors_that_no_passage_uses_are_never_results(make: Make) -> None:
    library, query = make(), near_topics(1, seed=3)[0]
    matrix = near_topics(50)
    library.add(matrix)
    unused = np.repeat(query[None], 200, axis=0)  # nearer than all others
    library.embed(unused, first=1000)
    assert library.search(query, 5) == brute_force(matrix, query, 5)
    assert library.search(query, 100) == brute_force(matrix, query, 50)
    with library.reader(settings=ALWAYS) as reader:
        assert reader.search(query, "m", Filters(), 5) == brute_force(matrix, query, 5)


def test_a_text_that_is_repeated_often_does_not_displace_other_results(make: Make) -> None:
    library, matrix = make(), near_topics(60)
    library.add(matrix)
    with library.session() as session:  # the passages 10 to 49 have the text of passage 10
        session.run("UPDATE chunks SET digest = 'digest000010' WHERE row BETWEEN 11 AND 50")
    library.embed(matrix[:1])  # counts again
    matrix[10:50] = matrix[10]
    for query, limit in ((matrix[10], 5), (matrix[10], 45), (matrix[55], 20)):
        expected = brute_force(matrix, query, limit)
        assert library.search(query, limit) == expected
        with library.reader(settings=ALWAYS) as reader:
            assert reader.search(query, "m", Filters(), limit) == expected


numbers = st.floats(-10, 10, width=32).map(lambda number: round(number, 1))
model_names = map(str, itertools.count())


@pytest.fixture(scope="module")
def small() -> Iterator[VectorLibrary]:
    """A library with twelve passages."""
    with new_library() as address:
        library = VectorLibrary(address)
        library.add(np.ones((12, 3), dtype=np.float32))
        yield library
        library.close()


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=12),
    query=st.lists(numbers, min_size=3, max_size=3),
    limit=st.integers(1, 14),
)
def test_any_vectors_are_ranked_as_in_the_embedded_engine(
    small: VectorLibrary, rows: list[list[float]], query: list[float], limit: int
) -> None:
    matrix, wanted = np.array(rows, dtype=np.float32), np.array(query, dtype=np.float32)
    model = next(model_names)
    small.embed(matrix, model=model)
    found = small.search(wanted, limit, model=model)
    expected = brute_force(matrix, wanted, limit)
    # Passages with equal scores may be in another order.
    assert [each.score for each in found] == [each.score for each in expected]
    scores = dict(brute_force(matrix, wanted, len(matrix)))
    assert all(each.score == scores[each.chunk_id] for each in found)


def test_vectors_with_numbers_that_are_not_finite_are_compared_as_zeros(make: Make) -> None:
    library = make()
    matrix = np.array([[np.nan, 1, 0], [np.inf, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=np.float32)
    library.add(matrix)
    query = np.array([0, 3, 0], dtype=np.float32)
    assert library.search(query, 9) == brute_force(matrix, query, 9)
    assert library.search(query, 1)[0].chunk_id == "id000000"


def test_a_query_vector_of_another_dimension_is_an_error(large: VectorLibrary) -> None:
    with pytest.raises(StoreError, match="has 3 dimensions, the vectors of m have 48"):
        large.search(np.ones(3, dtype=np.float32), 5)


def test_a_filter_that_matches_nothing_and_an_unknown_model_give_no_results(
    large: VectorLibrary,
) -> None:
    assert large.search(QUERIES[0], 5, RowFilter("document", [])) == []
    assert large.search(QUERIES[0], 0) == []
    assert large.search(QUERIES[0], 5, model="other") == []


def test_long_vectors_are_stored_and_found(make: Make) -> None:
    """Of 2,500 numbers a vector does not fit into a row, of 4,500 it cannot be indexed."""
    library = make(exact_below=1)
    for model, size in (("long", 2500), ("longer", 4500)):
        matrix = near_topics(20, size=size)
        library.add(matrix, first=100 * size, model=model)
        library.build()
        best = library.search(matrix[7], 1, model=model)
        assert best[0].chunk_id == f"id{100 * size + 7}"
    assert list(library.indexes().values()) == [True]
