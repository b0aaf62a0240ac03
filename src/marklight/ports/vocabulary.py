"""Protocol for the vocabulary: document frequencies of terms, and vectors of the most frequent ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from marklight.model import Vector

VOCABULARY_SIZE = 10_000
"""Terms that get a vector: those in most documents."""


class ScoredTerm(NamedTuple):
    """A term with its cosine similarity to the query."""

    term: str
    score: float


class VocabularyReader(Protocol):
    """Terms as they are written, with document frequencies and vectors."""

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        """Return the number of documents that contain each term; those in none are skipped."""

    def terms_with_prefix(
        self, prefix: str, min_length: int, max_length: int, limit: int
    ) -> Mapping[str, int]:
        """Return terms with a prefix and their document frequencies, most frequent first."""

    def nearest_terms(self, vector: Vector, model: str, limit: int) -> list[ScoredTerm]:
        """Return the nearest terms of the vocabulary by cosine, best first."""

    def term_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        """Return the unit vectors of terms; those outside the vocabulary are skipped."""

    def mean_vector(self, model: str) -> Vector | None:
        """Return the mean of all term vectors; None if there are none."""

    def terms_without_vector(self, model: str, limit: int) -> list[str]:
        """Return terms of the vocabulary without a vector of this model, most frequent first."""
