"""List all documents that match a query: complete, counted, sorted and paginated."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import marklight
from marklight.errors import UsageError
from marklight.results import Listing
from tests.making import library, write

PAGES = {
    "a/deploy.md": "---\ntitle: Deploy\ndate: 2026-01-02\ntags: [ops]\n---\n# Deploy\n\nRoll back a release.\n",
    "a/release.md": "---\ndate: 2026-03-04\n---\n# Release\n\nEvery release has notes.\n\n## Rollback\n\nRoll it back.\n",
    "b/espresso.md": "---\ndate: 2025-05-06\ntags: [kitchen]\n---\n# Espresso\n\nGrind the beans.\n",
}


NAMES = [
    f"{first}{last}"
    for first in ("ba", "de", "fi", "go", "hu")
    for last in ("bel", "dar", "fin", "gor", "lum", "mak")
]


def paths(listing: Listing) -> list[str]:
    return [each.document.path for each in listing.documents]


def test_a_document_is_listed_if_it_contains_every_word_of_the_query(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        found = lib.list_documents("roll back the releases", mode="keyword", min_confidence=1)
        assert sorted(paths(found)) == ["a/deploy.md", "a/release.md"]
        assert (found.total, found.abstained) == (2, None)
        assert not lib.list_documents("roll beans", mode="keyword", min_confidence=1).documents


def test_an_unfinished_last_word_is_completed_if_requested(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        unfinished = "roll back the rele"
        assert not lib.list_documents(unfinished, mode="keyword", min_confidence=1).documents
        found = lib.list_documents(unfinished, prefix=True, mode="keyword", min_confidence=1)
        assert sorted(paths(found)) == ["a/deploy.md", "a/release.md"]


def test_without_a_query_all_documents_that_match_the_filters_are_listed(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        assert paths(lib.list_documents()) == sorted(PAGES)
        assert paths(lib.list_documents(tag="kitchen")) == ["b/espresso.md"]
        assert paths(lib.list_documents(path="a/**", after="2026-02")) == ["a/release.md"]
        assert paths(lib.list_documents(sort="date")) == [
            "a/release.md",
            "a/deploy.md",
            "b/espresso.md",
        ]


def test_a_query_of_filters_only_lists_by_the_filters(tmp_path: Path) -> None:
    pages = {**PAGES, "c.md": "---\nstatus: draft\n---\n# C\n\nNothing to see.\n"}
    with library(write(tmp_path, pages)) as lib:
        assert paths(lib.list_documents("tag:ops")) == ["a/deploy.md"]
        assert paths(lib.list_documents("status:draft")) == ["c.md"]
        assert paths(lib.list_documents('"roll it back"')) == ["a/release.md"]


def test_the_count_is_of_all_pages(tmp_path: Path) -> None:
    pages = {f"{number:02}.md": f"# Note {number}\n\nAbout rivers.\n" for number in range(31)}
    with library(write(tmp_path, pages)) as lib:
        listed: list[str] = []
        for page in (1, 2, 3, 4):
            part = lib.list_documents("rivers", limit=10, page=page)
            assert (part.total, part.pages, part.passages) == (31, 4, 31)
            assert part.to_dict()["documents"][0]["rank"] == len(listed) + 1
            listed += paths(part)
        assert sorted(listed) == sorted(pages)
        beyond = lib.list_documents("rivers", limit=10, page=5)
        assert (beyond.total, beyond.documents, beyond.abstained) == (31, (), None)


def test_words_of_shared_text_count_if_they_occur_nowhere_else(tmp_path: Path) -> None:
    footer = "\n\nEdit this page in the wiki and tell the editors about mistakes.\n"
    pages = {f"{at}.md": f"# Note {at}\n\nAbout {word}.{footer}" for at, word in enumerate(NAMES)}
    pages["wiki.md"] = "# Wiki\n\nHow the wiki is run.\n"
    with library(write(tmp_path, pages)) as lib:
        assert paths(lib.list_documents("wiki", mode="keyword", min_confidence=1)) == ["wiki.md"]
        shared = lib.list_documents("editors", mode="keyword", min_confidence=1)
        assert shared.total == len(NAMES)
        assert "These words occur only in text that many documents share" in shared.notices
        assert lib.list_documents('"tell the editors"').total == len(NAMES)


def test_deleted_files_are_not_listed(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        lib.index()
        (tmp_path / "a/deploy.md").unlink()
        assert lib.list_documents("release", refresh=False).total == 1


def test_changed_files_are_listed_as_they_are_now(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        assert lib.list_documents("release").total == 2
        write(tmp_path, {"b/espresso.md": "# Espresso\n\nThe release of aroma.\n"})
        assert lib.list_documents("release").total == 3


def test_an_empty_list_has_a_reason(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        found = lib.list_documents("quantum")
        assert (found.total, found.abstained) == (0, "No document matches the query")
        assert "tag:kitchn" in (lib.list_documents(tag="kitchn").abstained or "")


def test_identifiers_match_however_they_are_written(tmp_path: Path) -> None:
    pages = {"a.md": "# A\n\nCall getUserById.\n", "b.md": "# B\n\nCall get_user_by_id.\n"}
    with library(write(tmp_path, pages)) as lib:
        found = lib.list_documents("getUserById", min_confidence=1)
        assert sorted(paths(found)) == ["a.md", "b.md"]


@pytest.mark.parametrize("given", [{"limit": 0}, {"page": 0}, {"sort": "size"}, {"mode": "x"}])
def test_invalid_parameters_are_errors(tmp_path: Path, given: dict[str, object]) -> None:
    with library(write(tmp_path, PAGES)) as lib, pytest.raises(UsageError):
        lib.list_documents("x", **given)  # type: ignore[arg-type]


def test_no_search_finds_a_document_above_the_threshold_that_the_list_lacks(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        for query in ("release notes", "beans for espresso", "how do I deploy"):
            listed = set(paths(lib.list_documents(query)))
            hits = lib.search(query, limit=50).hits
            assert {hit.chunk.path for hit in hits if hit.score >= 0.3} <= listed


WORDS = "token deploy replica cluster espresso kitchen user login cache lamp".split()


def random_page(chance: random.Random) -> str:
    tag = chance.choice(["red", "blue"])
    sections = "".join(
        f"## {chance.choice(WORDS)}\n\n{' '.join(chance.choices(WORDS, k=chance.randrange(30, 200)))}\n\n"
        if chance.random() < 0.3
        else f"{' '.join(chance.choices(WORDS, k=2))}\n\n"
        for _ in range(chance.randrange(1, 4))
    )
    return f"---\ntags: [{tag}]\n---\n# {chance.choice(WORDS)}\n\n{sections}"


def test_lists_equal_brute_force_for_any_words_and_filters(tmp_path: Path) -> None:
    chance = random.Random(3)
    pages = {
        f"{chance.choice(['a', 'b'])}/{number}.md": random_page(chance) for number in range(60)
    }
    folder = write(tmp_path / "docs", pages)
    with marklight.open(folder, {"model": {"name": "none"}}) as lib:
        lib.index()
        for _ in range(40):
            words = chance.sample(WORDS, k=chance.randrange(1, 4))
            tag, part = chance.choice([None, "red"]), chance.choice([None, "a/**"])
            expected = {
                path
                for path, text in pages.items()
                if set(words) <= set(re.findall(r"\w+", text))
                and (tag is None or f"tags: [{tag}]" in text)
                and (part is None or path.startswith("a/"))
            }
            found = lib.list_documents(
                " ".join(words), tag=tag, path=part, min_confidence=1, refresh=False
            )
            assert {
                each.document.path for each in found.documents if not each.by_meaning
            } == expected
            assert found.total == len(found.documents)
