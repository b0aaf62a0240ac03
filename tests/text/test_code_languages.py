"""Names of programming languages in code fences."""

from __future__ import annotations

import pytest

from marklight.text.code_languages import _NAMES, language_names


@pytest.mark.parametrize(
    ("given", "other"),
    [("python", "py"), ("PY", "python"), ("js", "javascript"), ("sh", "bash"), ("yml", "yaml")],
)
def test_a_language_is_found_by_its_other_names(given: str, other: str) -> None:
    assert other in language_names(given)


def test_a_name_that_is_not_listed_is_a_language_of_its_own() -> None:
    assert language_names("Mermaid") == ("mermaid",)


def test_no_name_belongs_to_two_languages() -> None:
    names = _NAMES.split()
    assert len(names) == len(set(names))


def test_all_names_of_a_language_are_aliases_of_one_lexer_of_pygments() -> None:
    lexers = pytest.importorskip("pygments.lexers")
    known = [set(aliases) for _, aliases, *_ in lexers.get_all_lexers()]
    for line in _NAMES.splitlines():
        group = set(line.split())
        assert len(group) > 1
        assert any(group <= aliases for aliases in known), line
