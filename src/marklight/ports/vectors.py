"""Protocol for vector search: nearest passages by cosine similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from marklight.model import Chunk, DocumentId
from marklight.ports.documents import ScoredChunk
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.model import Vector


class Pending(NamedTuple):
    """A text without a vector, under the digest that its vector will have."""

    digest: str
    chunk: Chunk


class VectorReader(Protocol):
    """Embeddings of passages, one set per model fingerprint."""

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        """Return the nearest passages by cosine, best first; the query vector need not be normalised.

        Scores are exact. In a large index some of the nearest may be missed, on average under 2 of 100.
        """

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        """Return the nearest passage of each document that matches; of equals the first one.

        Compares all matching passages, so the filters should select few documents.
        """

    def get(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        """Return the unit vectors of passages; those without one are skipped."""

    def missing(self, model: str, digests: Sequence[str]) -> list[str]:
        """Return those digests that have no vector of this model, in the given order; no passage need have them."""

    def pending(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        """Return distinct texts without a vector of this model, the passages in `first` before others."""
