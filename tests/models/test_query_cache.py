"""The cache of query vectors: each query is embedded once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from time import sleep
from typing import TYPE_CHECKING

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.models import CACHED_QUERIES, CachingEmbedder
from marklight.models.fake import FakeEmbedder

if TYPE_CHECKING:
    from marklight.model import Vector


@dataclass(frozen=True, slots=True)
class Counting(FakeEmbedder):
    """A slow embedder that fails at times and records its queries."""

    queries: list[str] = field(default_factory=list)
    failures: int = 0

    def embed_query(self, text: str) -> Vector:
        self.queries.append(text)
        sleep(0.02)
        if len(self.queries) <= self.failures:
            raise ModelError("not now")
        return FakeEmbedder().embed_query(text)


def test_concurrent_callers_embed_a_query_once() -> None:
    model = Counting()
    remembering, start = CachingEmbedder(model), Barrier(4)

    def ask() -> Vector:
        start.wait()
        return remembering.embed_query("pods")

    with ThreadPoolExecutor(4) as pool:
        found = [each.result() for each in [pool.submit(ask) for _ in range(4)]]
    assert model.queries == ["pods"]
    for each in found:
        np.testing.assert_array_equal(each, FakeEmbedder().embed_query("pods"))
        assert not each.flags.writeable


def test_a_failure_is_not_cached() -> None:
    model = Counting(failures=1)
    remembering = CachingEmbedder(model)
    with pytest.raises(ModelError):
        remembering.embed_query("pods")
    assert remembering.embed_query("pods").shape == (model.dimension,)
    assert model.queries == ["pods", "pods"]


def test_only_the_most_recent_queries_are_cached() -> None:
    remembering = CachingEmbedder(FakeEmbedder())
    first = remembering.embed_query("first")
    assert remembering.embed_query("first") is first
    for number in range(CACHED_QUERIES):
        remembering.embed_query(str(number))
    assert remembering.embed_query("first") is not first
