"""Rerank the best hits with a cross-encoder."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import nextafter
from typing import Annotated

from marklight.answer import Hits, best_first
from marklight.errors import ModelServerError
from marklight.ports import Tools
from marklight.query import Query
from marklight.settings import Within
from marklight.text import analyze

MIN_WORDS = 3
"""Shorter queries are not reranked unless `--rerank` is given."""


@dataclass(frozen=True, slots=True)
class Rerank:
    """Score the best candidates with a model that reads query and passage together; the rest follow."""

    candidates: Annotated[int, Within(1)] = 10
    """Number of best hits that the model scores."""
    budget_ms: Annotated[float, Within(0)] = 500.0
    """Time limit; passages not scored in time rank below the others. Loading the model is not included."""

    def wants(self, query: Query) -> bool:
        """Return True if this query is to be reranked, given a model."""
        if query.rerank is not None:
            return query.rerank and bool(query.text.strip())
        return _word_count(query.text) >= MIN_WORDS

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if tools.reranker is None or not hits or not self.wants(query):
            return hits
        chosen = hits[: self.candidates]
        from marklight.text.markdown import chunk_embedding_text

        texts = [chunk_embedding_text(hit.chunk) for hit in chosen]
        try:
            scores = tools.reranker.score(query.text, texts, self.budget_ms)
        except ModelServerError as error:
            tools.notify(f"Results are not reranked: {error}")
            return hits
        if len(scores) < len(chosen):
            tools.notify(
                f"Reranked {len(scores)} of {len(chosen)} candidates within {self.budget_ms:.0f} ms"
            )
        # Exact titles stay first, whatever the model's scores.
        exact = sum(1 for _ in takewhile(lambda hit: hit.exact_match, chosen))
        limit = nextafter(chosen[exact - 1].score, 0.0) if exact else 1.0
        ranked = [
            hit
            if index < exact
            else hit.rescored(
                score * limit, "rerank", "cross_encoder × limit", cross_encoder=score, limit=limit
            )
            for index, (hit, score) in enumerate(zip(chosen, scores, strict=False))
        ]
        lowest = min(hit.score for hit in ranked)
        return best_first([*ranked, *_scaled_below(lowest, hits[len(scores) :])])


def _scaled_below(limit: float, rest: Hits) -> Hits:
    """Scale the scores of hits below a limit, so that their order stays and no ties arise."""
    if not rest or rest[0].score <= 0 or rest[0].score < limit:
        return rest
    factor = nextafter(limit, 0.0) / rest[0].score
    return tuple(
        hit.rescored(
            hit.score * factor, "rerank", "before × factor", before=hit.score, factor=factor
        )
        for hit in rest
    )


def _word_count(text: str) -> int:
    """Count words; Chinese, Japanese and Korean are written without spaces."""
    return sum(1 if run.isascii() else max(1, len(analyze(run))) for run in text.split())
