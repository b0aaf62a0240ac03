"""Protocol for keyword search: BM25 ranking over fields, and term coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from marklight.ports.documents import ScoredChunk
from marklight.query import Filters

FIELD_BOOSTS: Mapping[str, float] = {
    "title": 3.0,
    "headings": 2.5,
    "keywords": 2.5,
    "description": 2.0,
    "tags": 2.0,
    "aliases": 1.5,
    "author": 1.0,
    "body": 1.0,
    "whole": 10.0,
}
"""Prose fields of a passage and their weights in keyword search.

The field `whole` is the concatenation of all others, with the parts of identifiers. Without it a term
in both title and body counts as two, and each field has an idf of its own, which in short
fields is noise: nDCG@10 of best passages, mean of eight development sets, is .629 without it,
.671 with it but without the parts of identifiers, and .682 as it is (benchmarks/words.py measures the whole pipeline).
"""


BOILERPLATE = "boilerplate"
"""Field with the whole text of passages that have boilerplate; searched for quoted phrases only."""

FULL_COVERAGE = 0.999
"""Coverage of all terms, with room for rounding."""


class TermCoverage(NamedTuple):
    """Idf-weighted share of the query terms that a passage contains, 0 to 1."""

    anywhere: float
    title: float


class LexicalReader(Protocol):
    """Inverted index over the terms of passages."""

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        """Return the passages that match the filters, ranked by BM25 over boosted fields, best first."""

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        """Return the passages ranked by BM25 over identifiers in code blocks, best first."""

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        """Return the coverage of these terms by each passage; those without any term are skipped."""

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        """Return those of these terms that any passage has in its prose fields."""
