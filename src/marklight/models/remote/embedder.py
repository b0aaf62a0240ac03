"""Text to vectors by a server: in batches, cut where it takes no more, and the same model tomorrow."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from marklight.errors import ModelServerError
from marklight.models.onnx import replace_surrogates
from marklight.models.remote.client import Client, Declined, Patience
from marklight.models.remote.memory import Facts, Memory
from marklight.models.remote.protocols import Ollama, OpenAI
from marklight.models.remote.server import Server
from marklight.models.remote.tokens import estimate
from marklight.text import digest

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

RECIPE = "remote 1, length one"
"""Counts changes to what is done with a server's numbers."""
UNSAID_TOKENS = 512
"""The limit where neither settings nor server tell one; most embedding models take at least as many."""
MOST_TOKENS = 8192
"""Beyond it a limit is that of a language model, and no passage is so long."""
CHARACTERS_A_TOKEN = 10
"""A text longer than this times the limit is cut before it is sent."""
LEAST_CHARACTERS = 64
"""A server that refuses so short a text as too long means something else."""
AT_ONCE = 2
"""Requests under way at once, unless `threads` says otherwise: one is computed while another travels."""
AGAIN_SECONDS = 5.0
"""A server that was not there a moment ago is not asked who it is by everything that wants to know."""


class RemoteEmbedder:
    """A model on a server; it is asked for the first time when something must be known or embedded."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        self.server = server
        self.memory = Memory(server, cache_dir)
        client = Client(server)
        self._speaks = Ollama(client) if server.kind == "ollama" else OpenAI(client)
        attempts = server.retries + 1
        self._patience = Patience(
            server.timeout_seconds, server.retries, server.timeout_seconds * attempts
        )
        self._question = self._patience.hurried(server.query_seconds)
        self._in_haste = False
        self._state = _State()

    def __repr__(self) -> str:
        return f"RemoteEmbedder({str(self.server)!r})"

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def fingerprint(self) -> str:
        """Of the model and how it is asked, wherever the server is; until that is known, of the settings.

        Nothing is ever stored under the latter: to embed anything the server must answer first.
        """
        told: tuple[str, ...] = ("never asked",)
        try:
            facts = self._facts()
            told = (str(facts.dimension), facts.digest)
        except ModelServerError:
            pass
        server = self.server
        asked = (server.kind, server.model, server.query_prefix, server.passage_prefix)
        return digest(RECIPE, *asked, *told)

    @property
    def dimension(self) -> int:
        return self._facts().dimension

    @property
    def token_limit(self) -> int:
        told = self.memory.facts
        return self.server.token_limit or min(
            (told.token_limit if told else 0) or UNSAID_TOKENS, MOST_TOKENS
        )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """By estimate: the tokenizer is the server's."""
        return [estimate(self.server.passage_prefix + text) for text in texts]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        self._look_again()
        made = np.zeros((len(texts), self.dimension), np.float32)
        prepared = [self._prepared(self.server.passage_prefix, text) for text in texts]
        grouped = list(self._batches(prepared))

        def fill(places: list[int]) -> None:
            made[places] = self._patiently([prepared[at] for at in places], self._patience)

        if len(grouped) < 2:
            for places in grouped:
                fill(places)
            return made
        pool = ThreadPoolExecutor(min(self.server.threads or AT_ONCE, len(grouped)))
        try:
            for _ in pool.map(fill, grouped):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
        return made

    def embed_query(self, text: str) -> Vector:
        self.memory.demand_rested()
        prepared = self._prepared(self.server.query_prefix, text)
        vector: Vector = self._patiently([prepared], self._question)[0]
        return vector

    def with_time_limit(self, seconds: float) -> RemoteEmbedder:
        """The same for a caller who has so much time for a few passages."""
        other = copy.copy(self)
        other._patience = self._patience.hurried(max(1.0, seconds))
        other._in_haste = True
        return other

    def learn(self) -> Facts:
        """Ask anew what the server tells, whatever is remembered."""
        began = time.monotonic()
        try:
            facts = self._speaks.facts(self._question if self._in_haste else self._patience)
            if self.server.dimension not in (0, facts.dimension):
                raise ModelServerError(
                    f"{self.server} gives {facts.dimension} numbers, not {self.server.dimension}",
                    "Leave model.dimension out: this model or server cannot shorten its vectors",
                )
        except ModelServerError as error:
            self.memory.failed(error.message, time.monotonic() - began)
            raise
        self.memory.answered()
        self.memory.learn(facts)
        return facts

    def _facts(self) -> Facts:
        """What the server told, once; a caller who comes just after it failed hears that again."""
        if (known := self.memory.facts) is not None:
            return known
        with self._state.guard:
            if (known := self.memory.facts) is not None:
                return known
            failure = self._state.failure
            if failure is not None and time.monotonic() - self._state.failed < AGAIN_SECONDS:
                raise failure.with_traceback(None)
            self.memory.demand_rested()
            try:
                other = copy.copy(self)
                other._in_haste = True
                return other.learn()
            except ModelServerError as error:
                self._state.failure, self._state.failed = error, time.monotonic()
                raise

    def _look_again(self) -> None:
        """Once a process, before passages are embedded: who is it, with the same weights as before?"""
        if self._in_haste:
            self.memory.demand_rested()
        known = self.memory.facts
        if known is None and not self._in_haste:
            self.learn()
        if known is None or self._state.looked or not isinstance(self._speaks, Ollama):
            return
        self._state.looked = True
        if known.digest and self._speaks.digest(self._question) != known.digest:
            self.learn()

    def _patiently(self, texts: Sequence[str], patience: Patience) -> Matrix:
        dimension, began = self.dimension, time.monotonic()
        try:
            matrix = self._embed(texts, patience)
        except ModelServerError as error:
            # In haste passages that take long say nothing about the next question.
            if not isinstance(error, Declined) and not (self._in_haste and len(texts) > 1):
                self.memory.failed(error.message, time.monotonic() - began)
            raise
        self.memory.answered()
        if matrix.shape[1] != dimension:
            raise ModelServerError(
                f"{self.server} gives {matrix.shape[1]} numbers, not {dimension} as before: "
                "another model answers to this name",
                f"If that is meant: marklight models verify {self.name}, then marklight index",
            )
        return matrix

    def _embed(self, texts: Sequence[str], patience: Patience) -> Matrix:
        """What the server takes no more of is halved: first the number of texts, then a text."""
        import numpy as np

        try:
            return self._speaks.embed(texts, patience)
        except Declined as refusal:
            if not refusal.is_too_long:
                raise
            half = len(texts) // 2
            if half:
                parts = [self._embed(part, patience) for part in (texts[:half], texts[half:])]
                if parts[0].shape[1] != parts[1].shape[1]:
                    raise ModelServerError(
                        f"{self.server} gives vectors of several lengths"
                    ) from None
                return np.concatenate(parts)
            if len(texts[0]) <= LEAST_CHARACTERS:
                raise
            return self._embed([texts[0][: len(texts[0]) // 2]], patience)

    def _prepared(self, prefix: str, text: str) -> str:
        most = self.token_limit * CHARACTERS_A_TOKEN
        sent = replace_surrogates(prefix + text[:most])
        # Servers refuse an empty text, or have no vector for it.
        return sent if sent.strip() else "."

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Places of texts that go into one request, in order."""
        batch: list[int] = []
        characters = 0
        for at, text in enumerate(texts):
            full = len(batch) == self.server.batch_texts
            if batch and (full or characters + len(text) > self.server.batch_characters):
                yield batch
                batch, characters = [], 0
            batch.append(at)
            characters += len(text)
        if batch:
            yield batch


class _State:
    """What all copies of one embedder share."""

    def __init__(self) -> None:
        self.guard = RLock()
        self.failure: ModelServerError | None = None
        self.failed = 0.0
        self.looked = False
