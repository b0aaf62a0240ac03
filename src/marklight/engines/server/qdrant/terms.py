"""Terms of a passage as a sparse vector: a dimension for each field and term, BM25's share of the term frequency as its value.

A stored value depends on the mean length of its field when the collection was built, which changes with every commit.
Stored values therefore select candidates. Their exact scores are computed from the term frequencies and field lengths,
which a sparse vector also contains: the former follow from the values, the latter have dimensions of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from marklight.engines.bm25 import (
    LENGTHS,
    SATURATION,
    Floats,
    Ints,
    length_codes,
    norms,
    term_scores,
)
from marklight.engines.lexical import FIELDS as FIELDS

FIELD_NUMBERS = {field: number for number, field in enumerate(FIELDS)}
MAX_FREQUENCY = 65_535
CACHED_DIMENSIONS = 200_000
"""Dimensions that are kept, some 30 MB: hashing takes half of the time of preparing a passage otherwise."""


@lru_cache(maxsize=CACHED_DIMENSIONS)
def dimension(field: str, term: str) -> int:
    """Return the dimension of a term in a field: a 32-bit hash."""
    data = f"{field}\0{term}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=4).digest(), "little")


LENGTH_DIMENSIONS = np.array([dimension("", field) for field in FIELDS], dtype=np.int64)
"""Dimensions with the length of each field; no term is in a field without a name."""


class PassageTerms(NamedTuple):
    """Terms of one passage: a dimension, its field and its term frequency for each, and the length of every field."""

    dimensions: Ints
    fields: Ints
    frequencies: Ints
    lengths: Ints


def passage_vector_terms(terms: Mapping[str, Sequence[str]]) -> PassageTerms:
    """Return the terms of a passage, given by field, by dimension."""
    known: dict[int, tuple[int, int]] = {}
    for number, field in enumerate(FIELDS):
        for term, frequency in Counter(terms[field]).items():
            # Of two terms with the same hash the first counts.
            known.setdefault(dimension(field, term), (number, min(frequency, MAX_FREQUENCY)))
    pairs = np.array(list(known.values()), dtype=np.int64).reshape(-1, 2)
    return PassageTerms(
        np.array(list(known), dtype=np.int64),
        pairs[:, 0],
        pairs[:, 1],
        np.array([len(terms[field]) for field in FIELDS], dtype=np.int64),
    )


def rounded(lengths: Ints) -> Ints:
    """Return lengths as other engines store them, in one byte."""
    return LENGTHS[length_codes(lengths)]


def sparse_vector(terms: PassageTerms, reference: Floats) -> tuple[list[int], list[float]]:
    """Return dimensions and values of a passage, computed with the mean lengths of `reference`."""
    lengths = rounded(terms.lengths)[terms.fields]
    values = term_scores(terms.frequencies, norms(lengths, reference[terms.fields]))
    filled = np.nonzero(terms.lengths)[0]
    return (
        [*terms.dimensions.tolist(), *LENGTH_DIMENSIONS[filled].tolist()],
        [*values.tolist(), *terms.lengths[filled].astype(float).tolist()],
    )


class StoredTerms(NamedTuple):
    """A sparse vector as Qdrant returns it, sorted by dimension."""

    dimensions: Ints
    values: Floats

    @classmethod
    def sorted(cls, dimensions: Iterable[int], values: Iterable[float]) -> StoredTerms:
        """Return a vector in the order of its dimensions."""
        given = np.fromiter(dimensions, dtype=np.int64)
        order = np.argsort(given, kind="stable")
        return cls(given[order], np.fromiter(values, dtype=np.float64)[order])

    def get(self, wanted: Ints) -> Floats:
        """Return the values of these dimensions, 0 where it has none."""
        if not len(self.dimensions):
            return np.zeros(len(wanted))
        at = np.minimum(np.searchsorted(self.dimensions, wanted), len(self.dimensions) - 1)
        return np.where(self.dimensions[at] == wanted, self.values[at], 0.0)

    def terms(self) -> Ints:
        """Return the dimensions of its terms, without those of field lengths."""
        return np.setdiff1d(self.dimensions, LENGTH_DIMENSIONS, assume_unique=True)

    def lengths(self) -> Ints:
        """Return the length of every field."""
        return self.get(LENGTH_DIMENSIONS).astype(np.int64)


class QueryWeights(NamedTuple):
    """Dimensions of a query, sorted, with the weight (boost × idf) and the field of each."""

    dimensions: Ints
    weights: Floats
    fields: Ints

    @classmethod
    def of(
        cls, terms: Sequence[str], boosts: Mapping[str, float], idf: Mapping[int, float]
    ) -> QueryWeights:
        """Return the weights of the terms that occur; a repeated term has a higher weight."""
        weights: dict[int, tuple[float, int]] = {}
        for term, times in Counter(terms).items():
            for field, boost in boosts.items():
                own = dimension(field, term)
                if boost > 0 and own in idf:
                    before = weights.get(own, (0.0, 0))[0]
                    weights[own] = before + times * boost * idf[own], FIELD_NUMBERS[field]
        dimensions = sorted(weights)
        return cls(
            np.array(dimensions, dtype=np.int64),
            np.array([weights[each][0] for each in dimensions]),
            np.array([weights[each][1] for each in dimensions], dtype=np.int64),
        )


def exact_scores(
    query: QueryWeights, passages: Sequence[StoredTerms], reference: Floats, means: Floats
) -> list[float]:
    """Return BM25 with the mean lengths of now, from values that were stored with those of `reference`."""
    if not passages:
        return []
    values = np.stack([passage.get(query.dimensions) for passage in passages])
    lengths = rounded(np.stack([passage.lengths() for passage in passages])[:, query.fields])
    before = norms(lengths, reference[query.fields])
    frequencies = np.rint(values * before / np.maximum(SATURATION - values, 1e-9))
    now = norms(lengths, np.maximum(means[query.fields], 1e-9))
    scores: list[float] = (term_scores(frequencies, now) @ query.weights).tolist()
    return scores


def highest_score(query: QueryWeights, score: float, reference: Floats, means: Floats) -> float:
    """Return a bound of the exact scores of passages whose stored values give at most this score.

    The share of a field grows at most by the ratio of the mean lengths, and is never more than its weights allow.
    """
    bound = score
    for field in np.unique(query.fields):
        growth = float(means[field] / reference[field]) - 1
        most = SATURATION * float(query.weights[query.fields == field].sum())
        bound += max(0.0, growth) * min(score, most)
    return bound
