"""Units of a document: lists, procedures, tables, definition lists and code blocks."""

from __future__ import annotations

import pytest

from marklight.text.lines import DocumentLines
from marklight.text.units import units


def found(text: str) -> list[tuple[str, tuple[int, int]]]:
    page = DocumentLines(text)
    return [(unit.kind, unit.lines) for unit in units(page, (1, len(page)))]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Fruit:\n\n- a\n- b\n\n- c\n\nText", [("list", (3, 6))]),
        ("Fruit:\n- a\n  more\nlazy\n\nText", [("list", (2, 4))]),
        ("- a\n\n  paragraph\n\n  - nested\n\nText", [("list", (1, 5))]),
        ("1. a\n2. b\n\nText", [("procedure", (1, 2))]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nText", [("table", (1, 4))]),
        ("a | b\n\nText", []),
        ("Term\n: one\n: two\n\nOther\n: three\n\nText", [("definition list", (1, 6))]),
        ("Text\n\n```\n- a\n```\n\nText", [("code", (3, 5))]),
        ("<ul>\n<li>a</li>\n\n<li>b</li>\n</ul>\n\nText", [("list", (1, 5))]),
        ("- a\n\n* * *\n\nText", [("list", (1, 1))]),
        ("> - a\n> - b\n\nText", [("list", (1, 2))]),
        ("- a\n{% if x %}\n- b\n{% endif %}\n\nText", [("list", (1, 3))]),
        ("Just text.\n\nMore text.", []),
    ],
)
def test_units_end_with_their_last_line(text: str, expected: object) -> None:
    assert found(text) == expected


def test_a_procedure_goes_on_after_code_that_is_not_indented() -> None:
    text = "1. Run:\n\n```\nmake\n```\n\n2. Wait.\n\nThen rest."
    assert found(text) == [("procedure", (1, 7))]


def test_a_second_procedure_is_another_unit() -> None:
    text = "1. a\n2. b\n\nOr:\n\n1. c\n2. d"
    assert found(text) == [("procedure", (1, 2)), ("procedure", (6, 7))]


def test_an_element_without_a_closing_tag_ends_with_the_section() -> None:
    assert found("<table>\n<tr>\n\nText\n\n") == [("table", (1, 4))]
