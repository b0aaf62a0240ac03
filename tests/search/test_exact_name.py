"""Literals of a query: passages that have its identifiers, host names, paths and versions come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.search.exact import literals

CODE = "# {title}\n\nSome text about {title}.\n\n```python\n{code}\n```\n"
PAGES = {
    "users.md": ("Accounts", "def get_user_by_id(number): ..."),
    "parts.md": ("Parts", "get = user + by + id"),
    **{f"many{number}.md": (f"Page {number}", "fetchAll()") for number in range(9)},
}


@pytest.fixture
def lib(tmp_path: Path) -> marklight.Library:
    for path, (title, code) in PAGES.items():
        (tmp_path / path).write_text(CODE.format(title=title, code=code))
    library = marklight.open(tmp_path, {"model": {"name": "none"}})
    library.index()
    return library


def raised(lib: marklight.Library, text: str, **options: Any) -> list[str]:
    """Return the documents whose score the stage has set."""
    hits = lib.search(text, min_confidence=0, limit=20, **options).hits
    stages = {hit.chunk.path: [entry.stage for entry in hit.why] for hit in hits}
    return sorted(path for path, names in stages.items() if "exact_name" in names)


@pytest.mark.parametrize(
    "text", ["getUserById", "how do I call get_user_by_id", "GetUserById()", "Get_User_By_Id"]
)
def test_a_name_finds_code_in_any_convention(lib: marklight.Library, text: str) -> None:
    answer = lib.search(text)
    assert answer.hits[0].chunk.path == "users.md"
    assert answer.hits[0].score >= 1 / 3


@pytest.mark.parametrize(
    "text",
    [
        "entitler.example.org",
        "entitler.example.org owner team channel",
        "who owns v2.24.0?",
        "E0502 team",
    ],
)
def test_a_literal_is_not_outvoted_by_the_other_words(tmp_path: Path, text: str) -> None:
    literal = "Served at entitler.example.org since v2.24.0, code E0502."
    (tmp_path / "host.md").write_text(f"# Entitlements\n\n{literal}\n")
    for number in range(12):
        words = "The owner team of this channel is listed by team. " * (number + 2)
        (tmp_path / f"team{number}.md").write_text(f"# Owner of team channel {number}\n\n{words}\n")
    with marklight.open(tmp_path, {"model": {"name": "none"}}) as library:
        library.index()
        answer = library.search(text, mode="hybrid")
    assert answer.hits[0].chunk.path == "host.md"
    assert answer.hits[0].score >= 1 / 3


@pytest.mark.parametrize(
    "text", ["3.5 hours", "5kg flour", "the 3rd party", "well-known C++ words"]
)
def test_quantities_and_ordinals_are_no_literals(text: str) -> None:
    assert literals(text) == []


def test_only_the_whole_name_counts(lib: marklight.Library) -> None:
    assert raised(lib, "please explain getUserByIdentity") == []


def test_a_name_that_many_passages_have_changes_nothing(lib: marklight.Library) -> None:
    assert raised(lib, "what does fetchAll mean") == []


def test_words_of_prose_and_other_modes_are_not_concerned(lib: marklight.Library) -> None:
    assert raised(lib, "get user by id") == []
    assert raised(lib, "getUserById", mode="keyword") == []


def test_the_stage_can_be_switched_off(lib: marklight.Library) -> None:
    off = {"search": {"skip": ["exact_name"]}}
    assert raised(lib, "what is getUserById for", settings=off) == []


def test_filters_apply(lib: marklight.Library) -> None:
    assert raised(lib, "what is getUserById for", exclude=["users.md"]) == []
