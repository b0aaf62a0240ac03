"""A model that embeds the same question once, however many stages ask for its vector."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING

from marklight.ports import TimeLimited, Unloadable

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector
    from marklight.ports import Embedder

REMEMBERED = 256
"""Questions, the last ones: half a megabyte."""


class Remembering:
    """As the model within; its answers to questions are kept for a while.

    Retrievers ask at the same time: the first of them embeds, the others wait for its vector.
    """

    def __init__(self, model: Embedder) -> None:
        self._model = model
        self._known: OrderedDict[str, Future[Vector]] = OrderedDict()
        self._guard = Lock()

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

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._model.count_tokens(texts)

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return self._model.embed_passages(texts)

    def with_time_limit(self, seconds: float) -> Embedder:
        """As the model within, if that can hurry; what is remembered is the same."""
        if not isinstance(self._model, TimeLimited):
            return self
        other = copy(self)
        other._model = self._model.with_time_limit(seconds)
        return other

    def unload(self) -> None:
        """As the model within, if that can; what is remembered stays."""
        if isinstance(self._model, Unloadable):
            self._model.unload()

    def embed_query(self, text: str) -> Vector:
        with self._guard:
            known = self._known.get(text)
            first = known is None
            if known is None:
                known = self._known[text] = Future()
            self._known.move_to_end(text)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        if first:
            try:
                vector = self._model.embed_query(text)
            except BaseException as error:
                with self._guard:
                    self._known.pop(text, None)  # the next one tries again
                known.set_exception(error)
                raise
            vector.flags.writeable = False  # it belongs to all who ask
            known.set_result(vector)
        return known.result()
