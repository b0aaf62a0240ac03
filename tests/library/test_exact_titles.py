"""A document or section whose title equals the query ranks first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import marklight
from marklight.operations import ModeName
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.exact import ExactTitle
from tests.library.conftest import paths
from tests.making import library, write

THINGS = "apple pear plum fig grape melon lemon lime peach cherry mango papaya".split()
DEEDS = "growing picking storing".split()


def test_for_an_unknown_title_only_similar_documents_are_returned(tmp_path: Path) -> None:
    folder = write(tmp_path, {"guide/auth.md": "# Auth\n\n## Token refresh\n\nAn hour.\n"})
    with library(folder) as lib:
        lib.index()
        for ref, hint in {
            "guide/auht.md": "Did you mean guide/auth.md?",
            "guide/nonsense.md": "Use `marklight search` to find documents",
            "guide/auth.md#token-refersh": "Did you mean #token-refresh?",
            "guide/auth.md#Token Refesh": "Did you mean #token-refresh?",
            "guide/auth.md#nonsense": "It has: auth, token-refresh",
        }.items():
            with pytest.raises(marklight.NotFound) as error:
                lib.get(ref)
            assert error.value.hint == hint


def pages() -> dict[str, str]:
    """37 documents that speak of one another, so that words alone do not tell them apart."""
    chance = random.Random(7)
    names = [f"{deed} {thing}" for thing in THINGS for deed in DEEDS]

    def talk() -> str:
        others = [f"{chance.choice(names)} {chance.getrandbits(64):x}" for _ in range(12)]
        return f"Of {', '.join(others)}.\n"

    found = {
        f"{deed}/{thing}-{deed}.md": f"---\ntitle: {deed.title()} {thing}\nkeywords: [{thing}wort{deed}]\n"
        f"aliases: [the {thing} {deed} book]\n---\n\n{talk()}\n## When {deed} {thing} fails\n\n{talk()}"
        for thing in THINGS
        for deed in DEEDS
    }
    # One that says the name of another far more often than that one does.
    found["noise.md"] = (
        "---\ntitle: Fig growing and fig\nkeywords: [growing, fig]\ntags: [growing, fig]\n"
        "description: growing fig\n---\n\n" + "growing fig when growing fig fails\n" * 20
    )
    return found


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[marklight.Library]:
    folder = write(tmp_path_factory.mktemp("named") / "docs", pages())
    with library(folder) as lib:
        lib.index()
        yield lib


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "semantic"])
@pytest.mark.parametrize(
    "query",
    [
        "Growing fig",
        "growing FIG",
        "the fig growing book",
        "fig-growing",
        "fig-growing.md",
        "Growing  fíg",
    ],
)
def test_a_document_whose_title_is_the_query_ranks_first(
    lib: marklight.Library, query: str, mode: ModeName
) -> None:
    assert paths(lib.search(query, mode=mode, refresh=False))[0] == "growing/fig-growing.md"


def test_the_title_of_every_document_finds_it_first(lib: marklight.Library) -> None:
    for thing in THINGS:
        for deed in DEEDS:
            found = lib.search(f"{deed} {thing}", refresh=False)
            assert paths(found)[0] == f"{deed}/{thing}-{deed}.md"


def test_every_heading_finds_its_section_among_the_first_three(lib: marklight.Library) -> None:
    for thing in THINGS:
        for deed in DEEDS:
            found = lib.search(f"When {deed} {thing} fails", refresh=False)
            above = [(hit.chunk.path, hit.chunk.headings[-1:]) for hit in found.hits[:3]]
            assert (f"{deed}/{thing}-{deed}.md", (f"When {deed} {thing} fails",)) in above


def test_every_keyword_finds_its_document_among_the_first_five(lib: marklight.Library) -> None:
    for thing in THINGS:
        for deed in DEEDS:
            found = lib.search(f"{thing}wort{deed}", refresh=False)
            assert f"{deed}/{thing}-{deed}.md" in paths(found)[:5]


def test_a_title_does_not_bypass_filters(lib: marklight.Library) -> None:
    found = lib.search("Growing fig", path="picking/**", refresh=False, min_confidence=0.0)
    assert found.hits
    assert all(path.startswith("picking/") for path in paths(found))


def test_code_search_ignores_titles(lib: marklight.Library) -> None:
    assert not lib.search("Growing fig", mode="code", refresh=False).hits


def test_a_deleted_document_is_not_found_by_its_title(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Some thing\n\nx\n", "b.md": "# Other\n\ny\n"})
    with library(folder) as lib:
        lib.index()
        (folder / "a.md").unlink()
        assert "a.md" not in paths(lib.search("Some thing", refresh=False, min_confidence=0.0))


def test_with_many_equal_titles_the_best_come_first_and_the_rest_stay(tmp_path: Path) -> None:
    files = {
        f"{thing}/index.md": f"# All of {thing}\n\n{thing * 3} of {thing * 5}\n"
        for thing in THINGS[:8]
    }
    files["guide.md"] = (
        "# Making an index\n\nAn index of a database is made by the index command.\n"
    )
    with library(write(tmp_path / "docs", files)) as lib:
        found = lib.search("index", limit=9, min_confidence=0.0)
        # Three of eight files of that name are lifted, and no crowd of them hides the guide.
        assert [path == "guide.md" for path in paths(found)[:4]] == [False, False, False, True]


def test_scores_stay_below_one_and_the_former_first_result_follows(lib: marklight.Library) -> None:
    with_names = lib.search("Growing fig", mode="keyword", limit=20, explain=True, refresh=False)
    without = lib.search(
        "Growing fig",
        mode="keyword",
        limit=20,
        refresh=False,
        settings={"search": {"skip": ["exact_title"]}},
    )
    first, *others = with_names.hits
    assert without.hits[0].chunk.path == "noise.md"
    assert 1.0 >= first.score > others[0].score
    assert first.why[-1].stage == "exact_title"
    old = [hit.chunk.id for hit in without.hits if hit.chunk.id != first.chunk.id]
    new = [hit.chunk.id for hit in others]
    assert new[:3] == old[:3]


def test_the_added_result_is_the_first_passage_of_its_document(lib: marklight.Library) -> None:
    with lib.engine.snapshot() as snapshot:
        (hit,) = ExactTitle()(Query("Growing fig"), (), Tools(snapshot))
    assert (hit.chunk.path, hit.chunk.ordinal) == ("growing/fig-growing.md", 0)
    assert 0.5 <= hit.score <= 1.0


def test_a_section_that_ranks_well_is_not_ranked_lower_by_its_title(
    lib: marklight.Library,
) -> None:
    with lib.engine.snapshot() as snapshot:
        tools = Tools(snapshot)
        (found,) = ExactTitle()(Query("When growing fig fails"), (), tools)
        (hit,) = ExactTitle()(Query("When growing fig fails"), (replace(found, score=0.9),), tools)
    # Half of the room above 0.9, which a heading begins at, and a seventh of it for each whole score.
    assert hit.score == pytest.approx(0.9 + 0.1 * (1 / 2 + 0.9 / 7))
