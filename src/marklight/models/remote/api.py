"""APIs of embedding servers (OpenAI, Ollama): requests, parsing of vectors, and token estimates."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marklight.errors import ModelServerError
from marklight.models.remote.client import Client, RequestRejected, RetryPolicy
from marklight.models.remote.server_state import ModelInfo

if TYPE_CHECKING:
    from marklight.model import Matrix

PROBE = "How many numbers has a vector?"
"""Text that is embedded to learn the dimension; no text of the user's."""
VECTOR_BYTES = 200_000
"""Upper bound of a vector of 8,192 numbers in JSON."""
SPECIAL_TOKENS = 4
"""Tokens that models add to every text, with a margin."""
HINT = "Check that it is an embedding model, and the address of its server"

_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^\x00-\x7f]+|\s{2,}|\n|[^\sA-Za-z0-9]")


class OpenAI:
    """`/v1/embeddings`, as in OpenAI, vLLM, llama.cpp, TEI, LocalAI and many others."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def embed(self, texts: Sequence[str], policy: RetryPolicy) -> Matrix:
        """Return one row for each text, in order."""
        server = self.client.server
        payload: dict[str, Any] = {
            "model": server.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if server.dimension:
            payload["dimensions"] = server.dimension
        response = self.client.request(
            "/embeddings", payload, policy=policy, max_bytes=_max_bytes(texts)
        )
        items = response.get("data") if isinstance(response, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ModelServerError(f"The response of {server} contains no vectors", HINT)
        vectors = [item.get("embedding") for item in in_order(items, str(server))]
        return parse_vectors(vectors, len(texts), str(server))

    def info(self, policy: RetryPolicy) -> ModelInfo:
        """Query the server for the model's dimension, limits and digest."""
        dimension = self.embed([PROBE], policy).shape[1]
        return ModelInfo(dimension, self._token_limit(policy))

    def _token_limit(self, policy: RetryPolicy) -> int:
        """Return the token limit, which vLLM and some others report; 0 if unknown."""
        try:
            response = self.client.request("/models", policy=policy)
            models = {item["id"]: item for item in response["data"]}
            return _valid_limit(models[self.client.server.model]["max_model_len"])
        except (ModelServerError, KeyError, TypeError):
            return 0


class Ollama:
    """`/api/embed`, with the model's digest and length from `/api/tags` and `/api/show`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def embed(self, texts: Sequence[str], policy: RetryPolicy) -> Matrix:
        """Return one row for each text, in order."""
        server = self.client.server
        payload: dict[str, Any] = {"model": server.model, "input": list(texts), "truncate": True}
        if server.dimension:
            payload["dimensions"] = server.dimension
        response = self.client.request(
            "/api/embed", payload, policy=policy, max_bytes=_max_bytes(texts)
        )
        vectors = response.get("embeddings") if isinstance(response, dict) else None
        if not isinstance(vectors, list):
            raise ModelServerError(f"The response of {server} contains no vectors", HINT)
        return parse_vectors(vectors, len(texts), str(server))

    def info(self, policy: RetryPolicy) -> ModelInfo:
        """Query the server for the model's dimension, limits and digest."""
        dimension = self.embed([PROBE], policy).shape[1]
        return ModelInfo(dimension, self._token_limit(policy), self.digest(policy))

    def digest(self, policy: RetryPolicy) -> str:
        """Return the digest of the weights, which may change under the same name after a pull."""
        response = self.client.request("/api/tags", policy=policy, max_bytes=10_000_000)
        name = self.client.server.model
        try:
            digests = {str(item["name"]): str(item["digest"]) for item in response["models"]}
        except (KeyError, TypeError):
            return ""
        return digests.get(name) or digests.get(f"{name}:latest") or ""

    def _token_limit(self, policy: RetryPolicy) -> int:
        payload = {"model": self.client.server.model}
        try:
            response = self.client.request(
                "/api/show", payload, policy=policy, max_bytes=50_000_000
            )
            info = response["model_info"]
            return _valid_limit(info[f"{info['general.architecture']}.context_length"])
        except (RequestRejected, KeyError, TypeError):
            return 0


def in_order(items: Sequence[dict[str, Any]], server: str) -> list[dict[str, Any]]:
    """Sort items by their `index`, if they have one: a server need not keep the order."""
    if not any("index" in item for item in items):
        return list(items)
    by_index: dict[int, dict[str, Any]] = {
        item["index"]: item for item in items if type(item.get("index")) is int
    }
    if sorted(by_index) != list(range(len(items))):
        raise ModelServerError(
            f"The indices in the response of {server} are not 0 to {len(items) - 1}", HINT
        )
    return [by_index[at] for at in range(len(items))]


def parse_vectors(items: Sequence[Any], count: int, server: str) -> Matrix:
    """Return one row of length one for each of `count` texts; raise if the response is not that."""
    import numpy as np

    if len(items) != count:
        raise ModelServerError(f"{server} returned {len(items)} vectors for {count} texts", HINT)
    decoded = [_decode(item, server) if isinstance(item, str) else item for item in items]
    try:
        matrix = np.array(decoded)
    except ValueError:  # rows of different lengths
        raise ModelServerError(f"{server} returned vectors of different lengths", HINT) from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.shape[1]:
        raise ModelServerError(f"{server} returned values that are not vectors", HINT)
    matrix = matrix.astype(np.float64)
    # Divided by the largest value before the norm is computed: squares of finite numbers may overflow.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise ModelServerError(f"{server} returned a vector with NaN or infinity", HINT)
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


def _decode(text: str, server: str) -> Any:
    """Decode base64 of 32-bit floats, as OpenAI sends to its own clients."""
    import numpy as np

    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    except (binascii.Error, ValueError):
        raise ModelServerError(f"{server} returned values that are not vectors", HINT) from None


def _max_bytes(texts: Sequence[str]) -> int:
    return 1_000_000 + VECTOR_BYTES * len(texts)


def _valid_limit(value: object) -> int:
    return value if isinstance(value, int) and 0 < value < 10_000_000 else 0
