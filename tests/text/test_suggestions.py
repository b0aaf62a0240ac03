"""Suggestions for names that do not exist."""

from __future__ import annotations

import pytest

from marklight.text.suggestions import (
    paths_with_same_end,
    paths_with_words,
    similar_keys,
    similar_paths,
)

PATHS = [
    *("guide/auth.md", "guide/deployment.md", "guide/rolling-back.md", "guide/license.md"),
    *("notes/2026-03-01.md", "README.md", "api/index.md", "cli/index.md"),
    *("guide/index.md", "search/index.md"),
]


@pytest.mark.parametrize(
    ("name", "suggestions"),
    [
        ("guide/auht.md", ["guide/auth.md"]),
        ("handbook/auth.md", ["guide/auth.md"]),
        ("guide/Deploy.md", ["guide/deployment.md"]),
        ("guide/rollingback.md", ["guide/rolling-back.md"]),
        ("readme.txt", ["README.md"]),
        # Equal extension and folder, but another name.
        ("guide/nonsense.md", []),
        ("nonsense.md", []),
        ("guide/x.md", []),
        # Four have this name: only the folder distinguishes them.
        ("guides/index.md", ["guide/index.md"]),
        ("entirely/else/index.md", []),
    ],
)
def test_only_similar_file_names_are_suggested(name: str, suggestions: list[str]) -> None:
    assert similar_paths(name, PATHS) == suggestions


def test_at_most_three_are_suggested_most_similar_first() -> None:
    paths = [f"notes/chapter-{number}.md" for number in range(5)]
    assert similar_paths("notes/chapter-3x.md", paths)[0] == "notes/chapter-3.md"
    assert len(similar_paths("notes/chapter-3x.md", paths)) == 3


def test_a_key_with_two_similar_names_is_suggested_once() -> None:
    called = {"token-refresh": "token-refresh", "Token refresh": "token-refresh", "Undo": "undo"}
    assert similar_keys("Token Refersh", called) == ["token-refresh"]
    assert similar_keys("token-refersh", called) == ["token-refresh"]
    assert similar_keys("nonsense", called) == []


@pytest.mark.parametrize(
    ("name", "suggestions"),
    [
        ("Priya", ["people/priya.raman.md", "notes/2026-01 Priya, budget.md"]),
        ("raman priya", ["people/priya.raman.md"]),
        ("notes/budget.md", ["notes/2026-01 Priya, budget.md"]),
        ("priy", []),
        ("people", []),
        ("...", []),
    ],
)
def test_files_whose_name_has_all_the_words_are_suggested(
    name: str, suggestions: list[str]
) -> None:
    paths = ["notes/2026-01 Priya, budget.md", "people/priya.raman.md", "people/tomasz.md"]
    assert paths_with_words(name, paths) == suggestions


@pytest.mark.parametrize(
    ("name", "suggestions"),
    [
        ("docs/tutorial/tasks.md", ["tutorial/tasks.md"]),
        ("/home/me/docs/Tutorial/TASKS", ["tutorial/tasks.md"]),
        ("tasks.txt", ["tasks.md", "tutorial/tasks.md", "de/tutorial/x/tasks.md"]),
        ("tutorial/task.md", []),
    ],
)
def test_paths_with_the_same_end_are_suggested(name: str, suggestions: list[str]) -> None:
    paths = ["tasks.md", "tutorial/tasks.md", "de/tutorial/x/tasks.md", "tutorial/other.md"]
    assert paths_with_same_end(name, paths) == suggestions
