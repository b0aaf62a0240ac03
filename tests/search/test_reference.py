"""Learned fusion against a slow reference that computes each score on its own, as documentation defines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, log
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.models.fake import FakeEmbedder
from marklight.ports import ScoredChunk, Tools
from marklight.query import Query
from marklight.search.features import MIN_SCALE, NO_COVERAGE, POOL_SIZE
from marklight.search.fuse import Learned
from marklight.search.probability import LogisticCurve, weights_for
from marklight.text.analyzer import query_terms
from tests.making import library, write

WORDS = ["rollback", "replicas", "espresso", "tokens", "database", "backup"]
TEXT = "rollback of the database and its replicas"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    pages = {
        f"{one}/{two}.md": f"# {one} {number}\n\nNotes about {two}, number {number}.\n"
        for number, (one, two) in enumerate((one, two) for one in WORDS for two in WORDS)
    }
    with library(write(tmp_path_factory.mktemp("docs"), pages)) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            yield Tools(snapshot, FakeEmbedder())


def sigmoid(curve: LogisticCurve, features: Mapping[str, float]) -> float:
    return 1 / (1 + exp(-curve.bias - sum(w * features[name] for name, w in curve.weights.items())))


def expected(
    lists: Mapping[str, list[ScoredChunk]], query: Query, tools: Tools
) -> dict[str, float]:
    """The score of every candidate."""
    assert tools.embedder
    weights, vector = weights_for("hybrid", "any"), tools.embedder.embed_query(query.text)
    assert weights
    bm25, cosines = dict(lists["keyword"]), dict(lists["semantic"])
    ids = list(cosines | bm25)
    chunks = dict(zip(ids, tools.snapshot.documents.chunks(ids), strict=True))
    nearest, lowest = max(cosines.values()), min(cosines.values())
    for id in chunks.keys() - cosines.keys():
        own = tools.snapshot.vectors.get(tools.embedder.fingerprint, [id])[id]
        cosines[id] = min(lowest, float(own @ vector))
    mean, deviation = fmean(cosines.values()), max(pstdev(cosines.values()), MIN_SCALE)
    terms = set(query_terms(query.text))
    covered = tools.snapshot.lexical.term_coverage(list(terms), list(chunks))
    shares = {id: covered.get(id, NO_COVERAGE) for id in chunks}
    relative = {id: bm25.get(id, 0.0) / max([*bm25.values(), MIN_SCALE]) for id in chunks}
    path = {
        id: (len(terms & set(query_terms(chunk.path))) / len(terms)) ** 2
        for id, chunk in chunks.items()
    }
    sums = {}
    for id in chunks:
        features = {
            "cosine": 10 * cosines[id],
            "standard_cosine": (cosines[id] - mean) / deviation,
            "relative_bm25": relative[id],
            "lexical": relative[id] * shares[id].anywhere ** 1.5,
            "coverage": shares[id].anywhere,
            "title": shares[id].title ** 2,
            "path": path[id],
        }
        sums[id] = sum(weight * features[name] for name, weight in weights.features.items())
    ordered = sorted(cosines.values(), reverse=True)
    nearby = [one.chunk_id for one in lists["semantic"]]
    nearby += sorted(chunks.keys() - set(nearby), key=lambda one: -cosines[one])
    best = {id: max(shares[id].anywhere, path[id]) for id in chunks}
    tenth = max(0.0, 10 * ordered[9] - 7.5) if len(ordered) > 9 else 0.0
    length = log(1 + len(terms))
    of_query = {
        "best_cosine": 10 * ordered[0],
        "top5_cosine": 10 * fmean(ordered[:5]),
        "cosine_range": 10 * (ordered[0] - ordered[-1]),
        "best_coverage": max(best.values()),
        "top3_coverage": fmean(best[id] for id in [*nearby, *bm25][:3]),
        "query_length": length,
        "corpus_size": log(1 + len(WORDS) ** 2),
        "many_near": tenth,
        "many_near_length": tenth * length,
    }
    assert nearest == ordered[0]
    # Each document has one passage, and no two have the same text, so all compete.
    ranked = sorted(sums.values(), reverse=True)
    total = sum(exp((one - ranked[0]) / weights.temperature) for one in ranked)
    first = min(sums, key=lambda one: (-sums[one], one))
    plain = {**of_query, "first_coverage": shares[first].anywhere}
    for name, (intercept, slope) in weights.unrelated.items():
        plain[f"excess_{name}"] = plain[name] - intercept - slope * of_query["corpus_size"]
    answer = sigmoid(weights.answer, plain)
    known = {**of_query, "gap": ranked[0] - ranked[-1]}
    return {
        id: answer
        * sigmoid(
            weights.relevance,
            {**known, "log_share": (one - ranked[0]) / weights.temperature - log(total)},
        )
        for id, one in sums.items()
    }


@given(data=st.data())
def test_scores_equal_those_of_the_reference(data: st.DataObject, tools: Tools) -> None:
    ids = sorted(
        tools.snapshot.documents.chunks_of(document)[0].id
        for document in tools.snapshot.documents.files()
    )
    lists = {}
    for name, scores, least in (
        ("semantic", st.floats(0.4, 0.95), 1),
        ("keyword", st.floats(0.1, 30), 0),
    ):
        some = st.lists(st.sampled_from(ids), unique=True, min_size=least, max_size=POOL_SIZE // 2)
        drawn = [ScoredChunk(id, data.draw(scores)) for id in data.draw(some)]
        lists[name] = sorted(drawn, key=lambda one: (-one.score, one.chunk_id))
    query = Query(TEXT)
    found = {hit.chunk.id: hit.score for hit in Learned()(tools.pool(lists), query, {}, tools)}
    assert found == pytest.approx(expected(lists, query, tools), abs=1e-9)
