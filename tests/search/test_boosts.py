"""Boosts: current collection, recency, link communities."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Hit, Hits, best_first
from marklight.errors import SettingsError
from marklight.model import Batch, DocumentId
from marklight.ports import Engine, Tools
from marklight.query import Query
from marklight.search.boosts import (
    Community,
    CurrentCollection,
    Recency,
    boost,
    boosted_score,
)
from tests.contracts.builders import entry
from tests.making import chunk, hits_of, no_snapshot
from tests.oracle import MemoryEngine
from tests.search.stage_settings import build_stage

QUERY = Query("anything")
DAY = 86_400
NOW = 1_768_478_400.0
"""15 January 2026, noon in Greenwich."""


def committed(*batches: Batch) -> Engine:
    engine = MemoryEngine()
    with engine.writing(1):
        for batch in batches:
            engine.commit(batch)
    return engine


def hits(engine: Engine, scores: dict[str, float]) -> Hits:
    """The first passage of each of these documents."""
    with engine.snapshot() as snapshot:
        return best_first(
            Hit(snapshot.documents.chunks_of(DocumentId("docs", path))[0], score)
            for path, score in scores.items()
        )


def scores(found: Hits) -> dict[str, float]:
    return {hit.chunk.path: round(hit.score, 6) for hit in found}


def dated(scores_of: dict[str, float], strength: float = 1.0) -> dict[str, float]:
    """Return the scores after recency, in a library with documents of every age."""
    days = {"d0.md": 0, "d6.md": 6, "d8.md": 8, "d29.md": 29, "d31.md": 31, "d999.md": 999}
    ages = {path: int((NOW - age * DAY) * 1e9) for path, age in days.items()}
    engine = committed(
        Batch(
            entries=(
                *(entry(path, path, mtime_ns=time) for path, time in ages.items()),
                entry("own-old.md", "x", date="2020-05-01", mtime_ns=ages["d0.md"]),
                entry("own-new.md", "y", date="2026-01-14", mtime_ns=ages["d999.md"]),
                entry("own-future.md", "z", date="2031-01-01", mtime_ns=ages["d999.md"]),
            )
        )
    )
    with engine.snapshot() as snapshot:
        tools = Tools(snapshot, now=NOW)
        return scores(Recency(strength)(QUERY, hits(engine, scores_of), tools))


@pytest.mark.parametrize(
    ("path", "factor"),
    [
        ("d0.md", 1.2),
        ("d6.md", 1.2),
        ("d8.md", 1.1),
        ("d29.md", 1.1),
        ("d31.md", 1),
        ("own-old.md", 1),
        ("own-new.md", 1.2),
        ("own-future.md", 1.2),
    ],
)
@pytest.mark.parametrize("score", [0.01, 0.1, 0.4, 0.6, 0.75])
def test_the_last_week_and_month_are_boosted_by_own_date_before_file_time(
    path: str, factor: float, score: float
) -> None:
    found = dated({"d999.md": score, path: score})
    assert found == {"d999.md": score, path: pytest.approx(score * factor)}


def test_nothing_is_boosted_where_all_are_recent() -> None:
    assert dated({"d0.md": 0.5, "d6.md": 0.4}) == {"d0.md": 0.5, "d6.md": 0.4}


def test_strength_scales_the_recency_boost() -> None:
    assert dated({"d0.md": 0.4, "d8.md": 0.4}, strength=0.5) == {
        "d0.md": pytest.approx(0.4 * 1.1),
        "d8.md": pytest.approx(0.4 * 1.05),
    }
    assert dated({"d0.md": 0.5}, strength=0) == {"d0.md": 0.5}
    with pytest.raises(SettingsError, match="strength"):
        build_stage(Recency, strength=-1)


def test_recency_can_change_the_first_result() -> None:
    assert list(dated({"d999.md": 0.55, "d0.md": 0.5})) == ["d0.md", "d999.md"]


@given(
    st.dictionaries(st.text("abc", min_size=1), st.floats(0, 1), min_size=1), st.floats(1.0, 5.0)
)
def test_the_same_factor_for_all_changes_nothing(
    given_scores: dict[str, float], factor: float
) -> None:
    before = hits_of(given_scores)
    assert boost(before, {hit.chunk.document: factor for hit in before}, by="test") == before


@given(st.lists(st.floats(0, 1), min_size=2), st.floats(1.0, 5.0))
def test_boosting_keeps_the_order_and_stays_within_1(values: list[float], factor: float) -> None:
    lifted = [boosted_score(value, factor) for value in sorted(values)]
    assert lifted == sorted(lifted)
    for value, each in zip(sorted(values), lifted, strict=True):
        assert value - 1e-12 <= each <= 1
        assert each <= value * factor + 1e-12


def test_a_boosted_high_score_stays_below_one() -> None:
    # 0.75 × 1.2 is 0.9; scores from 0.75 to 1 have the range from 0.9 to 1.
    assert [round(boosted_score(score, 1.2), 6) for score in (0.75, 0.8, 0.95, 1)] == [
        *(0.9, 0.92, 0.98, 1.0)
    ]


def test_the_current_collection_is_boosted() -> None:
    own = Hit(chunk("a"), 0.5)
    other = Hit(replace(chunk("b"), document=DocumentId("other", "b.md")), 0.55)
    found = CurrentCollection()(
        Query("x", current_collection="default"), (other, own), Tools(no_snapshot())
    )
    assert [hit.chunk.id for hit in found] == ["a", "b"]
    assert [hit.score for hit in found] == pytest.approx([0.6, 0.55])


GROUPS = {"a.md": 1, "b.md": 1, "c.md": 2, "d.md": 2, "e.md": 3}


def grouped(scores_of: dict[str, float], boost: float = 1.1) -> dict[str, float]:
    """Return the scores after communities: a and b are one, c and d another; e and f are alone."""
    engine = committed(
        Batch(entries=tuple(entry(f"{name}.md", name) for name in "abcdef")),
        Batch(communities={DocumentId("docs", path): group for path, group in GROUPS.items()}),
    )
    with engine.snapshot() as snapshot:
        return scores(Community(boost)(QUERY, hits(engine, scores_of), Tools(snapshot)))


def test_communities_of_the_best_hits_are_boosted() -> None:
    found = grouped({"a.md": 0.8, "e.md": 0.7, "f.md": 0.6, "b.md": 0.5, "c.md": 0.4, "d.md": 0.3})
    factors = {"a.md": 1.1, "b.md": 1.1}
    before = {"a.md": 0.8, "e.md": 0.7, "f.md": 0.6, "b.md": 0.5, "c.md": 0.4, "d.md": 0.3}
    assert found == {
        path: pytest.approx(score * factors.get(path, 1)) for path, score in before.items()
    }


def test_a_document_alone_in_its_community_is_not_boosted() -> None:
    assert grouped({"a.md": 0.8, "c.md": 0.5}) == {"a.md": 0.8, "c.md": 0.5}
    assert grouped({"a.md": 0.8, "b.md": 0.5}, boost=1) == {"a.md": 0.8, "b.md": 0.5}
