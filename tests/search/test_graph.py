"""The link retriever: neighbours at half the score, hubs damped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import log2

import pytest

from marklight import engines
from marklight.answer import Filters, Query
from marklight.errors import SettingsError
from marklight.model import Batch, Entry, Vectors
from marklight.models.fake import FakeEmbedder
from marklight.ports import FIELD_BOOSTS, Tools
from marklight.search.retrieve.graph import Graph
from marklight.text import query_terms
from marklight.text.markdown import chunk_embedding_text
from tests.contracts.builders import entry, id_of, link
from tests.search.stage_settings import build_stage


@pytest.fixture(params=["memory", "embedded"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    persistent = request.param == "embedded"
    return f"file:{tmp_path_factory.mktemp('library')}" if persistent else "memory:"


@pytest.fixture
def tools(place: str) -> Iterator[Tools]:
    """Apples stand in `apple`, which links to `tree` and to `hub`; `pie` links to `apple`."""
    engine = engines.open(place)
    spokes = [entry(f"spoke{n}.md", "nothing", links=(link("hub"),)) for n in range(12)]
    entries = (
        entry("apple.md", "apple apple", links=(link("tree"), link("hub"), link("apple"))),
        entry("tree.md", "intro", "roots", "leaves", links=(link("forest"),), tags=("wood",)),
        entry("hub.md", "everything"),
        entry("pie.md", "baked", links=(link("apple"),)),
        entry("forest.md", "many trees", links=(link("tree"),)),
        entry("alone.md", "nobody"),
        *spokes,
    )
    with engine.writing(1):
        engine.commit(Batch(entries=entries))
    with engine.snapshot() as snapshot:
        yield Tools(snapshot)
    engine.close()


def scores_of(tools: Tools, query: Query, graph: Graph | None = None) -> dict[str, float]:
    hits = (graph or Graph())(query, tools)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return {hit.chunk.path: hit.score for hit in hits}


def test_neighbours_in_both_directions_get_half_the_score_and_hubs_less(tools: Tools) -> None:
    assert scores_of(tools, Query("apple")) == pytest.approx(
        {
            "pie.md": 0.5 / log2(2 + 1),  # to the apple
            "tree.md": 0.5 / log2(2 + 1 + 2),  # to the forest; from the apple and the forest
            "hub.md": 0.5 / log2(2 + 8),  # from thirteen, of which eight count
        }
    )


def test_each_hop_halves_the_score(tools: Tools) -> None:
    scores = scores_of(tools, Query("apple"), Graph(hops=2))
    assert scores["forest.md"] == pytest.approx(0.5 * scores["tree.md"] / log2(2 + 1 + 1))
    assert "apple.md" not in scores


def test_scores_follow_their_seed_and_seeds_are_not_returned(tools: Tools) -> None:
    query = Query("many trees baked")
    first, second = tools.snapshot.lexical.search(
        query_terms(query.text), FIELD_BOOSTS, Filters(), 9
    )
    assert [
        chunk.path for chunk in tools.snapshot.documents.chunks([first.chunk_id, second.chunk_id])
    ] == [
        "forest.md",
        "pie.md",
    ]
    assert scores_of(tools, query) == pytest.approx(
        {
            "tree.md": 0.5 / log2(2 + 1 + 2),
            "apple.md": 0.5 * second.score / first.score / log2(2 + 2 + 1),
        }
    )
    assert set(scores_of(tools, Query("apple baked"))) == {"tree.md", "hub.md"}


@pytest.mark.parametrize("text", ["[[Pie]]", "see [[pie|this]]", "[[pie#Top]]", "pie", "PIE "])
def test_a_document_named_in_the_query_is_a_seed(tools: Tools, text: str) -> None:
    # apple leads to tree and hub, and to itself, which counts for nothing; the pie leads to it.
    assert scores_of(tools, Query(text)) == pytest.approx({"apple.md": 0.5 / log2(2 + 2 + 1)})


def test_filters_apply_and_the_first_passage_is_the_default(tools: Tools) -> None:
    hits = Graph()(Query("[[apple]]", filters=Filters(tags=("wood",))), tools)
    assert [hit.chunk.text for hit in hits] == ["intro"]
    worded = Query("[[apple]]", filters=Filters(phrases=("roots",)))
    assert [hit.chunk.text for hit in Graph()(worded, tools)] == []
    only = Query("[[apple]]", filters=Filters(documents=(id_of("pie.md"),)))
    assert set(scores_of(tools, only)) == {"pie.md"}
    none = replace(only, filters=Filters(documents=(id_of("alone.md"),)))
    assert scores_of(tools, none) == {}


def test_the_limit_counts_documents(tools: Tools) -> None:
    assert (
        len(
            scores_of(
                tools, Query("[[hub]]", limit=1), Graph(min_candidates=1, candidates_per_result=2)
            )
        )
        == 2
    )
    assert len(scores_of(tools, Query("[[hub]]", limit=2))) == 5
    assert len(scores_of(tools, Query("[[hub]]", limit=7))) == 7


def test_a_query_without_words_or_neighbours_finds_nothing(tools: Tools) -> None:
    for text in ("?!", "nobody", "no such word"):
        assert scores_of(tools, Query(text)) == {}


@pytest.mark.parametrize("with_model", [True, False])
def test_the_best_passage_of_a_document_is_returned(place: str, with_model: bool) -> None:
    engine, model = engines.open(place), FakeEmbedder()
    pages: tuple[Entry, ...] = (
        entry("seed.md", "zebra", links=(link("near"),)),
        entry("near.md", "an introduction", "red green blue", "the end"),
    )
    chunks = [chunk for page in pages for chunk in page.chunks]
    matrix = model.embed_passages([chunk_embedding_text(chunk) for chunk in chunks])
    vectors = Vectors(model.fingerprint, tuple(chunk.digest for chunk in chunks), matrix)
    with engine.writing(1):
        engine.commit(Batch(entries=pages, vectors=vectors))
    with engine.snapshot() as snapshot:
        tools = Tools(snapshot, model if with_model else None)
        hits = Graph(seeds=1)(Query("zebra zebra zebra green"), tools)
        assert [hit.chunk.text for hit in hits] == ["red green blue"]
    engine.close()


@pytest.mark.parametrize(
    "wrong", [{"seeds": 0}, {"max_neighbours": 0}, {"hops": 0}, {"hops": 9}, {"min_candidates": 0}]
)
def test_settings_out_of_bounds_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        build_stage(Graph, **wrong)
