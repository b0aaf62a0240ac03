"""Query expansion by the nearest terms of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from marklight.model import Batch, Vectors
from marklight.ports import Tools
from marklight.query import Mode, Query
from marklight.search.retrieve import Expand, Semantic
from tests.contracts.builders import entry
from tests.oracle import MemoryEngine

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

QUERY = "auth"
WORDS: Mapping[str, tuple[float, ...]] = {
    "authentication": (0.96, 0.28, 0, 0),
    "authentications": (0.94, 0.34, 0, 0),
    "login": (0.8, 0.6, 0, 0),
    "auths": (1, 0, 0, 0),
    "rose": (-0.8, 0, 0.6, 0),
    "tulip": (-0.8, 0, -0.6, 0),
}
"""Their mean is (0.35, 0.203, 0, 0); after it is subtracted, roses point away from the query."""
PASSAGES = {"near the query": (0.9, 0, 0, 0.436), "near the terms": (0.85, 0.52, 0, 0)}


@dataclass(frozen=True)
class Model:
    """Embed the query along the first axis, everything else as defined above."""

    name: str = "m"
    fingerprint: str = "m"
    dimension: int = 4
    token_limit: int = 99
    languages: tuple[str, ...] = ()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [1 for _ in texts]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return np.array([(0, 0, 0, 1) for _ in texts], np.float32)

    def embed_query(self, text: str) -> Vector:
        return np.array((1, 0, 0, 0), np.float32)

    def with_time_limit(self, seconds: float) -> Model:
        return self


@pytest.fixture
def tools() -> Iterator[Tools]:
    engine = MemoryEngine()
    made = entry("words.md", " ".join(WORDS)), entry("passages.md", *PASSAGES)
    digests = tuple(chunk.digest for chunk in made[1].chunks)
    with engine.writing(0):
        engine.commit(
            Batch(
                entries=made,
                vectors=Vectors("m", digests, np.array([*PASSAGES.values()], np.float32)),
                concepts=Vectors("m", tuple(WORDS), np.array([*WORDS.values()], np.float32)),
            )
        )
    with engine.snapshot() as snapshot:
        yield Tools(snapshot, Model())


def test_the_nearest_terms_are_added_one_inflection_each(tools: Tools) -> None:
    # `auths` is an inflection of the query's own word, `authentications` of the term added first.
    # Relative to the mean (.35, .203) the query is at (.65, -.203), `authentication` at (.61, .077)
    # and `login` at (.45, .397).
    assert Expand()(Query(QUERY), tools).expanded_with == pytest.approx(
        {"authentication": 0.91, "login": 0.52}, abs=0.005
    )


@pytest.mark.parametrize(
    ("name", "value", "added"),
    [("max_terms", 1, 1), ("min_cosine", 0.55, 1), ("min_cosine", 0.92, 0)],
)
def test_number_and_cosine_of_added_terms_are_limited(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, name: str, value: float, added: int
) -> None:
    monkeypatch.setattr(Expand, name, value)
    assert [*Expand()(Query(QUERY), tools).expanded_with] == ["authentication"][:added]


@pytest.mark.parametrize(
    "query",
    [
        Query(QUERY, mode=Mode.KEYWORD),
        Query(QUERY, mode=Mode.CODE),
        Query(QUERY, hypothesis="Authentication is by token."),
    ],
)
def test_only_short_queries_of_semantic_search_are_expanded(query: Query, tools: Tools) -> None:
    assert Expand()(query, tools) == query


def test_without_a_model_or_term_vectors_nothing_is_added(tools: Tools) -> None:
    assert Expand()(Query(QUERY), Tools(tools.snapshot)).expanded_with == {}
    other = Tools(tools.snapshot, Model(fingerprint="other"))
    assert Expand()(Query(QUERY), other).expanded_with == {}


def nearest(query: Query, tools: Tools) -> dict[str, float]:
    """Return the cosines of the passages by text, best first."""
    found = Semantic()(query, 50, tools)
    chunks = tools.snapshot.documents.chunks([one.chunk_id for one in found])
    return {chunk.text: one.score for chunk, one in zip(chunks, found, strict=True)}


def test_expansion_moves_the_query_vector_towards_the_added_terms(tools: Tools) -> None:
    plain = nearest(Query(QUERY), tools)
    assert list(plain) == ["near the query", "near the terms"]
    assert plain["near the query"] == pytest.approx(0.9, abs=1e-3)
    expanded = Query(QUERY, expanded_with={"login": 0.8, "no such word": 0.6})
    found = nearest(expanded, tools)
    assert list(found) == ["near the terms", "near the query"]
    # (1, 0) + 0.3 x (0.8, 0.6) = (1.24, 0.18), which is 1.253 long.
    assert found["near the terms"] == pytest.approx(
        (0.85 * 1.24 + 0.52 * 0.18) / 1.253 / 0.9964, abs=1e-3
    )


def test_a_hypothesis_is_embedded_as_a_passage(tools: Tools) -> None:
    query = Query(QUERY, hypothesis="as it might be written", expanded_with={"login": 0.8})
    assert nearest(query, tools) == pytest.approx(
        {"near the query": 0.44, "near the terms": 0.0}, abs=5e-3
    )
