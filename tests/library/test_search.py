"""Search through the public API: collections, filters, modes, budgets, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import ModelError, UsageError
from marklight.text.tokens import count_tokens
from tests.library.conftest import paths
from tests.making import library, write


def test_a_search_can_be_limited_to_a_collection(tmp_path: Path, engine: str) -> None:
    write(
        tmp_path / "all",
        {
            "README.md": "# Outer\n\nthe outer readme speaks of apples\n",
            "sub/README.md": "# Inner\n\napples, and how to pick ripe pears from a ladder, fill this readme\n",
        },
    )
    with library(
        tmp_path / "all", engine=engine, collections={"outer": ".", "inner": "sub"}
    ) as lib:
        lib.index()
        answer = lib.search("apples readme")
        assert sorted((hit.chunk.collection, hit.chunk.path) for hit in answer.hits) == [
            ("inner", "README.md"),
            ("outer", "README.md"),
        ]
        only = lib.search("apples readme", collection="inner")
        assert [hit.chunk.collection for hit in only.hits] == ["inner"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "deploy/**"}, {"deploy/rollback.md", "deploy/scale.md"}),
        ({"exclude": "deploy/scale.md"}, {"auth.md", "deploy/rollback.md", "notes.txt"}),
        ({"tag": "security"}, {"auth.md"}),
        ({"where": {"status": "draft"}}, {"auth.md"}),
        ({"where": ["status=draft"]}, {"auth.md"}),
    ],
)
def test_filters_are_applied_before_ranking(
    folder: Path, engine: str, options: dict[str, Any], expected: set[str]
) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search(
            "token deployment replicas espresso", limit=100, min_confidence=0.0, **options
        )
        assert set(paths(answer)) == expected


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "empty"),
        ("  \n", {}, "empty"),
        ("x", {"limit": 0}, "1 to 100"),
        ("x", {"limit": 101}, "1 to 100"),
        ("x", {"limit": 2.5}, "an integer"),
        ("x", {"context": 1.5}, "an integer"),
        ("x", {"max_tokens": "5"}, "an integer"),
        ("x", {"max_tokens": 2.5}, "an integer"),
        ("x", {"path": 1}, "must be a list"),
        ("x", {"path": ""}, "A filter is empty"),
        ("x", {"tag": ["a", ""]}, "A filter is empty"),
        ("x", {"exclude": " "}, "A filter is empty"),
        ("x", {"after": b"2026"}, "must be a string"),
        ("x", {"tag": ["x"] * 501}, "at most 500"),
        ("x", {"where": dict.fromkeys(range(501), "x")}, "at most 500"),
        ("x", {"settings": 5}, "an object"),
        ("x", {"settings": {1: 2}}, "cannot change 1"),
        ("x", {"settings": {"search": {1: 2}}}, "search.1"),
        ("x", {"mode": "psychic"}, "hybrid"),
        ("x", {"after": "someday"}, "2026-01-31"),
        ("x", {"min_confidence": 1.5}, "0 to 1"),
        ("x", {"max_tokens": 0}, "1 to 1000000"),
        ("x", {"where": "status"}, "KEY=VALUE"),
    ],
)
def test_invalid_parameters_are_errors(
    folder: Path, text: str, options: dict[str, Any], message: str
) -> None:
    with library(folder) as lib, pytest.raises(UsageError, match=message):
        lib.search(text, **options)


@pytest.mark.parametrize(
    "text",
    [
        "C++",
        "a-b/c.d",
        '"quoted',
        "AND OR NOT",
        "*",
        "🙂",
        "'; DROP TABLE documents; --",
        "(((",
        "x" * 100_000,
    ],
)
def test_no_punctuation_breaks_a_query(folder: Path, engine: str, text: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.search(text)
        lib.search(text, mode="keyword")
        lib.search(text, mode="code")


def test_an_answer_within_a_token_budget_has_a_notice_about_omissions(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("token deployment replicas", max_tokens=20, min_confidence=0.0)
        assert 0 < sum(count_tokens(hit.chunk.text) for hit in answer.hits) <= 20
        assert any("20 tokens" in notice for notice in answer.notices)


@pytest.mark.parametrize("given", [{"search": {"skip": ["expand"]}}, {"search.skip": ["expand"]}])
def test_settings_of_a_call_are_added_to_those_of_the_library(
    folder: Path, given: dict[str, Any]
) -> None:
    for own in ({"search": {"fuse": "reciprocal"}}, {"search.fuse": "reciprocal"}):
        with library(folder, **own) as lib:
            steps = [each.stage for each in lib.search("token", explain=True, settings=given).steps]
            assert "expand" not in steps
            assert "fuse" in steps
            why = lib.search("token", explain=True, settings=given).to_dict()["results"][0]["why"]
            assert "reciprocal" in [each["stage"] for each in why]


def test_without_a_model_keyword_search_answers(folder: Path, engine: str) -> None:
    with marklight.open(folder, {"engine": engine, "model": {"name": "none"}}) as lib:
        hybrid = lib.search("token deployment replicas espresso", limit=20)
        words = lib.search("token deployment replicas espresso", limit=20, mode="keyword")
        assert [(hit.chunk.id, hit.score) for hit in hybrid.hits] == [
            (hit.chunk.id, hit.score) for hit in words.hits
        ]
        assert not hybrid.notices
        with pytest.raises(UsageError, match="Semantic search needs a model"):
            lib.search("token", mode="semantic")


def test_keyword_search_works_if_the_model_cannot_be_loaded(folder: Path, engine: str) -> None:
    with marklight.open(folder, {"engine": engine, "model": {"name": "no such model"}}) as lib:
        assert paths(lib.search("espresso machine", mode="keyword"))[0] == "notes.txt"
        with pytest.raises(ModelError, match="no such model"):
            lib.search("espresso machine")
        assert "no such model" in lib.status()["model_problem"]


def test_an_empty_folder_has_a_notice(tmp_path: Path) -> None:
    with library(tmp_path) as lib:
        answer = lib.search("anything")
        assert not answer.hits
        assert any("no documents" in notice for notice in answer.notices)


def test_every_mode_reports_the_number_of_embedded_passages(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        for mode in ("hybrid", "semantic", "keyword", "code"):
            counts = lib.search("tokens", mode=mode).to_dict()["index"]
            assert counts["embedded"] == counts["chunks"] > 0
            assert counts["pending"] == 0
    with marklight.open(folder, {"model": {"name": "none"}}) as lib:
        assert lib.search("tokens").to_dict()["index"]["pending"] == 0
        assert lib.status()["pending"] == 0


def test_a_lexical_index_of_an_earlier_version_is_rebuilt_with_one_notice(
    folder: Path, tmp_path: Path
) -> None:
    engine = f"file:{tmp_path / 'index'}"
    with library(folder, engine=engine) as lib:
        assert not lib.index().notices
        assert not lib.search("token").notices
    (stamp,) = tmp_path.glob("index/lexical/*/marklight.json")
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "analyzer": "earlier"}))
    with library(folder, engine=engine) as lib:
        first, second = lib.search("token"), lib.search("token")
        assert paths(first) == paths(second) != []
        assert [notice for notice in first.notices if "lexical index was rebuilt" in notice]
        assert not second.notices


def test_an_unknown_keyword_is_an_error(folder: Path) -> None:
    with library(folder) as lib, pytest.raises(UsageError, match="Did you mean 'limit'"):
        lib.search("x", limits=5)  # type: ignore[call-arg]


def test_where_a_search_abstains_the_closest_passages_are_apart_from_the_results(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("token", min_confidence=1.0)
        assert not answer.hits
        assert answer.abstained
        shown = lib.search("token", min_confidence=0.0)
        assert [hit.chunk.id for hit in answer.nearest] == [hit.chunk.id for hit in shown.hits]
        entry = answer.to_dict()
        assert entry["results"] == []
        assert [one["path"] for one in entry["nearest"]] == paths(shown)
        assert entry["nearest"][0]["levels"]
        assert not shown.nearest
        assert len(lib.search("token", min_confidence=1.0, limit=1).nearest) == 1


def test_an_answer_iterates_over_its_hits_and_is_false_without_any(folder: Path) -> None:
    with library(folder) as lib:
        answer = lib.search("tokens", mode="keyword", min_confidence=0)
        assert answer
        assert (len(answer), [*answer]) == (len(answer.hits), [*answer.hits])
        assert not lib.search("zyxwvut", mode="keyword")


def test_a_result_has_a_verdict_if_scores_are_calibrated(folder: Path) -> None:
    with library(folder) as lib:
        lib.index()
        answer = lib.search("token", mode="keyword")
        entry = answer.to_dict()
        assert entry["calibrated"]
        for hit, result in zip(answer.hits, entry["results"], strict=True):
            expected = "answers" if hit.score >= 0.5 else "mentions"  # all contain the only term
            assert result["verdict"] == expected
        other = lib.search("什么是访问令牌 token", mode="keyword").to_dict()
        assert not other["calibrated"]
        assert {one["verdict"] for one in (*other["results"], *other["nearest"])} == {None}


def test_there_is_no_closest_passage_where_no_passage_matches(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("token", path="missing/**")
        assert answer.abstained
        assert not answer.nearest
