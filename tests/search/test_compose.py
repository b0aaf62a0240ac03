"""Composing an answer within a token budget: whole units, the leading document first, omissions reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marklight import Library
from marklight.answer import Answer
from marklight.surfaces.mcp import rendering
from marklight.text.tokens import count_tokens, fits
from tests.making import library, write

STEPS = "\n".join(
    f"{n}. Turn the kiln to level {n} and wait until the glaze of the pots is dry again."
    for n in range(1, 41)
)
KILN = f"# Kiln\n\n## Firing\n\nHow to fire a kiln with glaze:\n\n{STEPS}\n\n## Cooling\n\nLet the kiln cool for a day.\n"
NOTE = "# {}\n\nSomebody asked about glaze on {}. It was a long talk about pots, clay and wheels.\n"


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    pages = {"kiln.md": KILN, **{f"{day}.md": NOTE.format(day, day) for day in days}}
    with library(write(tmp_path_factory.mktemp("docs"), pages)) as opened:
        opened.index()
        yield opened


def search(lib: Library, **options: Any) -> Answer:
    return lib.search("fire a kiln with glaze", min_confidence=0, refresh=False, **options)


def places(answer: Answer) -> list[tuple[str, tuple[int, int]]]:
    return [(hit.chunk.path, hit.chunk.lines) for hit in answer.passages]


def test_without_a_budget_the_rest_of_a_list_is_named(lib: Library) -> None:
    found = search(lib)
    result = next(each for each in found.to_dict()["results"] if each["path"] == "kiln.md")
    first, last = result["lines"]
    assert last < 46
    assert result["continues"] == f"kiln.md:{last + 1}-46"
    rest = lib.get(result["continues"]).text
    assert f"{result['content']}\n{rest}" == lib.get(f"kiln.md:{first}-46").text
    others = (each for each in found.to_dict()["results"] if each["path"] != "kiln.md")
    assert {each["continues"] for each in others} == {None}


@pytest.mark.parametrize("limit", [None, 3])
def test_a_list_is_completed_if_there_is_room(lib: Library, limit: int | None) -> None:
    [whole] = [
        each for each in search(lib, max_tokens=4000, limit=limit) if each.chunk.path == "kiln.md"
    ][:1]
    assert whole.chunk.lines[1] >= 46
    assert "40. Turn the kiln to level 40" in whole.chunk.text
    assert whole.continues is None
    assert whole.chunk.text == lib.get("kiln.md:{}-{}".format(*whole.chunk.lines)).text


def test_a_text_for_assistants_names_the_rest_below_the_passage(lib: Library) -> None:
    found = search(lib, max_tokens=600)
    text = rendering.search_text(found, tokens=600)
    hit = found.hits[0]
    assert hit.continues is not None
    place = "kiln.md:{}-{}".format(*hit.continues.lines)
    assert f"\nprocedure goes on to line 46: get_document ref='{place}'" in text


def test_the_budget_decides_how_many_results_are_shown(lib: Library) -> None:
    query = "somebody asked about glaze, a long talk about pots, clay and wheels"
    numbers = [
        len(lib.search(query, refresh=False, min_confidence=0, max_tokens=tokens, limit=limit))
        for tokens, limit in ((None, None), (200, None), (4000, None), (4000, 2))
    ]
    assert numbers[0] == 5
    assert numbers[1] < 5
    assert numbers[2] >= 7
    assert numbers[3] == 2


@pytest.mark.parametrize("tokens", [1, 20, 60, 150, 300, 700, 1500, 4000])
@pytest.mark.parametrize("limit", [None, 1, 4])
def test_every_surface_shows_the_same_passages_within_the_budget(
    lib: Library, tokens: int, limit: int | None
) -> None:
    found = search(lib, max_tokens=tokens, limit=limit)
    assert len(found) > 0
    assert sum(count_tokens(hit.chunk.text) for hit in found) <= tokens
    text = rendering.search_text(found, tokens=tokens)
    assert fits(text, tokens)
    if tokens >= 300:
        assert text.count("\n> ") >= len(found)
        for path, (first, last) in places(found):
            assert f"] {path}:{first}-{last} § " in text
        assert "truncated" not in text


def test_results_are_ranges_of_lines_that_do_not_overlap(lib: Library) -> None:
    found = search(lib, max_tokens=3000)
    lines = [range(first, last + 1) for path, (first, last) in places(found) if path == "kiln.md"]
    assert sum(map(len, lines)) == len({line for each in lines for line in each})


def test_what_is_left_out_is_reported_with_places_that_work(lib: Library) -> None:
    found = search(lib, max_tokens=300)
    [notice] = [each for each in found.notices if "left out to stay within 300 tokens" in each]
    for place in notice.rpartition(": ")[2].split(", "):
        assert lib.get(place).text


def test_closest_passages_fill_the_budget_too(lib: Library) -> None:
    found = lib.search("kiln glaze zebra quantum", refresh=False, max_tokens=2000, mode="keyword")
    found = (
        found if found.nearest else lib.search("violin concerto", refresh=False, max_tokens=2000)
    )
    assert found.nearest
    text = rendering.search_text(found, tokens=2000)
    assert f"[closest {len(found.nearest)}] " in text
    assert "…" not in text


def test_more_passages_that_match_are_counted_below_the_last_result_of_a_page(
    tmp_path: Path,
) -> None:
    filler = "Clay is dug, washed, dried, ground and mixed with water before it is used. " * 12
    sections = "".join(
        f"## Day {n}\n\nThe kiln was fired with glaze {n}. {filler}\n\n" for n in range(6)
    )
    with library(write(tmp_path, {"diary.md": f"# Diary\n\n{sections}"})) as lib:
        lib.index()
        found = lib.search("kiln fired with glaze", max_tokens=700, min_confidence=0)
        assert found.hits[-1].more == 4
        text = rendering.search_text(found, tokens=700)
        assert text.count("4 more passages of this page match") == 1
        whole = lib.search("kiln fired with glaze", max_tokens=9000, min_confidence=0)
        assert [hit.more for hit in whole] == [0]
        assert whole.hits[0].chunk.lines[1] == len(lib.get("diary.md").text.rstrip().split("\n"))


def test_a_completed_table_has_no_padding(tmp_path: Path) -> None:
    rows = "".join(f"| kiln {number:<40} | glaze {number:<40} |\n" for number in range(40))
    table = f"| {'name':<45} | {'colour':<46} |\n|{'-' * 47}|{'-' * 48}|\n{rows}"
    with library(write(tmp_path / "docs", {"kilns.md": f"# Kilns\n\n{table}"})) as lib:
        lib.index()
        (hit,) = lib.search("kiln 3", max_tokens=2000).hits
    assert hit.chunk.lines == (3, 44)
    assert hit.chunk.text.startswith("| name | colour |\n|---|---|\n| kiln 0 | glaze 0 |\n")
    assert hit.chunk.text.endswith("| kiln 39 | glaze 39 |")
