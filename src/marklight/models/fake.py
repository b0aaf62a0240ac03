"""Deterministic embedding model for tests: hashed words, no files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

from marklight.lazy import dataclass
from marklight.text.analyzer import analyze

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector


@lru_cache(maxsize=10_000)
def _hash(word: str) -> int:
    data = word.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class FakeEmbedder:
    """Maps texts that share words to similar vectors; a token is four characters of a word."""

    name: str = "fake"
    dimension: int = 64
    token_limit: int = 512
    languages: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return f"fake-{self.dimension}"

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [2 + sum(-(-len(word) // 4) for word in text.split()) for text in texts]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            # A text without words gets the vector of the empty word, so that no vector is zero.
            hashes = [_hash(word) for word in analyze(text) or [""]]
            np.add.at(
                row,
                [number % self.dimension for number in hashes],
                [1.0 if number >> 63 else -1.0 for number in hashes],
            )
            if not row.any():  # words that cancel each other
                row[0] = 1.0
            row /= np.linalg.norm(row)
        return rows

    def with_time_limit(self, seconds: float) -> Self:  # noqa: ARG002
        return self

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self.embed_passages([text])[0]
        return vector
