"""Contract tests that apply to every stage."""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight import search
from marklight.answer import Hit, Hits, Why, best_first
from marklight.library import configuration
from marklight.model import Chunk
from marklight.models.fake import FakeEmbedder
from marklight.ports import ScoredChunk, Tools
from marklight.query import Filters, Mode, Query
from marklight.search import pipeline
from marklight.search.probability import LogisticCurve
from tests.making import chunk, library, write

PAGES = {
    "auth.md": "---\ntitle: Authentication\nkeywords: [login]\naliases: [sign-in]\ndate: 2026-01-10\n---\n\n"
    "Tokens expire after an hour. See [[rollback]].\n\n## Refresh\n\n"
    + "A refresh token gives a new access token without asking the user again. "
    * 20,
    "deploy/rollback.md": "# Rolling back\n\nUse the undo command to return to an earlier revision. See [[scale]].\n\n"
    "```python\ndef get_user_by_id(number): ...\n```\n",
    "deploy/scale.md": "# Scaling\n\nMore replicas carry more load. See [[rollback]].\n",
    "deploy/copy.md": "# Scaling\n\nMore replicas carry more load! See [[rollback]].\n",
    "notes.txt": "Plain notes about the espresso machine in the kitchen.\n",
}
NOW = 1_768_500_000.0
"""15 January 2026: one page is of the last week by its own date, the files are of the future."""

QUERIES = [
    Query("anything"),
    Query("Authentication"),
    Query("refresh", parents=True),
    Query("tokens of the deployment", context=1, expand_context=True, rerank=True),
    Query("getUserById", mode=Mode.CODE),
    Query('"undo command" -espresso tag:x path:deploy/**', limit=100),
    Query(
        "scaling",
        filters=Filters(paths=("deploy/**",)),
        current_collection="default",
        min_confidence=0.5,
    ),
    Query("replicas", hypothesis="More replicas carry more load.", mode=Mode.SEMANTIC),
]


class LengthReranker:
    """Scores a passage by its length."""

    name = "length"

    def score(self, query: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        return [1 / (1 + len(text)) for text in passages][:8]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Tools with a small library on the disk and a fake embedder."""
    folder = write(tmp_path_factory.mktemp("docs"), PAGES)
    with library(folder) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            yield Tools(snapshot, FakeEmbedder(), now=NOW)


def passages(tools: Tools) -> list[Chunk]:
    snapshot = tools.snapshot
    return [each for id in snapshot.documents.files() for each in snapshot.documents.chunks_of(id)]


FUSED = st.floats(0.0, 1.0) | st.sampled_from([0.0, 0.5, 1.0])
"""Scores as fusion returns them, with ties and both ends."""
WILD = st.floats(-1.0, 30.0)
PROBABILITIES = st.none() | st.floats(0.0, 1.0)


def drawn(data: st.DataObject, scores: st.SearchStrategy[float], tools: Tools) -> Hits:
    """Draw passages of the library, read or not, sometimes with one that it no longer contains."""
    known = passages(tools)
    unread = tools.snapshot.documents.candidates([each.id for each in known])
    known += [*unread.values(), chunk("gone")]
    chosen = data.draw(st.lists(st.sampled_from(known), unique_by=lambda each: each.id))
    return best_first(
        Hit(each, score, (Why("test", score),), data.draw(PROBABILITIES), score / 30)
        for each in chosen
        for score in [data.draw(scores)]
    )


def test_every_stage_that_is_defined_is_in_the_pipeline() -> None:
    names = [module.name for module in pkgutil.iter_modules(search.__path__)]
    modules = [importlib.import_module(f"{search.__name__}.{name}") for name in names]
    defined = {
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and "__call__" in vars(value) and not name.startswith("_")
        if value.__module__ == module.__name__
    }
    assert defined - {LogisticCurve, pipeline.Pipeline} == set(configuration.STAGES)


@pytest.mark.parametrize("stage", configuration.STAGES, ids=configuration.stage_name)
def test_a_stage_has_one_name_everywhere(stage: type) -> None:
    assert configuration.SCHEMA[f"search.{configuration.stage_name(stage)}"] is stage
    assert stage.__doc__
    assert importlib.import_module(stage.__module__).__doc__


@pytest.mark.parametrize("stage", pipeline.REWRITE, ids=configuration.stage_name)
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.text)
def test_rewriting_is_pure_and_deterministic(stage: type, query: Query, tools: Tools) -> None:
    before = replace(query)
    found = stage()(query, tools)
    assert isinstance(found, Query)
    assert query == before
    assert found == stage()(query, tools)
    assert (found.limit, found.mode) == (query.limit, query.mode)
    assert found.text.strip() or found.filters


@pytest.mark.parametrize("stage", pipeline.RETRIEVE, ids=configuration.stage_name)
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.text)
def test_retrieving_returns_distinct_passages_best_first(
    stage: type, query: Query, tools: Tools
) -> None:
    found: Sequence[ScoredChunk] = stage()(query, 50, tools)
    known = {each.id for each in passages(tools)}
    assert {one.chunk_id for one in found} <= known
    assert len({one.chunk_id for one in found}) == len(found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert not any(math.isnan(one.score) for one in found)
    assert found == stage()(query, 50, tools)


@pytest.mark.parametrize("stage", pipeline.RETRIEVE, ids=configuration.stage_name)
@pytest.mark.parametrize(
    "question",
    [Filters(paths=("deploy/**",)), Filters(exclude=("auth.md",)), Filters(paths=("nowhere",))],
)
def test_retrieving_respects_the_filters(stage: type, question: Filters, tools: Tools) -> None:
    allowed = set(tools.snapshot.metadata.matching_documents(question, 99))
    for query in QUERIES:
        found = stage()(replace(query, filters=question), 50, tools)
        owners = tools.snapshot.documents.owners([one.chunk_id for one in found])
        assert set(owners.values()) <= allowed


@pytest.mark.parametrize("stage", pipeline.RETRIEVE, ids=configuration.stage_name)
def test_retrieving_returns_at_most_the_requested_number(stage: type, tools: Tools) -> None:
    for query in QUERIES:
        assert len(stage()(query, 1, tools)) <= 1


@pytest.mark.parametrize("stage", pipeline.REFINE, ids=configuration.stage_name)
@given(data=st.data())
def test_refining_is_pure_and_deterministic(stage: type, data: st.DataObject, tools: Tools) -> None:
    query, hits = data.draw(st.sampled_from(QUERIES)), drawn(data, FUSED, tools)
    before = tuple(replace(hit) for hit in hits)
    found: Hits = stage()(query, hits, tools)
    assert hits == before
    assert found == stage()(query, hits, tools)
    assert found == best_first(found)
    assert all(0.0 <= hit.score <= 1.0 for hit in found)
    ids = [hit.chunk.id for hit in found]
    assert len(set(ids)) == len(ids)
    if not getattr(stage, "adds_passages", False):
        assert set(ids) <= {hit.chunk.id for hit in hits}


@pytest.mark.parametrize("stage", pipeline.REFINE, ids=configuration.stage_name)
@given(data=st.data())
def test_refining_accepts_scores_out_of_range(
    stage: type, data: st.DataObject, tools: Tools
) -> None:
    query, hits = data.draw(st.sampled_from(QUERIES)), drawn(data, WILD, tools)
    found: Hits = stage()(query, hits, tools)
    assert found == best_first(found)
    assert not any(math.isnan(hit.score) for hit in found)


def assert_traced(stage: type, before: Hits, after: Hits) -> None:
    """A stage appends to the trace of each hit; of a changed score the last entry has the new value."""
    known = {hit.chunk.id: hit for hit in before}
    for hit in after:
        old = known.get(hit.chunk.id)
        if old is None:  # its last entry accounts for its score all the same
            assert hit.why[-1].value == hit.score
            continue
        assert hit.why[: len(old.why)] == old.why
        if hit.score != old.score:
            added = hit.why[len(old.why) :]
            assert added
            assert {entry.stage for entry in added} == {configuration.stage_name(stage)}
            assert added[-1].value == hit.score


@pytest.mark.parametrize("stage", pipeline.REFINE, ids=configuration.stage_name)
@given(data=st.data())
def test_refining_only_appends_to_the_trace_and_records_every_new_score(
    stage: type, data: st.DataObject, tools: Tools
) -> None:
    query, hits = data.draw(st.sampled_from(QUERIES)), drawn(data, FUSED, tools)
    missing = data.draw(st.sampled_from(["", "deploy/scale.md"]))
    reranker = LengthReranker() if data.draw(st.booleans()) else None
    tools = replace(tools, exists=lambda document: document.path != missing, reranker=reranker)
    assert_traced(stage, hits, stage()(query, hits, tools))


@pytest.mark.parametrize("stage", pipeline.FUSE, ids=configuration.stage_name)
@given(data=st.data())
def test_fusion_keeps_every_passage_once_and_records_its_score_between_0_and_1(
    stage: type, data: st.DataObject, tools: Tools
) -> None:
    scores = st.dictionaries(
        st.sampled_from([each.id for each in passages(tools)]), st.floats(-1.0, 30.0)
    )
    lists = {name: data.draw(scores) for name in ("keyword", "semantic")}
    pool = tools.pool(
        {
            name: [
                ScoredChunk(id, scores[id]) for id in sorted(scores, key=lambda each: -scores[each])
            ]
            for name, scores in lists.items()
        }
    )
    found: Hits = stage()(pool, QUERIES[0], {}, tools)
    assert sorted(hit.chunk.id for hit in found) == sorted({*lists["keyword"], *lists["semantic"]})
    assert all(0.0 <= hit.score <= 1.0 for hit in found)
    assert found == best_first(found)
    assert found == stage()(pool, QUERIES[0], {}, tools)
    for hit in found:
        # A fusion may add the cosine of a passage that vector search did not return.
        found_by = {entry.stage for entry in hit.why[:2]}
        assert found_by >= {name for name in lists if hit.chunk.id in lists[name]}
        assert hit.why[-1].stage == configuration.stage_name(stage)
        assert hit.why[-1].value == hit.score
    assert all(
        hit.trace is None for hit in stage()(pool, QUERIES[0], {}, replace(tools, explain=False))
    )


def test_no_stage_reads_the_trace() -> None:
    """`trace` is read where it is extended (`*hit.trace` in a longer tuple, unless it is None) and nowhere else."""
    for path in sorted(Path(search.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        allowed = {
            id(part.value if isinstance(part, ast.Starred) else part.left)
            for part in ast.walk(tree)
            if isinstance(part, ast.Starred)
            or (isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is))
        }
        reads = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr in ("trace", "why")
            and id(node) not in allowed
        ]
        assert not reads, f"{path} reads the trace in lines {reads}"


@pytest.mark.parametrize("stage", pipeline.REFINE, ids=configuration.stage_name)
def test_refining_nothing_gives_nothing(stage: type, tools: Tools) -> None:
    assert stage()(QUERIES[0], (), tools) == ()


@pytest.mark.parametrize("stage", pipeline.FUSE, ids=configuration.stage_name)
def test_fusing_nothing_gives_nothing(stage: type, tools: Tools) -> None:
    assert stage()(tools.pool({}), QUERIES[0], {}, tools) == ()
    assert stage()(tools.pool({"keyword": (), "semantic": ()}), QUERIES[0], {}, tools) == ()
