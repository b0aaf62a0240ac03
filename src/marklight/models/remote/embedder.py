"""Embedding model on a server by OpenAI's or Ollama's API: batches, truncation by rejection, and a check that the model stays the same."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from marklight.errors import ModelServerError
from marklight.model import digest
from marklight.models.onnx import replace_surrogates, run_in_threads
from marklight.models.remote import ModelInfo, Server, ServerState
from marklight.models.remote.client import Client, Decoded, RequestRejected, RetryPolicy

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

RECIPE = "remote 1, length one"
"""Part of the fingerprint; changed when a server's vectors are processed differently."""
DEFAULT_TOKEN_LIMIT = 512
"""Used if neither settings nor server give a limit; most embedding models accept at least as many."""
MAX_TOKEN_LIMIT = 8192
"""A higher limit is that of a language model; no passage is that long."""
CHARACTERS_PER_TOKEN = 10
"""A text longer than this times the token limit is truncated before it is sent."""
MIN_CHARACTERS = 64
"""A text this short is not truncated further: the server's rejection has another reason."""
PARALLEL_REQUESTS = 2
"""Default of `threads`: one request is computed while another is in transit."""
FAILURE_CACHED_SECONDS = 5.0
"""Seconds during which a failure to read the model info is returned to all callers without a new request."""
PROBE = "How many numbers has a vector?"
"""Text that is embedded to learn the dimension; no text of the user's."""
VECTOR_BYTES = 200_000
"""Upper bound of a vector of 8,192 numbers in JSON."""
SPECIAL_TOKENS = 4
"""Tokens that models add to every text, with a margin."""
HINT = "Check that it is an embedding model, and the address of its server"

_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^\x00-\x7f]+|\s{2,}|\n|[^\sA-Za-z0-9]")


class RemoteEmbedder:
    """An embedding model on a server; the first request is sent when a fact or a vector is needed."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        self.server = server
        self.state = ServerState(server, cache_dir)
        client = Client(server)
        self._api = Ollama(client) if server.kind == "ollama" else OpenAI(client)
        attempts = server.retries + 1
        self._policy = RetryPolicy(
            server.timeout_seconds, server.retries, server.timeout_seconds * attempts
        )
        self._query_policy = self._policy.limited(server.query_seconds)
        self._time_limited = False
        self._shared = _SharedState()

    def __repr__(self) -> str:
        return f"RemoteEmbedder({str(self.server)!r})"

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def fingerprint(self) -> str:
        """Return a digest of the model and its prefixes, independent of the server's address.

        Before the first response it covers the settings only; nothing is stored under that digest,
        since embedding needs a response.
        """
        info_key: tuple[str, ...] = ("never asked",)
        try:
            info = self._info()
            info_key = (str(info.dimension), info.digest)
        except ModelServerError:
            pass
        server = self.server
        settings_key = (server.kind, server.model, server.query_prefix, server.passage_prefix)
        return digest(RECIPE, *settings_key, *info_key)

    @property
    def dimension(self) -> int:
        return self._info().dimension

    @property
    def token_limit(self) -> int:
        info = self.state.info
        return self.server.token_limit or min(
            (info.token_limit if info else 0) or DEFAULT_TOKEN_LIMIT, MAX_TOKEN_LIMIT
        )

    @property
    def languages(self) -> tuple[str, ...]:
        return ()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimate the number of tokens: the tokenizer is on the server."""
        return [estimate_tokens(self.server.passage_prefix + text) for text in texts]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        self._check_same_model()
        rows = np.zeros((len(texts), self.dimension), np.float32)
        prepared = [self._prepared(self.server.passage_prefix, text) for text in texts]
        grouped = list(self._batches(prepared))

        def fill(positions: list[int]) -> None:
            rows[positions] = self._embed_checked(
                [prepared[position] for position in positions], self._policy
            )

        run_in_threads(fill, grouped, self.server.threads or PARALLEL_REQUESTS)
        return rows

    def embed_query(self, text: str) -> Vector:
        self.state.check_available()
        prepared = self._prepared(self.server.query_prefix, text)
        vector: Vector = self._embed_checked([prepared], self._query_policy)[0]
        return vector

    def with_time_limit(self, seconds: float) -> RemoteEmbedder:
        """Return the same model for a caller that waits at most this long for a few passages."""
        other = copy.copy(self)
        other._policy = self._policy.limited(max(1.0, seconds))
        other._time_limited = True
        return other

    def learn(self, policy: RetryPolicy | None = None) -> ModelInfo:
        """Read the model info from the server and store it."""
        began = time.monotonic()
        try:
            info = self._api.info(policy or self._policy)
            if self.server.dimension not in (0, info.dimension):
                raise ModelServerError(
                    f"{self.server} returned {info.dimension} numbers per vector, not {self.server.dimension}",
                    "Remove model.dimension: this model or server cannot shorten its vectors",
                )
        except ModelServerError as error:
            self.state.record_failure(error.message, time.monotonic() - began)
            raise
        self.state.record_success(info)
        return info

    def _info(self) -> ModelInfo:
        """Return the model info, read from the server once; a recent failure is raised again."""
        if (info := self.state.info) is not None:
            return info
        with self._shared.lock:
            if (info := self.state.info) is not None:
                return info
            failure = self._shared.failure
            if (
                failure is not None
                and time.monotonic() - self._shared.failed_at < FAILURE_CACHED_SECONDS
            ):
                raise failure.with_traceback(None)
            self.state.check_available()
            try:
                return self.learn(self._query_policy)
            except ModelServerError as error:
                self._shared.failure, self._shared.failed_at = error, time.monotonic()
                raise

    def _check_same_model(self) -> None:
        """Check once per process, before passages are embedded, that the weights are the same as before."""
        if self._time_limited:
            self.state.check_available()
        info = self.state.info
        if info is None and not self._time_limited:
            self.learn()
        if info is None or self._shared.checked or not isinstance(self._api, Ollama):
            return
        self._shared.checked = True
        if info.digest and self._api.digest(self._query_policy) != info.digest:
            self.learn()

    def _embed_checked(self, texts: Sequence[str], policy: RetryPolicy) -> Matrix:
        dimension, began = self.dimension, time.monotonic()
        try:
            matrix = self._embed(texts, policy)
        except ModelServerError as error:
            # Passages that miss a short time limit are no evidence that the next query will fail.
            if not isinstance(error, RequestRejected) and not (
                self._time_limited and len(texts) > 1
            ):
                self.state.record_failure(error.message, time.monotonic() - began)
            raise
        self.state.record_success()
        if matrix.shape[1] != dimension:
            raise ModelServerError(
                f"{self.server} returned {matrix.shape[1]} numbers per vector, not {dimension} as before: "
                "the model behind this name has changed",
                f"If that is intended: marklight models verify {self.name}, then marklight index",
            )
        return matrix

    def _embed(self, texts: Sequence[str], policy: RetryPolicy) -> Matrix:
        """Embed texts; halve what the server rejects as too long: first the batch, then a text."""
        import numpy as np

        try:
            return self._api.embed(texts, policy)
        except RequestRejected as rejection:
            if not rejection.is_too_long:
                raise
            half = len(texts) // 2
            if half:
                parts = [self._embed(part, policy) for part in (texts[:half], texts[half:])]
                if parts[0].shape[1] != parts[1].shape[1]:
                    raise ModelServerError(
                        f"{self.server} returned vectors of different lengths"
                    ) from None
                return np.concatenate(parts)
            if len(texts[0]) <= MIN_CHARACTERS:
                raise
            return self._embed([texts[0][: len(texts[0]) // 2]], policy)

    def _prepared(self, prefix: str, text: str) -> str:
        most = self.token_limit * CHARACTERS_PER_TOKEN
        sent = replace_surrogates(prefix + text[:most])
        # Servers reject an empty text, or return no vector for it.
        return sent if sent.strip() else "."

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yield positions of texts that share a request, in order."""
        batch: list[int] = []
        characters = 0
        for position, text in enumerate(texts):
            full = len(batch) == self.server.batch_texts
            if batch and (full or characters + len(text) > self.server.batch_characters):
                yield batch
                batch, characters = [], 0
            batch.append(position)
            characters += len(text)
        if batch:
            yield batch


class _SharedState:
    """State that all copies of one embedder share."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.failure: ModelServerError | None = None
        self.failed_at = 0.0
        self.checked = False


class _Item(Struct):
    embedding: list[float]
    index: int | None = None


class _OpenAIVectors(Struct):
    data: list[_Item]


class _OpenAIModel(Struct):
    id: str
    max_model_len: int = 0
    """The token limit, which vLLM and some others report."""


class _OpenAIModels(Struct):
    data: list[_OpenAIModel]


class _Api:
    """API of a server: embeds texts, and returns the properties of the model."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _embed(
        self,
        path: str,
        expected: type[Decoded],
        texts: Sequence[str],
        policy: RetryPolicy,
        **more: Any,
    ) -> Decoded:
        server = self.client.server
        shortened = {"dimensions": server.dimension} if server.dimension else {}
        payload = {"model": server.model, "input": list(texts), **shortened, **more}
        size = 1_000_000 + VECTOR_BYTES * len(texts)
        return self.client.request(path, expected, payload, policy=policy, max_bytes=size)


class OpenAI(_Api):
    """`/v1/embeddings`, as in OpenAI, vLLM, llama.cpp, TEI, LocalAI and many others."""

    def embed(self, texts: Sequence[str], policy: RetryPolicy) -> Matrix:
        """Return one row for each text, in order."""
        response = self._embed(
            "/embeddings", _OpenAIVectors, texts, policy, encoding_format="float"
        )
        vectors = [item.embedding for item in in_order(response.data, self.client.server)]
        return parse_vectors(vectors, len(texts), self.client.server)

    def info(self, policy: RetryPolicy) -> ModelInfo:
        """Query the server for the model's dimension and token limit."""
        dimension = self.embed([PROBE], policy).shape[1]
        try:
            models = self.client.request("/models", _OpenAIModels, policy=policy).data
        except ModelServerError:  # not every server has a list
            models = []
        limits = {model.id: model.max_model_len for model in models}
        return ModelInfo(dimension, _valid_limit(limits.get(self.client.server.model)))


class _OllamaVectors(Struct):
    embeddings: list[list[float]]


class _OllamaModel(Struct):
    name: str
    digest: str = ""


class _OllamaModels(Struct):
    models: list[_OllamaModel]


class _OllamaDetails(Struct):
    model_info: dict[str, Any] = {}


class Ollama(_Api):
    """`/api/embed`, with the model's digest and length from `/api/tags` and `/api/show`."""

    def embed(self, texts: Sequence[str], policy: RetryPolicy) -> Matrix:
        """Return one row for each text, in order."""
        response = self._embed("/api/embed", _OllamaVectors, texts, policy, truncate=True)
        return parse_vectors(response.embeddings, len(texts), self.client.server)

    def info(self, policy: RetryPolicy) -> ModelInfo:
        """Query the server for the model's dimension, token limit and digest."""
        dimension = self.embed([PROBE], policy).shape[1]
        return ModelInfo(dimension, self._token_limit(policy), self.digest(policy))

    def digest(self, policy: RetryPolicy) -> str:
        """Return the digest of the weights, which may change under the same name after a pull."""
        response = self.client.request(
            "/api/tags", _OllamaModels, policy=policy, max_bytes=10_000_000
        )
        digests = {model.name: model.digest for model in response.models}
        name = self.client.server.model
        return digests.get(name) or digests.get(f"{name}:latest") or ""

    def _token_limit(self, policy: RetryPolicy) -> int:
        payload = {"model": self.client.server.model}
        try:
            info = self.client.request(
                "/api/show", _OllamaDetails, payload, policy=policy, max_bytes=50_000_000
            ).model_info
        except RequestRejected:
            return 0
        return _valid_limit(info.get(f"{info.get('general.architecture')}.context_length"))


class Indexed(Protocol):
    """An item of a response with its position in the request."""

    index: int | None


Item = TypeVar("Item", bound=Indexed)


def in_order(items: Sequence[Item], server: Server) -> list[Item]:
    """Sort items by their `index`, if they have one: a server need not keep the order."""
    by_index = {item.index: item for item in items if item.index is not None}
    if not by_index:
        return list(items)
    if sorted(by_index) != list(range(len(items))):
        raise ModelServerError(
            f"The indices in the response of {server} are not 0 to {len(items) - 1}", HINT
        )
    return [by_index[position] for position in range(len(items))]


def parse_vectors(items: Sequence[list[float]], count: int, server: Server) -> Matrix:
    """Return one row of length one for each of `count` texts; raise if the response is not that."""
    import numpy as np

    if len(items) != count:
        raise ModelServerError(f"{server} returned {len(items)} vectors for {count} texts", HINT)
    try:
        matrix = np.array(items, np.float64)
    except ValueError:
        raise ModelServerError(f"{server} returned vectors of different lengths", HINT) from None
    if not matrix.shape[1]:
        raise ModelServerError(f"{server} returned vectors without numbers", HINT)
    # Divided by the largest value before the norm is computed: squares of numbers of JSON, which are finite, may overflow.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if not largest.all():
        raise ModelServerError(f"{server} returned a vector of zeros", HINT)
    matrix /= largest
    unit: Matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    return unit


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text without a tokenizer; rather too high than too low.

    A word counts one token per four letters, a number one per two digits, text beyond ASCII one per
    two bytes, any other character one. Spaces count from the second on, since some tokenizers
    count them. Compared with the default model's tokenizer, paragraph by paragraph: 1.27 times as many in
    our documentation, 1.24 in our code, never fewer; in other documentation fewer in 2 of
    a hundred, which are keys and digests.
    """
    count = SPECIAL_TOKENS
    for piece in _PIECE.findall(text):
        first = piece[0]
        if first > "\x7f":
            count += -(-len(piece.encode("utf-8", "replace")) // 2)
        elif first.isspace():
            count += len(piece)
        elif first.isalpha():
            count += -(-len(piece) // 4)
        else:
            count += -(-len(piece) // 2)
    return count


def _valid_limit(value: object) -> int:
    return value if isinstance(value, int) and 0 < value < 10_000_000 else 0
