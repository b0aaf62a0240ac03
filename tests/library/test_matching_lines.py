"""The matching lines of listed documents: complete for a phrase, those with the most words otherwise."""

from __future__ import annotations

import random
import re
from pathlib import Path

from marklight.results import ListedDocument, Listing
from marklight.surfaces.mcp.rendering import listing_text
from marklight.surfaces.render import listing_as
from marklight.text.tokens import fits
from tests.making import library, write

PAGES = {
    "meetings.md": (
        "---\ntitle: Meetings\n---\n# Meetings\n\nIntroduction.\n\n## Every week\n\n"
        "The weekly company meeting is on Monday.\nIt is led by Ada, who also runs the weekly\ncompany meeting of Berlin.\n\n"
        "## Every month\n\n- A meeting of the company's board.\n"
    ),
    "travel.md": "# Travel\n\nBook trips a week before the meeting.\n\nThe company pays.\n",
}
WORDS = "alpha beta gamma delta epsilon".split()


def lines(listed: ListedDocument) -> list[int]:
    return [each.line for each in listed.matching_lines or ()]


def by_path(listing: Listing) -> dict[str, list[int]]:
    return {each.document.path: lines(each) for each in listing.documents}


def test_a_phrase_matches_the_lines_in_which_it_begins(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        [found] = lib.list_documents('"weekly company meeting"', lines=True).documents
        assert [each.section for each in found.matching_lines or ()] == ["Every week"] * 2
        assert (lines(found), found.more_lines) == ([10, 11], 0)


def test_words_match_the_lines_with_all_of_them_in_any_inflection(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        found = by_path(lib.list_documents("companies meetings", lines=True, mode="keyword"))
        assert found == {"meetings.md": [10, 12, 16], "travel.md": [3, 5]}


def test_where_no_line_has_all_words_the_first_few_are_shown_and_the_others_counted(
    tmp_path: Path,
) -> None:
    page = "# Rivers\n\nLakes.\n\n" + "A river.\n\n" * 9
    with library(write(tmp_path, {"a.md": page})) as lib:
        [found] = lib.list_documents("river lake", lines=True, mode="keyword").documents
        assert (lines(found), found.more_lines) == ([1, 3, 5], 8)
        assert "… and 8 more lines" in listing_as(
            lib.list_documents("river lake", lines=True), "text"
        )


def test_the_lines_of_a_phrase_equal_those_of_a_scan_of_all_files(tmp_path: Path) -> None:
    rng = random.Random(4)
    pages = {
        f"{number:02}.md": "# Page\n\n"
        + "".join(f"{' '.join(rng.choices(WORDS, k=6))}.\n\n" for _ in range(rng.randrange(12)))
        for number in range(30)
    }
    with library(write(tmp_path, pages)) as lib:
        for _ in range(15):
            phrase = " ".join(rng.choices(WORDS, k=rng.choice((2, 3))))
            pattern = re.compile(r"\b(?=" + r"\W+".join(phrase.split()) + r"\b)")
            scanned = {
                path: sorted({text.count("\n", 0, at.start()) + 1 for at in pattern.finditer(text)})
                for path, text in pages.items()
            }
            found = lib.list_documents(f'"{phrase}"', lines=True, mode="keyword")
            assert by_path(found) == {path: rows for path, rows in scanned.items() if rows}


def test_the_json_has_the_lines_only_if_they_are_requested(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        [row] = lib.list_documents('"company pays"', lines=True).to_dict()["documents"]
        assert row["matching_lines"] == [
            {"line": 5, "text": "The company pays.", "section": "Travel"}
        ]
        [row] = lib.list_documents('"company pays"').to_dict()["documents"]
        assert not {"matching_lines", "more_lines"} & row.keys()


def test_lines_are_listed_below_their_section(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        listing = lib.list_documents('"meeting"', lines=True, mode="keyword", sort="path")
    text = listing_as(listing, "text").splitlines()
    assert text[1:5] == [
        "  § Every week",
        "  :10  The weekly company meeting is on Monday.",
        "  :12  company meeting of Berlin.",
        "  § Every month",
    ]
    assert text[-1] == "2 documents, 3 passages, 4 lines"
    assert "\n  - 10: The weekly company meeting" in listing_as(listing, "md")
    assert "\n§ Every week\n> 10: The weekly company meeting is on Monday.\n" in listing_text(
        listing
    )


def test_an_assistant_reads_the_numbers_of_lines_for_which_there_is_no_room(tmp_path: Path) -> None:
    pages = {f"{number}.md": "# Page\n\n" + "The river is long.\n\n" * 20 for number in range(5)}
    with library(write(tmp_path, pages)) as lib:
        listing = lib.list_documents('"river"', lines=True, mode="keyword")
    text = listing_text(listing, tokens=400)
    assert fits(text, 400)
    assert text.startswith("5 documents, 5 passages, 100 lines on this page")
    assert all(f"[{rank}] " in text for rank in range(1, 6))
    assert "more lines: " in text
