"""Context levels of a passage, through the public API."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import NotFound, UsageError
from tests.making import library, write, written_by_another

WORDS = " ".join(f"w{number}" for number in range(60))
PAGE = "# Page\n\n## Parts\n\n" + "\n\n".join(
    f"### Part {number}\n\npart {number} says {WORDS}" for number in range(1, 6)
)


@pytest.fixture
def lib(tmp_path: Path, engine: str) -> Iterator[marklight.Library]:
    with library(write(tmp_path / "docs", {"page.md": PAGE}), engine=engine) as lib:
        lib.index()
        yield lib


def test_every_result_lists_its_context_levels_and_get_returns_them(lib: marklight.Library) -> None:
    (result,) = lib.search("what says part 3", limit=1).to_dict()["results"]
    assert result["levels"][0]["level"] == "passage"
    assert result["levels"][-1]["level"] == "document"
    assert result["levels"][-1]["tokens"] == ceil(len(PAGE) / 3.4)
    for level in result["levels"]:
        extract = lib.get(result["chunk_id"], level=level["level"]).to_dict()
        assert extract["lines"] == level["lines"]
        assert len(extract["content"]) == level["characters"]
        assert extract["levels"] == result["levels"]
        assert extract["chunk_id"] == result["chunk_id"]


def test_context_levels_do_not_depend_on_what_is_shown(lib: marklight.Library) -> None:
    (plain,) = lib.search("what says part 3", limit=1).to_dict()["results"]
    wishes: list[dict[str, Any]] = [{"context": 1}, {"expand_context": True}]
    for options in wishes:
        (wide,) = lib.search("what says part 3", limit=1, **options).to_dict()["results"]
        assert wide["levels"] == plain["levels"]
        assert wide["chunk_id"] == plain["chunk_id"]
        assert len(wide["content"]) > len(plain["content"])


def test_sections_in_place_of_passages_have_context_levels_too(lib: marklight.Library) -> None:
    options: list[dict[str, Any]] = [{}, {"context": 1}, {"expand_context": True}]
    for more in options:
        (result,) = lib.search("what says part 3", limit=1, parents=True, **more).to_dict()[
            "results"
        ]
        assert result["levels"][0]["level"] == "parent"
        assert result["levels"][-1]["level"] == "document"
        for level in result["levels"]:
            extract = lib.get(result["chunk_id"], level=level["level"])
            assert (list(extract.lines), len(extract.text)) == (
                level["lines"],
                level["characters"],
            )
    assert lib.get(result["chunk_id"]).levels == lib.get(result["chunk_id"], context=1).levels


def test_a_heading_has_context_levels_too(lib: marklight.Library) -> None:
    whole = lib.get("page.md#parts", level="section")
    assert whole.text.startswith("## Parts"), "the section named, not the first one below it"
    assert whole.text.endswith(PAGE[-40:])
    passage = lib.get("page.md#part-2", level="passage")
    assert passage.text == f"part 2 says {WORDS}"
    assert lib.get("page.md#part-2", level="section").text.startswith("### Part 2")
    assert lib.get("page.md:13", level="document").text == PAGE


def test_a_context_is_a_number_of_neighbours(lib: marklight.Library) -> None:
    wide = lib.get("page.md#part-3", context=1).text
    assert "part 2" in wide
    assert "part 4" in wide
    assert "part 5" not in wide
    assert lib.get("page.md#part-3", level="neighbours", context=1).text == wide
    assert lib.get("page.md#part-3", level="neighbours").text == wide


def test_invalid_context_levels_are_errors(lib: marklight.Library) -> None:
    with pytest.raises(UsageError, match="'level' cannot be 'book'"):
        lib.get("page.md", level="book")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="neighbours"):
        lib.get("page.md", level="section", context=2)
    with pytest.raises(UsageError, match="0 to 20"):
        lib.get("page.md", context=21)


def test_a_passage_of_a_deleted_file_is_not_shown(lib: marklight.Library) -> None:
    chunk = lib.search("what says part 3", limit=1).hits[0].chunk
    (lib.place.folder / "page.md").unlink()
    with written_by_another(lib), pytest.raises(NotFound, match="no longer on the disk"):
        lib.get(chunk.id)
