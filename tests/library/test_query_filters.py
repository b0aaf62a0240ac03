"""Filters inside a query, on a whole library."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.errors import UsageError
from tests.library.conftest import paths
from tests.making import library, write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"more load"', {"deploy/scale.md"}),
        ('"MORE replicas" token', {"deploy/scale.md"}),
        ("token deployment replicas espresso -replicas -espresso", {"auth.md", "deploy/rollback.md"}),
        ("tokens tag:security", {"auth.md"}),
        ("replicas path:deploy/** -undo", {"deploy/scale.md"}),
        ("token replicas status:draft", {"auth.md"}),
        ("tag:security", {"auth.md"}),
    ],
)  # fmt: skip
def test_operators_in_a_query_filter(
    folder: Path, engine: str, text: str, expected: set[str]
) -> None:
    with library(folder, engine=engine) as lib:
        for mode in ("hybrid", "semantic", "keyword"):
            answer = lib.search(text, mode=mode, limit=100, min_confidence=0.0)
            assert set(paths(answer)) <= expected
            if mode == "hybrid":
                assert set(paths(answer)) == expected
            assert answer.to_dict()["query"]["text"] == text


def test_a_path_filter_in_a_query_excludes_other_paths(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        text = "token replicas path:deploy/**"
        outside = lib.search(text, path="auth.md", min_confidence=0.0)
        assert not outside.hits
        assert outside.abstained is not None
        assert outside.abstained.endswith("path:auth.md, path:deploy/**")
        inside = lib.search(text, path="*.md", min_confidence=0.0)
        assert set(paths(inside)) <= {"deploy/scale.md", "deploy/rollback.md"}
        assert inside.hits


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("replicas tag:security status:final", 'No passage matches status:final'),
        ("replicas tag:secruity", 'No passage matches tag:secruity. Did you mean "security"?'),
        ("replicas status:daft", 'No passage matches status:daft. Did you mean "draft"?'),
        ("replicas title:back", 'No passage matches title:back. Did you mean "rolling back"?'),
        ("replicas path:Deploy/**", 'No passage matches path:Deploy/**. Did you mean "deploy"?'),
        ("replicas path:rollback", 'No passage matches path:rollback. Did you mean "deploy/rollback.md"?'),
        ("replicas path:**/*.rst", "No passage matches path:**/*.rst"),
        ("replicas after:2990", "No passage matches after:2990"),
        ('"token access" tag:security', 'No passage contains "token access"'),
        ("replicas tag:nothing status:none", "No passage matches tag:nothing. No passage matches status:none"),
        ("replicas tag:security path:deploy/**", "No passage matches all filters: path:deploy/**, tag:security"),
    ],
)  # fmt: skip
def test_an_empty_answer_names_the_filter_that_causes_it(
    folder: Path, engine: str, text: str, why: str
) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search(text)
        assert not answer.hits
        assert answer.abstained == why


def test_an_abstention_names_the_filters(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("replicas tag:security", mode="keyword", after="2020")
        assert answer.abstained == (
            "No passage matches the query with these filters: tag:security, after:2020"
        )


def test_a_query_of_filters_only_never_abstains(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("status:draft", explain=True)
        assert set(paths(answer)) == {"auth.md"}
        assert {why.value for hit in answer.hits for why in hit.why if why.stage == "answer"} == {1}


def test_a_name_with_a_dash_is_not_a_filter(folder: Path, engine: str) -> None:
    write(folder, {"hints.md": "# Hints and -annotations\n\nBoth are hints.\n"})
    with library(folder, engine=engine) as lib:
        for text in ("Hints and -annotations", "hints and -ANNOTATIONS"):
            answer = lib.search(text)
            assert paths(answer)[0] == "hints.md"
            assert not answer.notices
        left_out = lib.search("hints -annotations", min_confidence=0.0)
        assert "hints.md" not in paths(left_out)


def test_excluded_terms_have_a_notice(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("token -refresh")
        assert any("-refresh" in notice for notice in answer.notices)


def test_an_invalid_date_in_a_query_is_an_error(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib, pytest.raises(UsageError, match="2026-02-31"):
        lib.search("token after:2026-02-31")
