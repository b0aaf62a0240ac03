"""Cache of query vectors: stages that embed the same query share one computation (single-flight)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING

from marklight.ports import Unloadable

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector
    from marklight.ports import Embedder

CACHED_QUERIES = 256
"""Most recent queries that are kept: half a megabyte."""


class CachingEmbedder:
    """Wraps an embedder and keeps its most recent query vectors (LRU).

    Retrievers run at the same time: the first one embeds the query, the others wait for its vector.
    """

    def __init__(self, model: Embedder) -> None:
        self._model = model
        self._vectors: OrderedDict[str, Future[Vector]] = OrderedDict()
        self._lock = Lock()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    @property
    def dimension(self) -> int:
        return self._model.dimension

    @property
    def token_limit(self) -> int:
        return self._model.token_limit

    @property
    def languages(self) -> tuple[str, ...]:
        return self._model.languages

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._model.count_tokens(texts)

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return self._model.embed_passages(texts)

    def with_time_limit(self, seconds: float) -> Embedder:
        """Return the same model with the wrapped one limited in time; the cache is shared."""
        other = copy(self)
        other._model = self._model.with_time_limit(seconds)
        return other

    def unload(self) -> None:
        """Unload the wrapped model, where it supports that; the cache stays."""
        if isinstance(self._model, Unloadable):
            self._model.unload()

    def embed_query(self, text: str) -> Vector:
        with self._lock:
            cached = self._vectors.get(text)
            first = cached is None
            if cached is None:
                cached = self._vectors[text] = Future()
            self._vectors.move_to_end(text)
            while len(self._vectors) > CACHED_QUERIES:
                self._vectors.popitem(last=False)
        if first:
            try:
                vector = self._model.embed_query(text)
            except BaseException as error:
                with self._lock:
                    self._vectors.pop(text, None)  # the next caller tries again
                cached.set_exception(error)
                raise
            vector.flags.writeable = False  # all callers share it
            cached.set_result(vector)
        return cached.result()
