"""Names of programming languages in code fences."""

from __future__ import annotations

import pytest

from marklight.text.analyzer import data_lines
from marklight.text.markdown import language_names

_LANGUAGES = [line.split() for line in data_lines("code_languages.txt")]


@pytest.mark.parametrize(
    ("given", "other"),
    [("python", "py"), ("PY", "python"), ("js", "javascript"), ("sh", "bash"), ("yml", "yaml")],
)
def test_a_language_is_found_by_its_other_names(given: str, other: str) -> None:
    assert other in language_names(given)


def test_a_name_that_is_not_listed_is_a_language_of_its_own() -> None:
    assert language_names("Mermaid") == ("mermaid",)


def test_no_name_belongs_to_two_languages() -> None:
    names = [name for group in _LANGUAGES for name in group]
    assert len(names) == len(set(names))


def test_all_names_of_a_language_are_aliases_of_one_lexer_of_pygments() -> None:
    lexers = pytest.importorskip("pygments.lexers")
    known = [set(aliases) for _, aliases, *_ in lexers.get_all_lexers()]
    for group in _LANGUAGES:
        assert len(group) > 1
        assert any(aliases.issuperset(group) for aliases in known), group
