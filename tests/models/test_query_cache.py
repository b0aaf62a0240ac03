"""The cache of query vectors: each query is embedded once."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.lazy import dataclass
from marklight.models import CACHED_QUERIES, CachingEmbedder
from marklight.models.fake import FakeEmbedder

if TYPE_CHECKING:
    from marklight.model import Vector


@dataclass(frozen=True, slots=True)
class Counting(FakeEmbedder):
    """An embedder that fails at times and records its queries."""

    queries: list[str] = field(default_factory=list)
    failures: int = 0

    def embed_query(self, text: str) -> Vector:
        self.queries.append(text)
        if len(self.queries) <= self.failures:
            raise ModelError("not now")
        return FakeEmbedder().embed_query(text)


def test_a_query_is_embedded_once() -> None:
    model = Counting()
    caching = CachingEmbedder(model)
    vectors = [caching.embed_query("pods") for _ in range(3)]
    assert model.queries == ["pods"]
    for vector in vectors:
        np.testing.assert_array_equal(vector, FakeEmbedder().embed_query("pods"))
        assert not vector.flags.writeable


def test_a_failure_is_not_cached() -> None:
    model = Counting(failures=1)
    caching = CachingEmbedder(model)
    with pytest.raises(ModelError):
        caching.embed_query("pods")
    assert caching.embed_query("pods").shape == (model.dimension,)
    assert model.queries == ["pods", "pods"]


def test_only_the_most_recent_queries_are_cached() -> None:
    caching = CachingEmbedder(FakeEmbedder())
    first = caching.embed_query("first")
    assert caching.embed_query("first") is first
    for number in range(CACHED_QUERIES):
        caching.embed_query(str(number))
    assert caching.embed_query("first") is not first
