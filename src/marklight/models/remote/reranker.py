"""Reranker on a server, by the API of Jina, Cohere and vLLM, or that of TEI."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from marklight.errors import ModelServerError
from marklight.models.onnx import replace_surrogates
from marklight.models.remote import Server, ServerState
from marklight.models.remote.client import Client, RequestRejected, RetryPolicy
from marklight.models.remote.embedder import in_order

FIRST_BATCH = 4
"""Passages in the first request; its time determines the size of the next batches."""
MAX_CHARACTERS = 8000
"""Characters of a passage that are sent; cross-encoders rarely read more than 512 tokens."""
HINT = "Check that the server can rerank, and reranker.name and reranker.address"


class _Score(Struct):
    index: int | None = None
    relevance_score: float | None = None
    score: float | None = None
    """TEI's name of it."""


class _Scores(Struct):
    results: list[_Score] = []
    data: list[_Score] = []


class RemoteReranker:
    """A reranker on a server; the first request is sent when the first passage is scored."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        self.server = server
        self.state = ServerState(server, cache_dir)
        self._client = Client(server)
        self._format = 0
        """Index of the request format that the server accepts: below `/v1`, at its root, or TEI's."""
        self._returns_logits = False
        """True if the server returns scores outside of 0 to 1."""

    def __repr__(self) -> str:
        return f"RemoteReranker({str(self.server)!r})"

    @property
    def name(self) -> str:
        return self.server.name

    def score(self, query: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """Return one score from 0 to 1 for each passage, in order; fewer when time runs out, at least one.

        The first batch may take as long as the settings allow: without it there is no result.
        """
        if not passages:
            return []
        self.state.check_available()
        began = time.monotonic()
        deadline = began + budget_ms / 1000
        scores: list[float] = []
        while len(scores) < len(passages):
            now = time.monotonic()
            if scores and now >= deadline:
                break
            rate = (now - began) / len(scores) if scores else 0.0
            fitting = max(1, int((deadline - now) / rate)) if rate else FIRST_BATCH
            batch = passages[len(scores) :][: min(fitting, self.server.batch_texts)]
            seconds = min(self.server.timeout_seconds, deadline - now) if scores else None
            try:
                scores += self._request(query, batch, seconds)
            except ModelServerError as error:
                if scores:
                    break
                self.state.record_failure(error.message, time.monotonic() - began)
                raise
        self.state.record_success()
        # One logit means that all are: scores of both kinds cannot be compared.
        self._returns_logits = self._returns_logits or any(not 0 <= score <= 1 for score in scores)
        return [_sigmoid(score) for score in scores] if self._returns_logits else scores

    def _request(self, query: str, passages: Sequence[str], seconds: float | None) -> list[float]:
        policy = RetryPolicy(self.server.timeout_seconds, 1, self.server.timeout_seconds)
        if seconds is not None:
            policy = RetryPolicy(seconds, 0, seconds)
        first = replace_surrogates(query[:MAX_CHARACTERS])
        texts = [replace_surrogates(text[:MAX_CHARACTERS]) or "." for text in passages]
        standard = {
            "model": self.server.model,
            "query": first,
            "documents": texts,
            "top_n": len(texts),
        }
        formats = (
            ("/rerank", standard),
            ("//rerank", standard),
            ("//rerank", {"query": first, "texts": texts, "truncate": True}),
        )
        rejections: list[RequestRejected] = []
        for number in range(self._format, len(formats)):
            path, payload = formats[number]
            try:
                response = self._client.request(
                    path,
                    _Scores | list[_Score],  # type: ignore[arg-type]
                    payload,
                    policy=policy,
                )
            except RequestRejected as rejection:
                rejections.append(rejection)
                if rejection.status in (404, 405) or "texts" in rejection.reason:
                    continue
                raise
            self._format = number
            return self._parse(response, len(passages))
        raise rejections[0]

    def _parse(self, response: _Scores | list[_Score], count: int) -> list[float]:
        results = response if isinstance(response, list) else (response.results or response.data)
        if len(results) != count:
            raise ModelServerError(
                f"{self.server} returned {len(results)} scores for {count} texts", HINT
            )
        scores = [
            item.score if item.relevance_score is None else item.relevance_score
            for item in in_order(results, self.server)
        ]
        if None in scores:
            raise ModelServerError(f"The response of {self.server} contains no scores", HINT)
        return [score for score in scores if score is not None]


def _sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
