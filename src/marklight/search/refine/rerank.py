"""Let a cross-encoder read the question together with each of the best hits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import inf, nextafter

from marklight.answer import Hit, Hits, Query, best_first
from marklight.errors import ModelServerError
from marklight.ports import Tools
from marklight.settings import demand_within
from marklight.text import analyze, chunk_embedding_text


@dataclass(frozen=True, slots=True)
class Rerank:
    """The best candidates by the score of a model that sees both texts at once, then the rest."""

    candidates: int = 10
    """How many of the best hits the model reads."""
    budget_ms: float = 500.0
    """When this time is over, what is read already counts; the time to load the model is not part of it."""
    words: int = 3
    """A question of fewer words is left as it is, unless re-ranking is asked for: there is little to read in it."""

    def __post_init__(self) -> None:
        demand_within(
            "search.rerank", self, candidates=(1, inf), budget_ms=(0, inf), words=(0, inf)
        )

    def wants(self, query: Query) -> bool:
        """Whether this question is one to re-rank for, if there is a model."""
        if query.rerank is not None:
            return query.rerank and bool(query.text.strip())
        return _length(query.text) >= max(1, self.words)

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if tools.reranker is None or not hits or not self.wants(query):
            return hits
        chosen = hits[: self.candidates]
        texts = [chunk_embedding_text(hit.chunk) for hit in chosen]
        try:
            scores = tools.reranker.score(query.text, texts, self.budget_ms)
        except ModelServerError as error:
            tools.notify(f"not re-ranked: {error}")
            return hits
        if len(scores) < len(chosen):
            tools.notify(
                f"re-ranked {len(scores)} of {len(chosen)} candidates within {self.budget_ms:.0f} ms"
            )
        # What is called exactly as the question stays above all others, however they read.
        named = sum(1 for _ in takewhile(_is_named, chosen))
        room = nextafter(chosen[named - 1].score, 0.0) if named else 1.0
        read = [
            hit if at < named else hit.rescored(score * room, by="rerank")
            for at, (hit, score) in enumerate(zip(chosen, scores, strict=False))
        ]
        least = min(hit.score for hit in read)
        return best_first([*read, *_below(least, hits[len(scores) :])])


def _is_named(hit: Hit) -> bool:
    return any(why.stage == "exact_title" for why in hit.why)


def _below(least: float, rest: Hits) -> Hits:
    """Hits in their order with all scores below this one: scaled, since a bare bound would make ties."""
    if not rest or rest[0].score <= 0 or rest[0].score < least:
        return rest
    factor = nextafter(least, 0.0) / rest[0].score
    return tuple(hit.rescored(hit.score * factor, by="rerank") for hit in rest)


def _length(text: str) -> int:
    """Words of a question; Chinese, Japanese and Korean write them without spaces between."""
    return sum(1 if run.isascii() else max(1, len(analyze(run))) for run in text.split())
