"""Filters that stand in the question itself, asked of a whole library."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.errors import UsageError
from tests.library.conftest import paths
from tests.making import library


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
def test_words_of_a_question_filter(
    folder: Path, engine: str, text: str, expected: set[str]
) -> None:
    with library(folder, engine=engine) as lib:
        for mode in ("hybrid", "semantic", "keyword"):
            answer = lib.search(text, mode=mode, limit=100, min_confidence=0.0)
            assert set(paths(answer)) <= expected
            if mode == "hybrid":
                assert set(paths(answer)) == expected
            assert answer.to_dict()["query"]["text"] == text


def test_a_question_finds_nothing_outside_of_the_path_it_was_given(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        text = "token replicas path:deploy/**"
        outside = lib.search(text, path="auth.md", min_confidence=0.0)
        assert not outside.hits
        assert outside.abstained is not None
        assert outside.abstained.endswith("path auth.md, path deploy/**")
        inside = lib.search(text, path="*.md", min_confidence=0.0)
        assert set(paths(inside)) <= {"deploy/scale.md", "deploy/rollback.md"}
        assert inside.hits


def test_an_empty_answer_names_the_filters(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search('"token access" tag:security', after="2020")
        assert not answer.hits
        assert answer.abstained is not None
        for named in ('"token access"', "tag security", "after 2020"):
            assert named in answer.abstained


def test_what_was_left_out_is_told(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        answer = lib.search("token -refresh")
        assert any("-refresh" in notice for notice in answer.notices)


def test_a_date_that_is_none_is_refused_in_the_question_too(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib, pytest.raises(UsageError, match="2026-02-31"):
        lib.search("token after:2026-02-31")
