"""Titles of documents and sections, and the passages that they refer to."""

from __future__ import annotations

from marklight.engines.relational.documents import HeadedPassage, TitleEntry, title_entries
from marklight.text.analyzer import normalize


def test_titles_are_compared_without_case_accents_and_extra_spaces() -> None:
    assert normalize("  Über\tCafé\n ") == "uber cafe"


def test_a_document_has_its_title_aliases_and_file_names() -> None:
    found = title_entries(
        "food/Menü.v2.md", "Café", ["Coffee", "café", " "], [HeadedPassage(0, (), ())]
    )
    assert found == [
        TitleEntry(name, 0, 0, 1.0) for name in ("cafe", "coffee", "menu.v2", "menu.v2.md")
    ]


def test_a_document_without_passages_has_no_titles() -> None:
    assert title_entries("a.md", "A", [], []) == []


def test_a_section_contains_the_passages_below_its_heading() -> None:
    passages = [
        HeadedPassage(3, ("B",), ()),
        HeadedPassage(0, ("A",), ()),
        HeadedPassage(1, ("A", "Notes"), ()),
        HeadedPassage(2, ("A",), ("Small", "Tiny")),
        HeadedPassage(4, ("A", "Notes"), ()),
    ]
    found = [each for each in title_entries("x.md", "", [], passages) if each.score < 1]
    assert sorted(found) == [
        TitleEntry("a", 0, 2, 0.5),
        TitleEntry("a", 4, 4, 0.5),
        TitleEntry("b", 3, 3, 0.5),
        TitleEntry("notes", 1, 1, 0.5),
        TitleEntry("notes", 4, 4, 0.5),
        TitleEntry("small", 2, 2, 0.5),
        TitleEntry("tiny", 2, 2, 0.5),
    ]
