"""Names of documents and sections, and the passages that they mean."""

from __future__ import annotations

from marklight.engines.calling import Calling, Headed, callings
from marklight.text import normalize


def test_a_name_is_compared_without_case_accents_and_blanks() -> None:
    assert normalize("  Über\tCafé\n ") == "uber cafe"


def test_a_document_is_called_by_its_title_its_aliases_and_its_file() -> None:
    found = callings("food/Menü.v2.md", "Café", ["Coffee", "café", " "], [Headed(0, (), ())])
    assert found == [
        Calling(name, 0, 0, 1.0) for name in ("cafe", "coffee", "menu.v2", "menu.v2.md")
    ]


def test_a_document_without_passages_has_no_name() -> None:
    assert callings("a.md", "A", [], []) == []


def test_a_section_reaches_as_far_as_its_heading_stands_above() -> None:
    passages = [
        Headed(3, ("B",), ()),
        Headed(0, ("A",), ()),
        Headed(1, ("A", "Notes"), ()),
        Headed(2, ("A",), ("Small", "Tiny")),
        Headed(4, ("A", "Notes"), ()),
    ]
    found = [each for each in callings("x.md", "", [], passages) if each.score < 1]
    assert sorted(found) == [
        Calling("a", 0, 2, 0.5),
        Calling("a", 4, 4, 0.5),
        Calling("b", 3, 3, 0.5),
        Calling("notes", 1, 1, 0.5),
        Calling("notes", 4, 4, 0.5),
        Calling("small", 2, 2, 0.5),
        Calling("tiny", 2, 2, 0.5),
    ]
