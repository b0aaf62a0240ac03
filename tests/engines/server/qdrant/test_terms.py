"""Sparse vectors of passages: exact BM25 from stored values, whatever mean lengths those were computed with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.engines.server.qdrant.lexical import (
    FIELDS,
    LENGTH_DIMENSIONS,
    QueryWeights,
    StoredTerms,
    dimension,
    exact_scores,
    highest_score,
    passage_vector_terms,
    sparse_vector,
)
from marklight.lexical import K1, B
from tests.oracle.search import stored_length

if TYPE_CHECKING:
    from marklight.engines.server.bm25 import Floats

words = st.lists(st.sampled_from(["apple", "pear", "日本", "c++", "\ud800", "\0"]), max_size=90)
passages = st.fixed_dictionaries(dict.fromkeys(FIELDS, words))
means = st.lists(st.floats(0.05, 500), min_size=len(FIELDS), max_size=len(FIELDS)).map(np.array)
boosts = st.dictionaries(st.sampled_from(FIELDS), st.floats(0.5, 10), min_size=1)


def stored(terms: Mapping[str, Sequence[str]], reference: Floats) -> StoredTerms:
    """Return the vector as Qdrant returns it: 32-bit floats."""
    dimensions, values = sparse_vector(passage_vector_terms(terms), reference)
    return StoredTerms.sorted(dimensions, np.array(values, dtype=np.float32).tolist())


def bm25(
    terms: Mapping[str, Sequence[str]],
    query: Sequence[str],
    weights: Mapping[str, float],
    mean: Floats,
) -> float:
    """Return the score by the formula of the in-memory engine, with an idf of 1."""
    score = 0.0
    for field, boost in weights.items():
        length, average = stored_length(len(terms[field])), mean[FIELDS.index(field)]
        for term in query:
            frequency = Counter(terms[field])[term]
            damping = frequency + K1 * (1 - B + B * length / average)
            score += boost * (K1 + 1) * frequency / damping if frequency else 0.0
    return score


def weights_of(query: Sequence[str], weights: Mapping[str, float]) -> QueryWeights:
    idf = {dimension(field, term): 1.0 for field in FIELDS for term in query}
    return QueryWeights.of(query, weights, idf)


@given(passages, means, means, boosts, st.lists(st.sampled_from(["apple", "pear", "c++"])))
def test_the_exact_score_is_bm25_for_any_reference(
    terms: Mapping[str, Sequence[str]],
    reference: Floats,
    mean: Floats,
    weights: Mapping[str, float],
    query: Sequence[str],
) -> None:
    wanted = weights_of(query, weights)
    (score,) = exact_scores(wanted, [stored(terms, reference)], reference, mean)
    assert score == pytest.approx(bm25(terms, query, weights, mean), rel=1e-5, abs=1e-6)


@given(passages, means, means, boosts)
def test_no_exact_score_exceeds_the_bound_of_its_stored_score(
    terms: Mapping[str, Sequence[str]],
    reference: Floats,
    mean: Floats,
    weights: Mapping[str, float],
) -> None:
    wanted = weights_of(["apple", "pear"], weights)
    own = stored(terms, reference)
    selected = float(own.get(wanted.dimensions) @ wanted.weights)
    (score,) = exact_scores(wanted, [own], reference, mean)
    assert score <= highest_score(wanted, selected, reference, mean) * (1 + 1e-5)


@given(passages, means)
def test_terms_and_lengths_can_be_read_back(
    terms: Mapping[str, Sequence[str]], reference: Floats
) -> None:
    own, before = stored(terms, reference), passage_vector_terms(terms)
    assert own.lengths().tolist() == [len(terms[field]) for field in FIELDS]
    assert set(own.terms().tolist()) == set(before.dimensions.tolist())


def test_dimensions_differ_by_field_and_never_change() -> None:
    # A changed hash would find nothing in existing collections.
    assert dimension("body", "apple") == 2785295859
    assert dimension("title", "apple") != dimension("body", "apple")
    assert len(set(LENGTH_DIMENSIONS.tolist())) == len(FIELDS)


def test_a_passage_without_terms_is_an_empty_vector() -> None:
    empty = passage_vector_terms({field: [] for field in FIELDS})
    assert sparse_vector(empty, np.ones(len(FIELDS))) == ([], [])
