"""Spelling correction on a whole library."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.operations import ModeName
from tests.library.conftest import paths
from tests.making import library, write

PAGES = {
    "net.md": "# Network\n\nThe Wi-Fi key stands on the router.\n",
    "parts.md": "# Spare parts\n\nPS-4471 is the power supply of the printer.\n",
    "cables.md": "# Cables\n\nOrder them as PX9000.\n",
    "office.md": "# Office\n\nWrite an email to the kubernetes people.\n",
    "forms.md": "# Forms\n\nPick a colour in the dropdown.\n",
}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("wifi", "net.md"),
        ("wifi key", "net.md"),
        ("ps4471", "parts.md"),
        ("px-9000", "cables.md"),
        ("e-mail", "office.md"),
        ("drop down", "forms.md"),
        ("drop-down", "forms.md"),
    ],
)
@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
def test_a_word_is_found_in_the_other_spelling_without_abstention(
    tmp_path: Path, engine: str, mode: ModeName, text: str, path: str
) -> None:
    with library(write(tmp_path / "docs", PAGES), engine=engine) as lib:
        answer = lib.search(text, mode=mode)
        assert paths(answer)[0] == path
        assert answer.hits[0].score > 0.5
        assert not answer.notices
        query = answer.to_dict()["query"]
        assert query["text"] == text
        assert query["expanded_with"]
        without = lib.search(text, mode="keyword", settings={"search": {"skip": ["spelling"]}})
        assert path not in paths(without) or text == "wifi key"


def test_a_title_in_the_other_spelling_ranks_first(tmp_path: Path, engine: str) -> None:
    called = {f"note-{number}.md": f"# Note\n\nThe Wi-Fi of {number}.\n" for number in range(3)}
    pages = {**called, "z.md": "# Wi-Fi\n\nThis is about something else altogether.\n"}
    with library(write(tmp_path / "docs", pages), engine=engine) as lib:
        assert paths(lib.search("wifi"))[0] == "z.md"


def test_a_misspelt_word_has_one_notice_in_every_search(tmp_path: Path, engine: str) -> None:
    copies = {f"copy-{number}.md": "# Copy\n\nThe same text again.\n" for number in range(30)}
    with library(write(tmp_path / "docs", {**PAGES, **copies}), engine=engine) as lib:
        # One of thirty copies is left, so the search is repeated with more candidates.
        answer = lib.search("kuberntes the same text again", limit=5, mode="keyword")
        assert list(answer.notices) == [
            'No passage contains "kuberntes". Did you mean "kubernetes"?'
        ]
        assert answer.to_dict()["query"]["text"] == "kuberntes the same text again"


def test_a_word_that_was_removed_from_the_library_is_found_in_the_other_spelling(
    tmp_path: Path, engine: str
) -> None:
    folder = write(tmp_path / "docs", {**PAGES, "wifi.md": "# Radio\n\nAbout wifi.\n"})
    with library(folder, engine=engine) as lib:
        assert paths(lib.search("wifi", mode="keyword")) == ["wifi.md"]
        (folder / "wifi.md").unlink()
        assert paths(lib.search("wifi", mode="keyword")) == ["net.md"]


def test_a_name_with_an_apostrophe_is_found_without_it_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    pages = {"a.md": "# Zaatar\n\nThyme and sesame.\n", "b.md": "Bread with ras'elhanout.\n"}
    lib = library(write(tmp_path, pages))
    for query, path in (("za'atar", "a.md"), ("sesame za’atar", "a.md"), ("raselhanout", "b.md")):
        answer = lib.search(query, mode="keyword")
        assert [hit.chunk.path for hit in answer.hits] == [path], query
        assert not answer.notices


def test_a_typo_that_is_the_whole_query_is_corrected(tmp_path: Path) -> None:
    lib = library(write(tmp_path, {"a.md": "# Spices\n\nThyme and sesame.\n"}))
    answer = lib.search("sesme", mode="keyword")
    assert [hit.chunk.path for hit in answer.hits] == ["a.md"]
    assert answer.notices == ['No passage contains "sesme". Searching for "sesame"']
    notices = lib.search("sesme thyme", mode="keyword").notices
    assert notices == ['No passage contains "sesme". Did you mean "sesame"?']
