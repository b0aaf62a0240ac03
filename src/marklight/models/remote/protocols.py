"""What is asked of each kind of server, and where in its answer the numbers stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marklight.errors import ModelServerError
from marklight.models.remote.client import Client, Declined, Patience
from marklight.models.remote.memory import Facts
from marklight.models.remote.vectors import ODD, rows

if TYPE_CHECKING:
    from marklight.model import Matrix

PROBE = "How many numbers has a vector?"
"""What is embedded to learn that; no text of the user's."""
A_VECTOR_BYTES = 200_000
"""A vector of 8,192 numbers as it is written in JSON, with room."""


class OpenAI:
    """`/v1/embeddings`, as OpenAI, vLLM, llama.cpp, TEI, LocalAI and many others have it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def embed(self, texts: Sequence[str], patience: Patience) -> Matrix:
        """One row for each text, in order."""
        server = self.client.server
        given: dict[str, Any] = {
            "model": server.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if server.dimension:
            given["dimensions"] = server.dimension
        found = self.client.ask("/embeddings", given, patience=patience, most=_room(texts))
        items = found.get("data") if isinstance(found, dict) else None
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            raise ModelServerError(f"{server} gives an answer without vectors", ODD)
        vectors = [one.get("embedding") for one in in_order(items, str(server))]
        return rows(vectors, len(texts), str(server))

    def facts(self, patience: Patience) -> Facts:
        """What can be learned by asking."""
        dimension = self.embed([PROBE], patience).shape[1]
        return Facts(dimension, self._token_limit(patience))

    def _token_limit(self, patience: Patience) -> int:
        """vLLM and some others tell; where one does not it is no fault."""
        try:
            found = self.client.ask("/models", patience=patience)
            of = {one["id"]: one for one in found["data"]}
            return _limit(of[self.client.server.model]["max_model_len"])
        except (ModelServerError, KeyError, TypeError):
            return 0


class Ollama:
    """`/api/embed`, with the model's digest and length from `/api/tags` and `/api/show`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def embed(self, texts: Sequence[str], patience: Patience) -> Matrix:
        """One row for each text, in order."""
        server = self.client.server
        given: dict[str, Any] = {"model": server.model, "input": list(texts), "truncate": True}
        if server.dimension:
            given["dimensions"] = server.dimension
        found = self.client.ask("/api/embed", given, patience=patience, most=_room(texts))
        vectors = found.get("embeddings") if isinstance(found, dict) else None
        if not isinstance(vectors, list):
            raise ModelServerError(f"{server} gives an answer without vectors", ODD)
        return rows(vectors, len(texts), str(server))

    def facts(self, patience: Patience) -> Facts:
        """What can be learned by asking."""
        dimension = self.embed([PROBE], patience).shape[1]
        return Facts(dimension, self._token_limit(patience), self.digest(patience))

    def digest(self, patience: Patience) -> str:
        """Of the weights; the same name may stand for others after a pull."""
        found = self.client.ask("/api/tags", patience=patience, most=10_000_000)
        name = self.client.server.model
        try:
            of = {str(one["name"]): str(one["digest"]) for one in found["models"]}
        except (KeyError, TypeError):
            return ""
        return of.get(name) or of.get(f"{name}:latest") or ""

    def _token_limit(self, patience: Patience) -> int:
        given = {"model": self.client.server.model}
        try:
            found = self.client.ask("/api/show", given, patience=patience, most=50_000_000)
            told = found["model_info"]
            return _limit(told[f"{told['general.architecture']}.context_length"])
        except (Declined, KeyError, TypeError):
            return 0


def in_order(items: Sequence[dict[str, Any]], server: str) -> list[dict[str, Any]]:
    """By their own numbers, where they have some: an answer need not keep the order."""
    if not any("index" in one for one in items):
        return list(items)
    placed: dict[int, dict[str, Any]] = {
        one["index"]: one for one in items if type(one.get("index")) is int
    }
    if sorted(placed) != list(range(len(items))):
        raise ModelServerError(
            f"{server} numbers its {len(items)} answers otherwise than asked", ODD
        )
    return [placed[at] for at in range(len(items))]


def _room(texts: Sequence[str]) -> int:
    return 1_000_000 + A_VECTOR_BYTES * len(texts)


def _limit(told: object) -> int:
    return told if isinstance(told, int) and 0 < told < 10_000_000 else 0
