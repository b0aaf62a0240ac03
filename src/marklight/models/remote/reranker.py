"""Question and passages to scores by a server: in the shape of Jina, Cohere and vLLM, or that of TEI."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marklight.errors import ModelServerError
from marklight.models.onnx import replace_surrogates
from marklight.models.remote.client import Client, Declined, Patience
from marklight.models.remote.memory import Memory
from marklight.models.remote.protocols import in_order
from marklight.models.remote.server import Server

FIRST = 4
"""Passages in the first request: how long they take tells how many more there is time for."""
MOST_CHARACTERS = 8000
"""Of a passage; models that read both texts at once rarely take more than 512 tokens of them."""
ODD = "Does the server re-rank? Name its model in reranker.name and its address in reranker.address"


class RemoteReranker:
    """Scores by a server; nothing is asked before the first passage is scored."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        self.server = server
        self.memory = Memory(server, cache_dir)
        self._client = Client(server)
        self._shape = 0
        """Which of the ways to ask it understood: below `/v1`, at its root, or with TEI's names."""
        self._raw = False
        """Whether it gives numbers beyond 0 to 1."""

    def __repr__(self) -> str:
        return f"RemoteReranker({str(self.server)!r})"

    @property
    def name(self) -> str:
        return self.server.name

    def score(self, question: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """One number in 0 to 1 for each passage, in order; fewer when the time is over, never none.

        The first few are waited for as long as the settings say: without them there is no answer.
        """
        if not passages:
            return []
        self.memory.demand_rested()
        began = time.monotonic()
        until = began + budget_ms / 1000
        found: list[float] = []
        while len(found) < len(passages):
            now = time.monotonic()
            if found and now >= until:
                break
            rate = (now - began) / len(found) if found else 0.0
            fitting = max(1, int((until - now) / rate)) if rate else FIRST
            batch = passages[len(found) :][: min(fitting, self.server.batch_texts)]
            seconds = min(self.server.timeout_seconds, until - now) if found else None
            try:
                found += self._ask(question, batch, seconds)
            except ModelServerError as error:
                if found:
                    break
                self.memory.failed(error.message, time.monotonic() - began)
                raise
        self.memory.answered()
        # Known of one score, it holds for all: else some would be compared as they are with others that are not.
        self._raw = self._raw or any(not 0 <= score <= 1 for score in found)
        return [_logistic(score) for score in found] if self._raw else found

    def _ask(self, question: str, passages: Sequence[str], seconds: float | None) -> list[float]:
        patience = Patience(self.server.timeout_seconds, 1, self.server.timeout_seconds)
        if seconds is not None:
            patience = Patience(seconds, 0, seconds)
        asked = replace_surrogates(question[:MOST_CHARACTERS])
        texts = [replace_surrogates(text[:MOST_CHARACTERS]) or "." for text in passages]
        asks = {"model": self.server.model, "query": asked, "documents": texts, "top_n": len(texts)}
        shapes = (
            ("/rerank", asks),
            ("//rerank", asks),
            ("//rerank", {"query": asked, "texts": texts, "truncate": True}),
        )
        refusals: list[Declined] = []
        for shape in range(self._shape, len(shapes)):
            path, given = shapes[shape]
            try:
                found = self._client.ask(path, given, patience=patience)
            except Declined as refusal:
                refusals.append(refusal)
                if refusal.status in (404, 405) or "texts" in refusal.said:
                    continue
                raise
            self._shape = shape
            return self._read(found, len(passages))
        raise refusals[0]

    def _read(self, found: Any, count: int) -> list[float]:
        results = found.get("results", found.get("data")) if isinstance(found, dict) else found
        if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
            raise ModelServerError(f"{self.server} gives an answer without scores", ODD)
        if len(results) != count:
            raise ModelServerError(
                f"{self.server} gives {len(results)} scores for {count} texts", ODD
            )
        scores = []
        for one in in_order(results, str(self.server)):
            score = one.get("relevance_score", one.get("score"))
            if isinstance(score, bool) or not isinstance(score, (int, float)):
                raise ModelServerError(f"{self.server} gives an answer without scores", ODD)
            if not math.isfinite(score):
                raise ModelServerError(f"{self.server} gives a score that is no number", ODD)
            scores.append(float(score))
        return scores


def _logistic(score: float) -> float:
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
