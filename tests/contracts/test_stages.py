"""What every stage owes, checked by its being in the folder."""

from __future__ import annotations

import importlib
import math
import pkgutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Hits, Query, best_first
from marklight.library import compose
from marklight.ports import Tools
from marklight.search import fuse, pipeline, refine, retrieve, rewrite
from tests.making import hits_of, no_reader

ROOMS = {
    rewrite: pipeline.REWRITE,
    retrieve: pipeline.RETRIEVE,
    fuse: pipeline.FUSE,
    refine: pipeline.REFINE,
}
TOOLS = Tools(no_reader())
QUERY = Query("anything")

SCORES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.floats(-1.0, 30.0, allow_nan=False),
    max_size=12,
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_file_of_a_room_is_a_stage_on_the_page(room: Any) -> None:
    files = {module.name for module in pkgutil.iter_modules(room.__path__)}
    assert files == {compose.stage_name(stage) for stage in ROOMS[room]}


@pytest.mark.parametrize("stage", compose.STAGES, ids=compose.stage_name)
def test_a_stage_has_one_name_everywhere(stage: type) -> None:
    name = compose.stage_name(stage)
    assert stage.__module__.rpartition(".")[2] == name
    assert compose.SCHEMA[f"search.{name}"] is stage
    assert stage.__doc__
    assert importlib.import_module(stage.__module__).__doc__


@pytest.mark.parametrize("stage", pipeline.REFINE, ids=compose.stage_name)
@given(scores=SCORES)
def test_refining_invents_nothing_changes_nothing_and_is_repeatable(
    stage: type, scores: dict[str, float]
) -> None:
    hits = hits_of(scores)
    before = tuple(hits)
    found: Hits = stage()(QUERY, hits, TOOLS)
    assert hits == before
    assert found == stage()(QUERY, hits, TOOLS)
    assert {hit.chunk.id for hit in found} <= {hit.chunk.id for hit in hits}
    assert found == best_first(found)
    assert not any(math.isnan(hit.score) for hit in found)


@pytest.mark.parametrize("stage", pipeline.FUSE, ids=compose.stage_name)
@given(one=SCORES, other=SCORES)
def test_fusion_keeps_every_passage_once_and_scores_it_between_0_and_1(
    stage: type, one: dict[str, float], other: dict[str, float]
) -> None:
    lists = {"keyword": hits_of(one), "semantic": hits_of(other)}
    found: Hits = stage()(lists, QUERY, TOOLS)
    assert sorted(hit.chunk.id for hit in found) == sorted({*one, *other})
    assert all(0.0 <= hit.score <= 1.0 for hit in found)
    assert found == best_first(found)
    assert found == stage()(lists, QUERY, TOOLS)


@pytest.mark.parametrize("stage", pipeline.FUSE, ids=compose.stage_name)
def test_fusing_nothing_gives_nothing(stage: type) -> None:
    assert stage()({}, QUERY, TOOLS) == ()
    assert stage()({"keyword": (), "semantic": ()}, QUERY, TOOLS) == ()


@pytest.mark.parametrize("stage", pipeline.REFINE, ids=compose.stage_name)
def test_refining_nothing_gives_nothing(stage: type) -> None:
    assert stage()(QUERY, (), TOOLS) == ()
