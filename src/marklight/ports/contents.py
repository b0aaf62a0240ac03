"""Protocol for reading all that an index stores, in the order of keys, so that it can be copied and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from marklight.batch import Entry, Vectors


class ContentReader(Protocol):
    """Everything that commits have stored; the iterators hold a bounded number of documents or rows in memory."""

    def entries(self) -> Iterator[Entry]:
        """Yield all documents with their passages and sections, ordered by path, then by collection."""

    def models(self) -> Mapping[str, int]:
        """Return the fingerprints of models that have any vector, with the dimension of their vectors."""

    def vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors that passages use, with the bits that were committed, in groups ordered by digest."""

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors of vocabulary terms, with the bits that were committed, in groups ordered by term."""
